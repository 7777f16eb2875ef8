"""Estimates the disk space of a run before it starts, and refuses a run that would fill the disk.

The estimate is in bytes per row, measured on lineitem with zstd; rows of the user's own files count in
proportion to their size.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import gettempdir
from typing import Protocol

from serde_lab.errors import SetupError
from serde_lab.lab.inputs import own_files
from serde_lab.lab.inputs.prepared import are_prepared, default_cache
from serde_lab.scenario.model import Arm, ParquetData, Scenario
from tpch import TABLES

# bytes per row of lineitem: as generated, as a batch of the input, in the shuffle, in a table, in the oracle
_GENERATED, _INPUT, _SHUFFLE, _TABLE, _ORACLE = 36, 48, 120, 90, 110
_SHUFFLES = 2
"""Spark deletes the files of a shuffle some time after its last use, so the previous cell's may remain."""
_WORTH_SAYING = 1 << 30


class Places(Protocol):
    """The folders in which a run keeps its data and works."""

    @property
    def cache(self) -> Path | None: ...

    @property
    def work(self) -> Path | None: ...


@dataclass(frozen=True, slots=True)
class DiskNeed:
    """Upper bounds of the bytes that a run writes to the cache, and has in its work folder at one time."""

    cache_bytes: int
    work_bytes: int


def disk_need(
    points: Sequence[tuple[Scenario, Sequence[Arm]]], cache: Path | None = None
) -> DiskNeed:
    """The need of all points, which run one after the other; inputs that exist already need nothing."""
    kept, work = 0.0, 0.0
    for scenario, _ in points:
        source_rows, scale = _source(scenario)
        rows = [batch.rows_of(source_rows) for batch in scenario.batches]
        if not are_prepared(scenario, cache):
            generated = 0 if isinstance(scenario.data, ParquetData) else source_rows * _GENERATED
            kept += scale * (generated + sum(rows) * _INPUT)
        if scenario.codec_only:
            continue
        timed = [batch.rows_of(source_rows) for batch in scenario.commits]
        shuffles = _SHUFFLES * max(timed) * _SHUFFLE
        # a cell's table links the files of the set-up, and copy-on-write keeps the files it replaces
        tables = _TABLE * (sum(rows) + sum(timed))
        work = max(work, scale * (shuffles + tables + sum(rows) * _ORACLE))
    return DiskNeed(int(kept), int(work))


def check_disk(
    points: Sequence[tuple[Scenario, Sequence[Arm]]], places: Places, say: Callable[[str], None]
) -> DiskNeed:
    """Report the need if it is large. Raises SetupError if the disk has less free space."""
    cache = default_cache() if places.cache is None else places.cache
    work = Path(gettempdir()) if places.work is None else places.work
    need = disk_need(points, cache)
    if need.cache_bytes + need.work_bytes > _WORTH_SAYING:
        say(
            f"needs about {_size(need.cache_bytes)} of disk for input in {cache} and"
            f" {_size(need.work_bytes)} to work in {work}"
        )
    free_cache, free_work = _free(cache), _free(work)
    together = _device(cache) == _device(work)
    for folder, wanted, free, option in (
        (cache, need.cache_bytes + together * need.work_bytes, free_cache, "--cache"),
        (work, need.work_bytes, free_work, "--work"),
    ):
        if wanted > free:
            raise SetupError(
                f"{folder} has {_size(free)} free, and this run needs about {_size(wanted)} there",
                f"{option} names a folder on another disk, a smaller data.scale_factor needs less",
            )
    return need


def _source(scenario: Scenario) -> tuple[int, float]:
    """The number of rows of the source, and the size of its rows relative to those of lineitem."""
    data = scenario.data
    if not isinstance(data, ParquetData):
        return TABLES[data.table].rows_at(data.scale_factor), 1.0
    source = own_files.open_source(data)
    size = sum(file.stat().st_size for file in source.files)
    return source.rows, max(1.0, size / source.rows / _GENERATED)


def _existing(folder: Path) -> Path:
    """The folder itself, or its nearest parent that exists."""
    folder = folder.absolute()
    return next(place for place in (folder, *folder.parents) if place.exists())


def _free(folder: Path) -> int:
    return shutil.disk_usage(_existing(folder)).free


def _device(folder: Path) -> int:
    return _existing(folder).stat().st_dev


def _size(size: int) -> str:
    for unit, name in ((1e12, "TB"), (1e9, "GB"), (1e6, "MB")):
        if size >= unit:
            return f"{size / unit:,.1f} {name}"
    return f"{size / 1e3:,.1f} kB"
