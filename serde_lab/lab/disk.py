"""How much disk a run needs, before it makes anything; a run that would fill the disk is refused.

Owns the estimate: bytes a row, measured on lineitem with zstd, and for the user's own files in
proportion to theirs. Must not know what is measured.
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

# of lineitem, a row: as generated, as a batch of the input, in the shuffle, in a table, in the oracle
_GENERATED, _INPUT, _SHUFFLE, _TABLE, _ORACLE = 36, 48, 120, 90, 110
_SHUFFLES = 2
"""Spark removes the files of a shuffle when nobody refers to it any more: of the last cell, later."""
_WORTH_SAYING = 1 << 30


class Places(Protocol):
    """Where a run keeps its data and works."""

    @property
    def cache(self) -> Path | None: ...

    @property
    def work(self) -> Path | None: ...


@dataclass(frozen=True, slots=True)
class DiskNeed:
    """Bytes that a run will write, at most, below the cache and in its work folder at once."""

    cache_bytes: int
    work_bytes: int


def disk_need(
    points: Sequence[tuple[Scenario, Sequence[Arm]]], cache: Path | None = None
) -> DiskNeed:
    """For the scenarios of all points, one after the other; input that is there needs nothing."""
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
        # a cell's table shares the files of the set-up, and copy-on-write keeps what it replaces
        tables = _TABLE * (sum(rows) + sum(timed))
        work = max(work, scale * (shuffles + tables + sum(rows) * _ORACLE))
    return DiskNeed(int(kept), int(work))


def check_disk(
    points: Sequence[tuple[Scenario, Sequence[Arm]]], places: Places, say: Callable[[str], None]
) -> DiskNeed:
    """Say what is needed where it is much. Raises SetupError where it is not there."""
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
    """Rows of the source, and how large one of them is beside one of lineitem."""
    data = scenario.data
    if not isinstance(data, ParquetData):
        return TABLES[data.table].rows_at(data.scale_factor), 1.0
    source = own_files.open_source(data)
    size = sum(file.stat().st_size for file in source.files)
    return source.rows, max(1.0, size / source.rows / _GENERATED)


def _existing(folder: Path) -> Path:
    """The folder itself, or the nearest above it that is there."""
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
