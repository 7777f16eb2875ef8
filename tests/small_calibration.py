"""Calibration with less work, for runs that a test starts: no test judges a time.

Importing this module changes the process that imports it. `python -m tests.small_calibration run …` is
`python -m serde_lab run …`, so changed.
"""

from __future__ import annotations

from serde_lab.measure import calibration

calibration._NUMBERS = 50_000
calibration._FILE_BYTES = 2 << 20

if __name__ == "__main__":
    from serde_lab.cli.app import entry

    entry()
