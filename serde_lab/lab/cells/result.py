"""What a cell hands on: its samples and its table. Must not know how any kind of arm measures."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from serde_lab.table.table import HoodieTable


@dataclass(frozen=True, slots=True)
class CellSample:
    """One measured value, as a run keeps it."""

    metric: str
    value: float
    commit: int | None = None
    phase: str | None = None


@dataclass(frozen=True, slots=True)
class CellResult:
    """What a cell measured. `table` is its final table, None where the arm writes none.

    `sniffed` and `foreign` count frames that reached a reduce side, and those among them that do not
    bear the strategy's mark. `rows` is what a control without a table moved. `threads_left` counts
    phases that left a thread running.
    """

    samples: tuple[CellSample, ...]
    table: Path | None
    sniffed: int = 0
    foreign: int = 0
    rows: int = 0
    threads_left: int = 0


def table_bytes(table: HoodieTable) -> int:
    """Bytes of the files that a snapshot of `table` reads."""
    latest = table.view().latest_file_slices()
    files = [file for slice_ in latest for file in (slice_.base_file, *slice_.log_files)]
    return sum(file.size_bytes for file in files if file is not None)
