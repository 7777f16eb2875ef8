"""Calibration with less work, and cells that leave the garbage collector as it is, for runs that a test
starts: no test judges a time.

Importing this module changes the process that imports it. `python -m tests.small_calibration run …` is
`python -m serde_lab run …`, so changed.
"""

from __future__ import annotations

import gc
from types import SimpleNamespace

from serde_lab.lab.cells import cell
from serde_lab.measure import calibration

calibration._NUMBERS = 50_000
calibration._FILE_BYTES = 2 << 20
# `tests/conftest.py` has frozen the test suite's objects, and a cell would thaw them
assert vars(cell)["gc"] is gc
vars(cell)["gc"] = SimpleNamespace(
    collect=lambda: gc.collect(0), freeze=lambda: None, unfreeze=lambda: None
)

if __name__ == "__main__":
    from serde_lab.cli.app import entry

    entry()
