"""Defines the result of a cell: its samples, its table and its counts."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from serde_lab.table.table import HoodieTable


@dataclass(frozen=True, slots=True)
class CellSample:
    """One measured value as a run stores it."""

    metric: str
    value: float
    commit: int | None = None
    phase: str | None = None


@dataclass(frozen=True, slots=True)
class CellResult:
    """The result of a cell. `table` is its final table, None if the arm writes none.

    `sniffed` counts frames that reached a reduce side, and `foreign` those of them without the
    strategy's mark. `rows` is the number of rows that a control without a table moved. `threads_left`
    counts phases that ended while one of their threads still ran.
    """

    samples: tuple[CellSample, ...]
    table: Path | None
    sniffed: int = 0
    foreign: int = 0
    rows: int = 0
    threads_left: int = 0


def table_bytes(table: HoodieTable) -> int:
    """Total bytes of the files that a snapshot of `table` reads."""
    latest = table.view().latest_file_slices()
    files = [file for slice_ in latest for file in (slice_.base_file, *slice_.log_files)]
    return sum(file.size_bytes for file in files if file is not None)
