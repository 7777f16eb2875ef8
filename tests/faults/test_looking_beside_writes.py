"""What is read while another write completes: the table of before it or after it, with columns to match."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from serde_lab.pipeline.read import parse_read_options, plan_read
from serde_lab.table.storage.storage import Storage, StoredFile
from serde_lab.table.table import HoodieTable
from tests.faults.small_table import COW, FIRST, SECOND, make, seen_after, seen_by_us
from tests.faults.small_table import MOR as MOR_TABLE
from tests.pipeline.lab_table import MOR, PARTITIONED, LabTable

pytestmark = pytest.mark.slow

QUERY = "hoodie.datasource.query.type"
READS: dict[str, dict[str, str]] = {
    "snapshot": {},
    "with meta columns": {"serde_lab.meta_columns": "true"},
    "read optimized": {QUERY: "read_optimized"},
    "all changes": {QUERY: "incremental", "hoodie.datasource.read.begin.instanttime": "0"},
}
KINDS: dict[str, dict[str, str]] = {
    "cow": {},
    "mor": {**MOR, **PARTITIONED},
    "mor 6": {**MOR, "hoodie.write.table.version": "6"},
}
NARROW = pa.schema(
    [
        ("k", pa.string()),
        ("n", pa.int32()),
        ("ts", pa.int32()),
        ("p", pa.string()),
        ("x", pa.int32()),
    ]
)
# an added column, and one whose old values have another text as the new type
WIDE = pa.schema([*NARROW.set(4, pa.field("x", pa.string())), ("late", pa.int64())])


def rows(schema: pa.Schema, numbers: range, ts: int) -> pa.Table:
    made = [{"k": "a", "n": n, "ts": ts, "p": f"p{n % 2}", "late": n} for n in numbers]
    x = 7 if schema is NARROW else "wide"
    return pa.Table.from_pylist([{**row, "x": x} for row in made], schema)


class BusyStorage(Storage):
    """Before its step `at`, of listings and reads, another write completes."""

    meanwhile: Callable[[], object]
    at = -1
    steps = 0

    def _step(self) -> None:
        self.steps += 1
        if self.steps - 1 == self.at:
            self.meanwhile()

    def _get(self, path: str) -> bytes:
        self._step()
        return super()._get(path)

    def _list(self, folder: str) -> Iterator[Any]:
        self._step()
        yield from super()._list(folder)

    def list_names(self, folder: str) -> list[str]:
        self._step()
        return super().list_names(folder)

    def open_input(self, path: str) -> pa.NativeFile:
        self._step()
        return super().open_input(path)


def read(storage: Storage, options: dict[str, str]) -> pa.Table:
    return plan_read(HoodieTable.open(storage), parse_read_options(options)).read().sort_by("n")


@pytest.mark.parametrize("asked", READS)
@pytest.mark.parametrize("kind", KINDS)
def test_a_write_completes_that_changes_columns(kind: str, asked: str, tmp_path: Path) -> None:
    first = LabTable(tmp_path / "first", KINDS[kind], WIDE)
    first.upsert(rows(NARROW, range(6), 1))
    first.upsert(rows(NARROW, range(3, 8), 2))
    alone = BusyStorage.open(first.path)
    before = read(alone, READS[asked])
    assert before["x"].type == NARROW.field("x").type
    for step in range(alone.steps):
        table = LabTable(tmp_path / str(step), KINDS[kind], WIDE)
        shutil.copytree(first.path, table.path)
        storage = BusyStorage.open(table.path)
        storage.at, storage.meanwhile = step, partial(table.upsert, rows(WIDE, range(5, 10), 3))
        found = read(storage, READS[asked])
        after = read(Storage.open(table.path), READS[asked])
        assert after["x"].type == WIDE.field("x").type
        assert found in (before, after), f"a write before step {step} of {alone.steps}"


class RollingBack(Storage):
    """While a read is planned, Apache Hudi rolls the last write back: first its completed file goes, then
    one of its data files."""

    begun = False

    def list_folder(self, folder: str = "") -> tuple[list[str], list[StoredFile]]:
        if not (folder or self.begun):
            self.begun = True
            table = HoodieTable.open(Storage.open(self.url))
            last = table.timeline().completed()[-1]
            written = table.commit_metadata(last).write_stats
            assert len(written) > 1
            table.timeline().delete(last)
            table.storage.delete(written[0].path)
        return super().list_folder(folder)


@pytest.mark.parametrize("version", [9, 6])
@pytest.mark.parametrize("table_type", [COW, MOR_TABLE])
def test_a_completed_write_is_rolled_back(table_type: str, version: int, tmp_path: Path) -> None:
    """Part of what it wrote is no state of the table."""
    made = make(tmp_path, table_type, {"hoodie.write.table.version": str(version)})
    both = seen_after({}, [*FIRST, *SECOND])
    assert seen_by_us(made) == both
    storage = RollingBack.open(tmp_path)
    assert seen_by_us(storage) == seen_after({}, FIRST)
    assert storage.begun
