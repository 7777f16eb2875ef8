"""`python -m tests.differential`: the histories that are not done yet; `make differential N=5000` runs it.

Finished histories are kept in a file, line by line: a run that was interrupted goes on where it stopped.
A history that differs is made as small as it can be and kept in `tests/differential/cases`, to be looked
at and named.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from serde_lab.cli.console import fetch_hudi_bundle
from serde_lab.lab.session.session import SessionSettings, start_session, stop_session
from serde_lab.peers import apache_hudi
from tests.differential.history import CASES, Case, History
from tests.differential.made import history
from tests.differential.model import Model
from tests.differential.report import write_report
from tests.differential.smaller import smallest
from tests.differential.state import State
from tests.differential.trial import HUDI, ON_SPARK, Trial

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

STATE = Path(".cache/differential.jsonl")
REPORT = Path("tests/differential/DIFFERENTIAL.md")

_REPORT_EVERY = 100


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit status 1 when any history differed."""
    asked = _parser().parse_args(arguments)
    if asked.afresh:
        asked.state.unlink(missing_ok=True)
    state = State.load(asked.state)
    numbers = asked.only or range(asked.histories)
    drawn = {number: history(number) for number in numbers}
    on_spark = {n for n in numbers if asked.spark_every and n % asked.spark_every == 0}
    to_do = [n for n in numbers if asked.only or not state.has(drawn[n], n in on_spark)]
    sys.stderr.write(f"{len(drawn) - len(to_do)} of {len(drawn)} histories are done\n")
    end = time.monotonic() + asked.minutes * 60 if asked.minutes else float("inf")
    session = start_session(_settings()) if on_spark.intersection(to_do) else None
    try:
        for count, number in enumerate(to_do, 1):
            if time.monotonic() > end:
                break
            here = session if number in on_spark else None
            _carry_out(number, drawn[number], here, state, asked.cases)
            if count % _REPORT_EVERY == 0:
                write_report(asked.report, state.of(drawn.values()))
    finally:
        write_report(asked.report, state.of(drawn.values()))
        if session is not None:
            stop_session(session)
    return 1 if any(one.differences for one in state.of(drawn.values())) else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="make differential", description=__doc__)
    parser.add_argument("--histories", type=int, default=5000)
    parser.add_argument(
        "--spark-every", type=int, default=20, help="of so many, one runs on Spark, too; 0: none"
    )
    parser.add_argument("--minutes", type=float, default=0, help="stop after so long; 0: never")
    parser.add_argument("--afresh", action="store_true", help="forget what is finished")
    parser.add_argument(
        "--only", type=int, action="append", help="only this history, whatever is done"
    )
    parser.add_argument("--state", type=Path, default=STATE)
    parser.add_argument("--report", type=Path, default=REPORT)
    parser.add_argument("--cases", type=Path, default=CASES)
    return parser


def _settings() -> SessionSettings:
    bundle = fetch_hudi_bundle()
    conf = dict(apache_hudi.SESSION_CONF)
    return SessionSettings(cores=2, jars=(str(bundle),), conf=conf)


def _carry_out(
    number: int, drawn: History, session: SparkSession | None, state: State, cases: Path
) -> None:
    folder = Path(tempfile.mkdtemp(prefix="differential-"))
    try:
        trial = Trial(drawn, folder / "all", session)
        differences = trial.differences()
        state.add(number, trial, differences)
        if not differences:
            return
        sys.stderr.write(f"history {number} differs: {drawn.kind}\n")
        for difference in differences[:4]:
            sys.stderr.write(f"    {difference}\n")
        first = differences[0]
        needs_spark = ON_SPARK in (first.writer, first.reader) or "pache" in first.reader
        here = session if needs_spark or HUDI in first.writer else None
        less, found = smallest(drawn, first, folder / "smaller", here)
        case = Case(f"history-{number}", str(found), less, Model.after(less).plain_rows())
        sys.stderr.write(f"    smallest case: {case.save(cases)}\n")
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
