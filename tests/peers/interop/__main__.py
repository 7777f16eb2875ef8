"""`python -m tests.peers.interop`: the cover, or what of it is not done yet; `make interop` runs it.

Finished cells are kept in a file, line by line: a run that was interrupted goes on where it stopped. The
matrix is written anew after every cell.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from serde_lab.cli.console import fetch_hudi_bundle
from serde_lab.lab.session.session import SessionSettings, start_session, stop_session
from serde_lab.peers import apache_hudi
from tests.peers.interop.cells import all_cells, pairwise_cells
from tests.peers.interop.chain import Chain
from tests.peers.interop.matrix import write_matrix
from tests.peers.interop.state import State

STATE = Path(".cache/interop.jsonl")
MATRIX = Path("tests/peers/INTEROP.md")


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit status 1 when any cell is wrong."""
    parser = argparse.ArgumentParser(prog="make interop", description=__doc__)
    parser.add_argument("--minutes", type=float, default=0, help="stop after so long; 0: never")
    parser.add_argument("--pairwise", action="store_true", help="only what `make test` runs")
    parser.add_argument("--afresh", action="store_true", help="forget what is finished")
    parser.add_argument("--state", type=Path, default=STATE)
    parser.add_argument("--matrix", type=Path, default=MATRIX)
    asked = parser.parse_args(arguments)
    if asked.afresh:
        asked.state.unlink(missing_ok=True)
    state = State.load(asked.state)
    cells = pairwise_cells() if asked.pairwise else all_cells()
    to_do = [cell for cell in cells if not state.has(cell)]
    sys.stderr.write(f"{len(cells) - len(to_do)} of {len(cells)} cells are done\n")
    end = time.monotonic() + asked.minutes * 60 if asked.minutes else float("inf")
    bundle = fetch_hudi_bundle()
    conf = dict(apache_hudi.SESSION_CONF)
    session = start_session(SessionSettings(cores=2, jars=(str(bundle),), conf=conf))
    try:
        for number, cell in enumerate(to_do, 1):
            if time.monotonic() > end:
                break
            folder = Path(tempfile.mkdtemp(prefix="interop-"))
            try:
                outcomes = tuple(Chain(session, folder, cell).outcomes())
            finally:
                shutil.rmtree(folder, ignore_errors=True)
            state.add(cell, outcomes)
            write_matrix(asked.matrix, state, len(all_cells()))
            wrong = [o for o in outcomes if o.state == "wrong"]
            verdict = f"WRONG at {wrong[0].operation}: {wrong[0].detail}" if wrong else "right"
            sys.stderr.write(f"{number}/{len(to_do)} {cell.name}: {verdict}\n")
    finally:
        stop_session(session)
    return 1 if state.wrong() else 0


sys.exit(main())
