"""Tables for tests: rows of every type, a plain writer on top of the table's own calls, and readers.

The model of what a table holds is kept here as dicts, independent of what the table code computes.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
from hudi import HudiReadOptions, HudiTableBuilder

from serde_lab.avro.schema import arrow_to_avro
from serde_lab.records.schema import META_NAMES, RECORD_KEY
from serde_lab.table.config import TableConfig
from serde_lab.table.files.base_file import BaseFileFormat, BaseFileReader, BaseFileWriter
from serde_lab.table.files.log_file import LogFormat, LogTarget, LogWriter
from serde_lab.table.read_plan import plan_snapshot
from serde_lab.table.storage.data_files import Writing, delete_markers
from serde_lab.table.storage.storage import Storage
from serde_lab.table.table import HoodieTable
from serde_lab.table.timeline.commit_metadata import CommitMetadata, WriteStat
from serde_lab.table.timeline.timeline import Instant

Row = dict[str, Any]

SMALL = pa.schema([("id", pa.string()), ("ts", pa.int64()), ("value", pa.string())])

EVERY_TYPE = pa.schema(
    [
        pa.field("id", pa.string(), nullable=False),
        ("ts", pa.int64()),
        ("region", pa.string()),
        ("flag", pa.bool_()),
        ("small", pa.int32()),
        ("single", pa.float32()),
        ("double", pa.float64()),
        ("price", pa.decimal128(15, 2)),
        ("huge", pa.decimal128(38, 10)),
        ("blob", pa.binary()),
        ("day", pa.date32()),
        ("moment", pa.timestamp("us", "UTC")),
        ("numbers", pa.list_(pa.int32())),
        ("counts", pa.map_(pa.string(), pa.int64())),
        (
            "nested",
            pa.struct(
                [("name", pa.string()), ("inner", pa.struct([("amount", pa.decimal128(9, 3))]))]
            ),
        ),
    ]
)


def every_type_row(number: int, ts: int, region: str = "north") -> Row:
    """A row with a value of every type; every fourth has nulls wherever they may be."""
    if number % 4 == 3:
        bare = dict.fromkeys(EVERY_TYPE.names)
        return {**bare, "id": f"key-{number}", "ts": ts, "region": region}
    return {
        "id": f"key-{number}",
        "ts": ts,
        "region": region,
        "flag": number % 2 == 0,
        "small": number - 2**31 + ts,
        "single": number / 4,
        "double": number / 3 + ts,
        "price": Decimal(f"{number}.{ts % 100:02d}"),
        "huge": Decimal("1234567890123456789012345678.0123456789"),
        "blob": bytes([number % 256, 0, 255]),
        "day": date(2024, 2, 1 + number % 28),
        "moment": datetime(2024, 5, 6, 7, 8, 9, number, tzinfo=UTC),
        "numbers": list(range(number % 3)),
        "counts": [(f"n{n}", n + ts) for n in range(number % 3)],
        "nested": {"name": f"naïve {number} 😀", "inner": {"amount": Decimal("-1.250")}},
    }


def batch_of(rows: Sequence[Row], schema: pa.Schema) -> pa.RecordBatch:
    """The rows as one batch."""
    return pa.RecordBatch.from_pylist(list(rows), schema=schema)


def avro_schema(schema: pa.Schema, name: str) -> str:
    """The schema as a commit states it."""
    return json.dumps(arrow_to_avro(schema, f"{name}_record", f"hoodie.{name}"))


class PlainWriter:
    """Upserts rows one by one into the base files of a table: slow, plain and obviously right."""

    def __init__(self, storage: Storage, config: TableConfig, schema: pa.Schema) -> None:
        there = HoodieTable.exists(storage)
        self.table = HoodieTable.open(storage) if there else HoodieTable.create(storage, config)
        self.storage, self.config, self.schema = storage, config, schema

    def begin(self, action: str | None = None) -> Instant:
        timeline = self.table.timeline()
        instant = timeline.new_instant(action or self.config.write_action)
        return timeline.create_inflight(timeline.create_requested(instant))

    def complete(
        self, instant: Instant, stats: Iterable[WriteStat], operation: str = "UPSERT"
    ) -> Instant:
        metadata = CommitMetadata(
            operation, tuple(stats), {"schema": avro_schema(self.schema, self.config.name)}
        )
        content = metadata.to_bytes(self.config.layout_version)
        done = self.table.timeline().create_completed(instant, content)
        delete_markers(self.storage, instant.time)
        return done

    def upsert(self, rows: Sequence[Row], deletes: Sequence[str] = ()) -> Instant:
        """One COW commit: rows replace those of their key, whatever their ordering values."""
        instant = self.begin("commit")
        return self.complete(instant, self.write(instant, rows, deletes))

    def write(
        self, instant: Instant, rows: Sequence[Row], deletes: Sequence[str] = ()
    ) -> list[WriteStat]:
        """The base files of a commit, without completing it: one file group a partition."""
        slices = {s.partition_path: s for s in self.table.view().latest_file_slices()}
        partitions = {self.partition_path(row) for row in rows}
        if deletes:
            partitions |= set(slices)
        stats = []
        for number, partition in enumerate(sorted(partitions)):
            mine = {row["id"]: row for row in rows if self.partition_path(row) == partition}
            before = slices[partition].base_file if partition in slices else None
            file_id = (
                slices[partition].file_id
                if partition in slices
                else f"00000000{str(uuid.uuid5(uuid.NAMESPACE_URL, partition))[8:]}-0"
            )
            writer = BaseFileWriter(
                self.storage,
                Writing(
                    instant.time,
                    f"{number}-1-0",
                    self.table.timeline().path(instant),
                    task_partition=number,
                ),
                data_schema=self.schema,
                partition_path=partition,
                file_id=file_id,
                previous=None if before is None else before.path,
                format=BaseFileFormat(),
            )
            updates = gone = 0
            if before is not None:
                stored = BaseFileReader(self.storage, before.path).read()
                keys = stored[RECORD_KEY].to_pylist()
                updates = len(mine.keys() & set(keys))
                gone = len(set(deletes) & set(keys))
                kept = [key not in mine and key not in deletes for key in keys]
                for batch in stored.filter(pa.array(kept, pa.bool_())).to_batches():
                    writer.append_carried(batch)
            batch = pa.RecordBatch.from_pylist(list(mine.values()), schema=self.schema)
            writer.append(batch.column(batch.schema.get_field_index("id")), batch)
            stats.append(writer.close(updates=updates, deletes=gone))
        return stats

    def partition_path(self, row: Mapping[str, Any]) -> str:
        style = "{0}={1}" if self.config.hive_style else "{1}"
        return "/".join(style.format(f, row[f]) for f in self.config.partition_fields)


def hudi_rs_rows(storage: Storage, **read: str) -> list[Row]:
    """All rows as hudi-rs sees them, meta columns too, sorted by key."""
    builder = HudiTableBuilder.from_base_uri(
        storage.url if not storage.is_local else f"file://{storage.url}"
    )
    for key, value in storage.options.items():
        builder = builder.with_storage_option(f"aws_{key}", value)
    if not storage.is_local:
        builder = builder.with_storage_option("aws_allow_http", "true")
    options = HudiReadOptions()
    for key, value in read.items():
        options = getattr(options, f"with_{key}")(value)
    batches = builder.build().read(options)
    rows = [row for batch in batches for row in pa.record_batch(batch).to_pylist()]
    return sorted(rows, key=lambda row: str(row[RECORD_KEY]))


def without_meta(rows: Iterable[Row]) -> list[Row]:
    """Only the data columns, sorted by key."""
    plain = [{k: v for k, v in row.items() if k not in META_NAMES} for row in rows]
    return sorted(plain, key=lambda row: str(row["id"]))


class LogAppender:
    """One deltacommit on the latest slices of a MOR table, file group by file group."""

    def __init__(self, writer: PlainWriter, format: LogFormat | None = None) -> None:
        self.writer, self.format = writer, format or LogFormat()
        self.instant = writer.begin("deltacommit")
        self._logs: dict[str, LogWriter] = {}
        self._slices = {s.partition_path: s for s in writer.table.view().latest_file_slices()}

    def rows(self, *rows: Row) -> LogAppender:
        for partition in {self.writer.partition_path(row) for row in rows}:
            mine = [row for row in rows if self.writer.partition_path(row) == partition]
            batch = pa.RecordBatch.from_pylist(mine, schema=self.writer.schema)
            self._log(partition).append(batch.column(batch.schema.get_field_index("id")), batch)
        return self

    def deletes(
        self, *keys: str, ordering: pa.Array | None = None, partition: str = ""
    ) -> LogAppender:
        self._log(partition).delete(
            pa.array(keys, pa.string()), () if ordering is None else (ordering,)
        )
        return self

    def stats(self) -> list[WriteStat]:
        return [stat for log in self._logs.values() for stat in log.close()]

    def commit(self) -> Instant:
        return self.writer.complete(self.instant, self.stats())

    def _log(self, partition: str) -> LogWriter:
        if partition not in self._logs:
            slice_ = self._slices[partition]
            base = slice_.base_file
            self._logs[partition] = LogWriter(
                self.writer.storage,
                Writing(
                    self.instant.time, "0-2-0", self.writer.table.timeline().path(self.instant)
                ),
                table_name=self.writer.config.name,
                table_version=self.writer.config.version,
                data_schema=self.writer.schema,
                target=LogTarget(
                    partition,
                    slice_.file_id,
                    slice_.base_instant,
                    "" if base is None else base.path.rpartition("/")[2],
                    max((log.version for log in slice_.log_files), default=0),
                ),
                format=self.format,
            )
        return self._logs[partition]


def our_rows(table: HoodieTable, **read: Any) -> list[Row]:
    """All rows as our own reader sees them, meta columns too, sorted by key."""
    rows = plan_snapshot(table, **read).read().to_pylist()
    return sorted(rows, key=lambda row: str(row[RECORD_KEY]))
