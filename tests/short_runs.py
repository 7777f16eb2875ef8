"""What makes runs that tests start shorter, without a change of what they check.

Calibration and what warms up Apache Hudi's record classes do less work, since no test judges a time. Cells
leave the garbage collector as it is. The process that decodes frames has no namespaces of its own, and is
forked where many runs share one process (`tests/forked_reader.py`).

Importing this module changes the process that imports it. `python -m tests.short_runs run …` is
`python -m serde_lab run …`, so changed.
"""

from __future__ import annotations

import gc
from types import SimpleNamespace

from serde_lab.lab.cells import cell, record_cells
from serde_lab.lab.checks import referee, stand_alone
from serde_lab.measure import environment
from tests.forked_reader import FORKED, NO_NAMESPACES

environment._NUMBERS = 50_000
environment._FILE_BYTES = 2 << 20
record_cells._WARM_RECORDS = record_cells._RECORDS_A_LOOP = 1_000
# `tests/conftest.py` has frozen the test suite's objects, and a cell would thaw them
assert vars(cell)["gc"] is gc
vars(cell)["gc"] = SimpleNamespace(
    collect=lambda: gc.collect(0), freeze=lambda: None, unfreeze=lambda: None
)
stand_alone.isolation = referee.isolation = NO_NAMESPACES  # type: ignore[assignment]

if __name__ == "__main__":
    from serde_lab.cli.app import entry

    entry()
else:
    stand_alone.subprocess = FORKED  # type: ignore[assignment]
