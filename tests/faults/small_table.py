"""A table of a few rows whose every write names itself in the rows, and what all readers see of it.

A killed write says "dead" in its rows; later writes touch one file group only, so that a dead write's
files in the others stay the newest ones there, should anybody forget them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
from hudi import HudiReadOptions, HudiTableBuilder

from serde_lab.pipeline.commit.coordinator import Commit
from serde_lab.pipeline.commit.table_services import compact
from serde_lab.pipeline.exchange.in_process import Exchange, InProcessExchange
from serde_lab.pipeline.options.write import parse_options
from serde_lab.pipeline.write import PreparedWrite, table_to_write
from serde_lab.table.files.file_system_view import list_table_files
from serde_lab.table.read_plan import plan_snapshot
from serde_lab.table.storage.storage import Storage
from serde_lab.table.table import HoodieTable
from serde_lab.table.timeline.archive import archive
from tests.faults.looks import look

SCHEMA = pa.schema([("p", pa.string()), ("k", pa.string()), ("ts", pa.int64()), ("v", pa.string())])
OPTIONS = {
    "hoodie.table.name": "t",
    "hoodie.datasource.write.recordkey.field": "k",
    "hoodie.datasource.write.partitionpath.field": "p",
    "hoodie.datasource.write.precombine.field": "ts",
    "hoodie.bucket.index.num.buckets": "2",
    "serde_lab.seed": "1",
}
COW = "COPY_ON_WRITE"
MOR = "MERGE_ON_READ"

Row = tuple[str, str, int, str]
Seen = dict[tuple[str, str], tuple[int, str]]

FIRST: Sequence[Row] = [("p", k, 1, "first") for k in "abcd"]
SECOND: Sequence[Row] = [("p", k, 2, "second") for k in "abc"]
DEAD: Sequence[Row] = [*(("p", k, 9, "dead") for k in "abcd"), ("q", "e", 9, "dead")]
KEPT: Seen = {
    ("p", "a"): (2, "second"),
    ("p", "b"): (2, "second"),
    ("p", "c"): (2, "second"),
    ("p", "d"): (1, "first"),
}


def seen_after(seen: Seen, rows: Sequence[Row]) -> Seen:
    """What `seen` becomes by an upsert of `rows`, none of which is late."""
    return {**seen, **{(p, k): (ts, v) for p, k, ts, v in rows}}


def batches(rows: Sequence[Row]) -> list[pa.RecordBatch]:
    columns = [
        pa.array(values, f.type) for values, f in zip(zip(*rows, strict=True), SCHEMA, strict=True)
    ]
    return [pa.RecordBatch.from_arrays(columns, schema=SCHEMA)]


def prepare(
    storage: Storage, table_type: str = COW, options: Mapping[str, str | None] | None = None
) -> PreparedWrite:
    """A write as `OPTIONS` say and `options` after them, where None takes one back."""
    said = {**OPTIONS, "hoodie.datasource.write.table.type": table_type, **(options or {})}
    given = {key: value for key, value in said.items() if value is not None}
    stored = table_to_write(storage)
    config = None if stored is None else stored.config
    return PreparedWrite.of(storage, SCHEMA, parse_options(given, config))


def upsert(
    storage: Storage,
    rows: Sequence[Row],
    table_type: str = COW,
    exchange: Exchange | None = None,
    options: Mapping[str, str | None] | None = None,
) -> Commit:
    """Without Spark, and without table services."""
    prepared = prepare(storage, table_type, options)
    return prepared.commit(exchange or InProcessExchange([batches(rows)]))


def make(
    place: Path | Storage,
    table_type: str = COW,
    options: Mapping[str, str | None] | None = None,
) -> Storage:
    """A table with two commits."""
    storage = place if isinstance(place, Storage) else Storage.open(place)
    upsert(storage, FIRST, table_type, options=options)
    upsert(storage, SECOND, table_type, options=options)
    return storage


def read_by_us(storage: Storage) -> pa.Table:
    return plan_snapshot(HoodieTable.open(storage)).read()


def seen_by_us(storage: Storage) -> Seen:
    return seen_in(read_by_us(storage))


def read_by_hudi_rs(storage: Storage) -> pa.Table:
    builder = HudiTableBuilder.from_base_uri(storage.url)
    for key, value in storage.options.items():
        builder = builder.with_storage_option(f"aws_{key}", value)
    if not storage.is_local:
        builder = builder.with_storage_option("aws_allow_http", "true")
    read = builder.build().read(HudiReadOptions())
    return pa.Table.from_batches([pa.record_batch(batch) for batch in read])


def seen_in(table: pa.Table) -> Seen:
    rows = table.select(SCHEMA.names).to_pylist()
    seen = {(row["p"], row["k"]): (row["ts"], row["v"]) for row in rows}
    assert len(seen) == len(rows), "a key is there twice"
    return seen


def check_readers(storage: Storage, expected: Seen) -> None:
    """hudi-rs and our reader see `expected`, no row more and none less."""
    for reader, read in (("serde_lab", read_by_us), ("hudi-rs", read_by_hudi_rs)):
        look(reader, read(storage), SCHEMA.names, expected)


@dataclass(frozen=True, slots=True)
class Residue:
    """What still mentions an instant, by path."""

    pending: tuple[str, ...]
    data_files: tuple[str, ...]
    markers: tuple[str, ...]


def residue(storage: Storage, instant: str) -> Residue:
    table = HoodieTable.open(storage)
    return Residue(
        tuple(i.time for i in table.timeline().pending()),
        tuple(f.path for f in list_table_files(storage).data_files if f.instant == instant),
        tuple(f.path for f in storage.list_files(f".hoodie/.temp/{instant}")),
    )


def check_file_groups(storage: Storage) -> None:
    """One base file a file group and instant, one log file of each version."""
    files = list_table_files(storage)
    bases = [(f.partition_path, f.file_id, f.instant) for f in files.base_files]
    assert len(set(bases)) == len(bases), bases
    logs = [(f.partition_path, f.file_id, f.instant, f.version) for f in files.log_files]
    assert len(set(logs)) == len(logs), logs


def check_after_archiving(
    storage: Storage,
    table_type: str,
    expected: Seen,
    dead: str,
    options: Mapping[str, str | None] | None = None,
) -> None:
    """Further commits to one file group, until `dead` is older than the active timeline."""
    timeline = HoodieTable.open(storage).timeline()
    for number in range(10):
        rows: Sequence[Row] = [("p", "a", 100 + number, f"later {number}")]
        upsert(storage, rows, table_type, options=options)
        expected = seen_after(expected, rows)
        archive(HoodieTable.open(storage), 2, 3)
        if min(i.time for i in timeline.instants()) > dead and number >= 2:
            break
    assert min(i.time for i in timeline.instants()) > dead, "the timeline never got past it"
    check_readers(storage, expected)
    check_file_groups(storage)


def compact_all(storage: Storage) -> Commit | None:
    return compact(HoodieTable.open(storage))
