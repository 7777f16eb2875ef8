"""`python -m tests.differential`: the histories that are not done yet; `make differential N=600` runs it.

Finished batches are kept in a file, line by line: a run that was interrupted goes on where it stopped.
The report is written anew after every batch. A history that differs is made as small as it can be and
kept in `tests/differential/cases`, to be looked at and named.
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

from serde_lab.cli.progress import fetch_hudi_bundle
from serde_lab.lab.session import SessionSettings, start_session, stop_session
from serde_lab.peers import apache_hudi
from tests.differential.history import CASES
from tests.differential.kind import LETTERS
from tests.differential.made import Batch, batch
from tests.differential.report import write_report
from tests.differential.smaller import smallest
from tests.differential.state import State
from tests.differential.trial import Trial

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

STATE = Path(".cache/differential.jsonl")
REPORT = Path("tests/differential/DIFFERENTIAL.md")

EVERY = 20
"""Of so many histories the lab writes one on Spark as well."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit status 1 when any history differed."""
    parser = argparse.ArgumentParser(prog="make differential", description=__doc__)
    parser.add_argument("--histories", type=int, default=600)
    parser.add_argument("--minutes", type=float, default=0, help="stop after so long; 0: never")
    parser.add_argument("--afresh", action="store_true", help="forget what is finished")
    parser.add_argument(
        "--batch", type=int, action="append", help="only this one, whatever is done"
    )
    parser.add_argument("--state", type=Path, default=STATE)
    parser.add_argument("--report", type=Path, default=REPORT)
    parser.add_argument("--cases", type=Path, default=CASES)
    asked = parser.parse_args(arguments)
    if asked.afresh:
        asked.state.unlink(missing_ok=True)
    state = State.load(asked.state)
    numbers = asked.batch or range(-(-asked.histories // len(LETTERS)))
    batches = [batch(number) for number in numbers]
    to_do = [one for one in batches if asked.batch or not state.has(one)]
    sys.stderr.write(f"{len(batches) - len(to_do)} of {len(batches)} batches are done\n")
    end = time.monotonic() + asked.minutes * 60 if asked.minutes else float("inf")
    session = start_session(_settings())
    try:
        for one in to_do:
            if time.monotonic() > end:
                break
            _carry_out(session, one, state, asked.cases)
            write_report(asked.report, state.of(batches))
    finally:
        stop_session(session)
    return 1 if any(one.differences for one in state.of(batches)) else 0


def _settings() -> SessionSettings:
    bundle = fetch_hudi_bundle()
    conf = dict(apache_hudi.SESSION_CONF)
    # hundreds of small jobs: compiling them for speed costs more than it gives (a batch: 62 s of CPU,
    # or 37)
    return SessionSettings(cores=2, jars=(str(bundle),), conf=conf)


def _carry_out(session: SparkSession, one: Batch, state: State, cases: Path) -> None:
    began = time.monotonic()
    folder = Path(tempfile.mkdtemp(prefix="differential-"))
    try:
        trial = Trial(
            session, folder / "all", one.kind, one.histories, spark_letters(one), one.number
        )
        differences = trial.differences()
        state.add(one, len(trial.on_spark), differences)
        took = time.monotonic() - began
        verdict = f"{len({d.letter for d in differences})} DIFFER" if differences else "all equal"
        sys.stderr.write(f"batch {one.number}, {took:.0f} s: {verdict}: {one.kind}\n")
        for difference in differences[:8]:
            sys.stderr.write(f"    {difference}\n")
        if differences:
            case = smallest(session, folder / "smaller", one, differences)
            sys.stderr.write(f"    smallest case: {case.save(cases)}\n")
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def spark_letters(one: Batch) -> tuple[str, ...]:
    """The histories of a batch that the lab writes on Spark as well: every 20th of all batches."""
    before = one.number * len(LETTERS)
    return tuple(letter for at, letter in enumerate(one.histories, before) if at % EVERY == 0)


if __name__ == "__main__":
    sys.exit(main())
