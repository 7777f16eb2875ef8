"""The doctor: nothing found on sound tables, each damage found by its name, nothing ever written."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from datetime import datetime, tzinfo
from pathlib import Path
from random import Random

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from serde_lab.errors import LabError, TableError
from serde_lab.table.config import TableConfig
from serde_lab.table.files.base_file import BaseFileWriter
from serde_lab.table.files.log_file import LogFormat
from serde_lab.table.index.bucket_index import bucket_ids
from serde_lab.table.index.consistent_hashing import HashingMetadata, create_initial, metadata_path
from serde_lab.table.index.index_kind import INITIAL_INSTANT
from serde_lab.table.services.cleaning import clean
from serde_lab.table.services.compaction import (
    compact_slice,
    complete_compaction,
    schedule_compaction,
)
from serde_lab.table.services.replacing import replaced_by_insert_overwrite_table
from serde_lab.table.storage.data_files import Writing, delete_markers
from serde_lab.table.storage.storage import Storage
from serde_lab.table.timeline import timeline
from serde_lab.table.timeline.archive import archive
from serde_lab.table.timeline.commit_metadata import CommitMetadata
from serde_lab.table.timeline.timeline import Instant
from serde_lab.table.validation import Diagnosis, Severity, validate_table
from serde_lab.table.validation.finding import Kind
from tests.table.made_up_tables import (
    EVERY_TYPE,
    SMALL,
    LogAppender,
    PlainWriter,
    Row,
    batch_of,
    every_type_row,
    hudi_rs_rows,
)

CATALOGUE = {kind.label: kind for kind in Kind}
COW = TableConfig("trips", ("id",), ordering_fields=("ts",), bucket_count=1)
MOR = TableConfig(
    "trips", ("id",), table_type="MERGE_ON_READ", ordering_fields=("ts",), bucket_count=1
)
PARTITIONED = TableConfig("trips", ("id",), partition_fields=("value",), ordering_fields=("ts",))


CONSISTENT = replace(MOR, bucket_engine="CONSISTENT_HASHING")


def row(key: str, ts: int, value: str = "x") -> Row:
    return {"id": key, "ts": ts, "value": value}


def cow(storage: Storage) -> PlainWriter:
    writer = PlainWriter(storage, COW, SMALL)
    writer.upsert([row("a", 1), row("b", 1)])
    writer.upsert([row("a", 2)])
    return writer


def consistent(storage: Storage) -> PlainWriter:
    writer = PlainWriter(storage, CONSISTENT, SMALL)
    (node,) = create_initial(storage, "", 1).nodes
    instant = writer.begin("deltacommit")
    base = BaseFileWriter(
        storage,
        Writing(instant.time, "0-1-0"),
        data_schema=SMALL,
        partition_path="",
        file_id=node.file_id,
    )
    batch = batch_of([row("a", 1), row("b", 1)], SMALL)
    base.append(batch.column("id"), batch)
    writer.complete(instant, [base.close()])
    return writer


def mor(storage: Storage) -> PlainWriter:
    writer = PlainWriter(storage, MOR, SMALL)
    writer.upsert([row("a", 1), row("b", 1), row("c", 1)])
    LogAppender(writer).rows(row("a", 2), row("d", 1)).commit()
    LogAppender(writer).rows(row("d", 2)).deletes("b", ordering=pa.array([5])).commit()
    return writer


def two_buckets(storage: Storage) -> PlainWriter:
    """All keys are of the first bucket."""
    config = replace(MOR, bucket_count=2)
    keys = pa.array([f"k{number}" for number in range(9)])
    first = keys.filter(pa.array(bucket_ids(keys, ("id",), ("id",), 2) == 0)).to_pylist()
    writer = PlainWriter(storage, config, SMALL)
    writer.upsert([row(key, 1) for key in first])
    return writer


def partitioned(storage: Storage) -> PlainWriter:
    writer = PlainWriter(storage, PARTITIONED, SMALL)
    writer.upsert([row("a", 1, "p"), row("b", 1, "q")])
    writer.upsert([row("a", 2, "p")])
    return writer


def every_type(storage: Storage) -> PlainWriter:
    writer = PlainWriter(storage, COW, EVERY_TYPE)
    writer.upsert([every_type_row(number, 1) for number in range(20)])
    return writer


def counted(url: str) -> int:
    return len(hudi_rs_rows(Storage.open(url)))


def names(diagnosis: Diagnosis) -> set[str]:
    return {finding.name for finding in diagnosis.findings}


@pytest.mark.slow
@pytest.mark.parametrize("make", [cow, mor, partitioned, every_type])
@pytest.mark.parametrize("deep", [False, True], ids=["quick", "deep"])
def test_nothing_is_found_on_sound_tables(
    storage: Storage, make: Callable[[Storage], PlainWriter], deep: bool
) -> None:
    make(storage)
    before = [(f.path, f.size_bytes, f.modified_epoch_ms) for f in storage.list_files()]
    diagnosis = validate_table(storage, deep)
    assert diagnosis.findings == ()
    assert not diagnosis.rows_at_stake
    assert [(f.path, f.size_bytes, f.modified_epoch_ms) for f in storage.list_files()] == before
    if deep:
        assert diagnosis.rows == {
            "serde_lab": {cow: 2, mor: 3, partitioned: 2, every_type: 20}[make]
        }


def archived(storage: Storage) -> PlainWriter:
    """A compaction is in the history, and logs that are newer on the timeline."""
    writer = mor(storage)
    schema = CommitMetadata.from_bytes(
        writer.table.timeline().read(writer.table.timeline().completed()[0]), "f"
    ).extra_metadata["schema"]
    plan = schedule_compaction(writer.table)
    assert plan is not None
    stats = [compact_slice(plan, task) for task in range(len(plan.reads.slices))]
    complete_compaction(writer.table, plan, stats, schema)
    for ts in range(3, 8):
        LogAppender(writer).rows(row("a", ts)).commit()
    assert clean(writer.table, 3) is not None
    assert archive(writer.table, 2, 3) is not None
    return writer


def test_nothing_is_found_after_services(local: Storage) -> None:
    archived(local)
    diagnosis = validate_table(local, deep=True, readers={"hudi-rs": counted})
    assert diagnosis.findings == ()
    assert diagnosis.rows == {"serde_lab": 3, "hudi-rs": 3}


def test_a_sound_table_of_version_6(local: Storage) -> None:
    writer = PlainWriter(
        local, TableConfig("t", ("id",), version=6, ordering_fields=("ts",)), SMALL
    )
    writer.upsert([row("a", 1)])
    assert validate_table(local, deep=True).findings == ()


Damage = Callable[[PlainWriter], object]
DAMAGES: list[tuple[str, Callable[[Storage], PlainWriter], Damage]] = []


def damage(name: str, make: Callable[[Storage], PlainWriter]) -> Callable[[Damage], Damage]:
    """Register a way to damage a table, and the finding that must name it."""

    def register(function: Damage) -> Damage:
        DAMAGES.append((name, make, function))
        return function

    return register


def test_a_metadata_table_that_was_built_later_is_not_stale(local: Storage) -> None:
    """Apache Hudi builds it in a commit of its own, from the files of all earlier commits."""
    writer = cow(local)
    version = "hoodie.table.version=9"
    edit_properties(writer, version, f"{version}\nhoodie.table.metadata.partitions=files")
    times = [commit.time for commit in writer.table.timeline().completed()]
    assert len(times) > 1
    folder = ".hoodie/metadata/.hoodie/timeline"
    for time in (*(f"{number:017}" for number in range(4)), times[-1]):
        local.put_new(f"{folder}/{time}_{times[-1]}.deltacommit", b"x")
    assert validate_table(local, deep=True).findings == ()


def edit_properties(writer: PlainWriter, old: str, new: str) -> None:
    path = ".hoodie/hoodie.properties"
    text = writer.storage.get(path).decode()
    assert old in text
    writer.storage.replace(path, text.replace(old, new).encode())


def newest(writer: PlainWriter) -> str:
    return writer.table.view().latest_base_files()[0].path


def newest_log(writer: PlainWriter) -> str:
    return writer.table.view().latest_file_slices()[0].log_files[-1].path


@damage("not-a-table", cow)
def _(writer: PlainWriter) -> None:
    writer.storage.delete(".hoodie/hoodie.properties")


@damage("property-missing", cow)
def _(writer: PlainWriter) -> None:
    edit_properties(writer, "hoodie.timeline.layout.version=2\n", "")


@damage("property-missing", partitioned)
def _(writer: PlainWriter) -> None:
    edit_properties(writer, "hoodie.table.partition.fields=value", "hoodie.table.partition.fields=")


@damage("property-missing", mor)
def _(writer: PlainWriter) -> None:
    """The end of the file is gone, and with it what rows are ordered by."""
    path = ".hoodie/hoodie.properties"
    text = writer.storage.get(path)
    writer.storage.replace(path, text[: text.index(b"hoodie.table.ordering.fields") + 9])


@damage("property-missing", mor)
def _(writer: PlainWriter) -> None:
    edit_properties(writer, "hoodie.record.merge.mode=EVENT_TIME_ORDERING\n", "")


@damage("property-wrong", mor)
def _(writer: PlainWriter) -> None:
    edit_properties(writer, "MERGE_ON_READ", "COPY_ON_WRITE")


@damage("property-wrong", cow)
def _(writer: PlainWriter) -> None:
    edit_properties(writer, "layout.version=2", "layout.version=1")


@damage("property-wrong", cow)
def _(writer: PlainWriter) -> None:
    edit_properties(writer, "hoodie.table.version=9", "hoodie.table.version=10")


@damage("property-wrong", cow)
def _(writer: PlainWriter) -> None:
    edit_properties(writer, "urlencode=false", "urlencode=0")


@damage("checksum-wrong", cow)
def _(writer: PlainWriter) -> None:
    edit_properties(writer, "hoodie.table.checksum=", "hoodie.table.checksum=1")


@damage("stale-crc", cow)
def _(writer: PlainWriter) -> None:
    writer.storage.put_new(".hoodie/.hoodie.properties.crc", b"crc\0\0\0\2\0" + bytes(8))


@damage("partition-metadata-missing", partitioned)
def _(writer: PlainWriter) -> None:
    writer.storage.delete("q/.hoodie_partition_metadata")


@damage("commit-unreadable", cow)
def _(writer: PlainWriter) -> None:
    timeline = writer.table.timeline()
    path = timeline.path(timeline.completed()[-1])
    writer.storage.replace(path, writer.storage.get(path)[:-20])


@damage("commit-unreadable", cow)
def _(writer: PlainWriter) -> None:
    timeline = writer.table.timeline()
    writer.storage.replace(timeline.path(timeline.completed()[-1]), b"{not json")


@damage("commit-unreadable", cow)
def _(writer: PlainWriter) -> None:
    timeline = writer.table.timeline()
    stats = b'{"partitionToWriteStats": {"": [{"path": {}}]}}'
    writer.storage.replace(timeline.path(timeline.completed()[-1]), stats)


@damage("commit-unreadable", cow)
def _(writer: PlainWriter) -> None:
    """The schema that the file begins with has lost a name."""
    timeline = writer.table.timeline()
    path = timeline.path(timeline.completed()[-1])
    content = writer.storage.get(path)
    assert b'"name"' in content
    writer.storage.replace(path, content.replace(b'"name"', b'"----"', 3))


@damage("commit-misnamed", cow)
def _(writer: PlainWriter) -> None:
    timeline = writer.table.timeline()
    done = timeline.completed()[-1]
    writer.storage.put_new(f"{timeline.folder}/{done.time}.commit", timeline.read(done))


@damage("schema-missing", cow)
def _(writer: PlainWriter) -> None:
    timeline = writer.table.timeline()
    for done in timeline.completed():
        found = writer.table.commit_metadata(done)
        bare = CommitMetadata(found.operation_type, found.write_stats)
        writer.storage.replace(timeline.path(done), bare.to_bytes(2))


@damage("instant-disorder", cow)
def _(writer: PlainWriter) -> None:
    timeline = writer.table.timeline()
    done = timeline.completed()[-1]
    content = timeline.read(done)
    timeline.delete(done)
    early = Instant(done.time, "commit", "completed", "20000101000000000")
    writer.storage.put_new(timeline.path(early), content)


@damage("pending-instant", cow)
def _(writer: PlainWriter) -> None:
    writer.write(writer.begin(), [row("z", 1)])


@damage("pending-without-markers", cow)
def _(writer: PlainWriter) -> None:
    instant = writer.begin()
    writer.write(instant, [row("z", 1)])
    delete_markers(writer.storage, instant.time)


def forgotten(writer: PlainWriter) -> str:
    """A file whose instant was taken off the timeline, as Apache Hudi does without markers."""
    instant = writer.begin()
    (stat,) = writer.write(instant, [row("z", 1)])
    timeline = writer.table.timeline()
    timeline.delete(instant)
    timeline.delete(Instant(instant.time, "commit", "requested"))
    delete_markers(writer.storage, instant.time)
    return stat.path


@damage("orphan-file", cow)
def _(writer: PlainWriter) -> None:
    forgotten(writer)


@damage("orphan-visible", cow)
def _(writer: PlainWriter) -> None:
    content = writer.storage.get(newest(writer))
    writer.storage.put_new(
        "00000000-dead-4000-8000-000000000000-0_0-1-0_20000101000000000.parquet", content
    )


@damage("file-missing", cow)
def _(writer: PlainWriter) -> None:
    writer.storage.delete(newest(writer))


@damage("file-missing", archived)
def _(writer: PlainWriter) -> None:
    """Only the history says that there was one."""
    writer.storage.delete(newest(writer))


@damage("commit-unreadable", archived)
def _(writer: PlainWriter) -> None:
    folder = writer.table.timeline().history_folder
    (path,) = (f.path for f in writer.storage.list_files(folder) if f.name.endswith(".parquet"))
    writer.storage.replace(path, writer.storage.get(path)[:-1])


@damage("commit-unreadable", archived)
def _(writer: PlainWriter) -> None:
    """Only what the commits wrote; their times and actions can be read."""
    folder = writer.table.timeline().history_folder
    (path,) = (f.path for f in writer.storage.list_files(folder) if f.name.endswith(".parquet"))
    data = bytearray(writer.storage.get(path))
    columns = pq.ParquetFile(pa.BufferReader(bytes(data))).metadata.row_group(0)
    (metadata,) = (
        column
        for column in map(columns.column, range(columns.num_columns))
        if column.path_in_schema == "metadata"
    )
    # in the midst of the dictionary: the head of the page after it has statistics, which nobody reads
    data[(metadata.dictionary_page_offset + metadata.data_page_offset) // 2] ^= 1
    writer.storage.replace(path, bytes(data))


@damage("commit-unreadable", archived)
def _(writer: PlainWriter) -> None:
    path = f"{writer.table.timeline().history_folder}/manifest_1"
    text = writer.storage.get(path)
    writer.storage.replace(path, text.replace(b"fileName", b"filename"))


@damage("unsupported-table", cow)
def _(writer: PlainWriter) -> None:
    """No type that the table's columns could have."""
    done = writer.table.timeline().completed()[-1]
    path = writer.table.timeline().path(done)
    text = writer.storage.get(path)
    writer.storage.replace(path, text.replace(b'"string"', b'"strinG"'))


@damage("file-rows-differ", cow)
def _(writer: PlainWriter) -> None:
    """The base file before has as many rows."""
    older = min(base.path for base in writer.table.view().files.base_files)
    now = newest(writer)
    assert older != now
    writer.storage.replace(now, writer.storage.get(older))


@damage("bucket-wrong", two_buckets)
def _(writer: PlainWriter) -> None:
    """A block of another bucket's deletes, as if two logs had changed places."""
    LogAppender(writer).deletes("elsewhere").commit()


@damage("file-missing", mor)
def _(writer: PlainWriter) -> None:
    writer.storage.delete(newest_log(writer))


@damage("ordering-null", mor)
def _(writer: PlainWriter) -> None:
    edit_properties(writer, "ordering.fields=ts", "ordering.fields=gone")


@damage("file-size-differs", mor)
def _(writer: PlainWriter) -> None:
    path = newest_log(writer)
    content = writer.storage.get(path)
    writer.storage.replace(path, content + content)


@damage("base-file-doubled", cow)
def _(writer: PlainWriter) -> None:
    path = newest(writer)
    writer.storage.put_new(path.replace("_0-1-0_", "_0-9-9_"), writer.storage.get(path))


@damage("stray-parquet", cow)
def _(writer: PlainWriter) -> None:
    writer.storage.put_new("part-0000.parquet", writer.storage.get(newest(writer)))


@damage("file-rows-differ", cow)
def _(writer: PlainWriter) -> None:
    path = newest(writer)
    content = pa.BufferReader(writer.storage.get(path))
    with pq.ParquetFile(content) as file, pa.BufferOutputStream() as out:
        rows = file.read().slice(1)
        pq.write_table(rows.replace_schema_metadata(file.metadata.metadata), out)
        writer.storage.replace(path, out.getvalue().to_pybytes())


@damage("base-file-unreadable", cow)
def _(writer: PlainWriter) -> None:
    path = newest(writer)
    writer.storage.replace(path, writer.storage.get(path)[:-7])


@damage("base-file-unreadable", cow)
def _(writer: PlainWriter) -> None:
    """A page of a column that no check needs cannot be decoded."""
    path = newest(writer)
    with pq.ParquetFile(pa.BufferReader(content := writer.storage.get(path))) as file:
        group = file.metadata.row_group(0)
        names = [group.column(i).path_in_schema for i in range(group.num_columns)]
        column = group.column(names.index("value"))
        start = column.dictionary_page_offset or column.data_page_offset
    writer.storage.replace(path, content[:start] + b"\xff" * 8 + content[start + 8 :])


@damage("log-damaged", mor)
def _(writer: PlainWriter) -> None:
    path = newest_log(writer)
    writer.storage.replace(path, writer.storage.get(path)[:-5])


@damage("log-damaged", mor)
def _(writer: PlainWriter) -> None:
    writer.storage.replace(newest_log(writer), b"")


@damage("log-damaged", mor)
def _(writer: PlainWriter) -> None:
    path = newest_log(writer)
    writer.storage.replace(path, writer.storage.get(path) + bytes(100))


@damage("log-damaged", mor)
def _(writer: PlainWriter) -> None:
    # the lengths of the block hold, the number of its records does not
    path = writer.table.view().latest_file_slices()[0].log_files[0].path
    content = writer.storage.get(path)
    records = (3).to_bytes(4, "big") + (2).to_bytes(4, "big")
    assert records in content
    broken = content.replace(records, (3).to_bytes(4, "big") + (9).to_bytes(4, "big"))
    writer.storage.replace(path, broken)


@damage("log-damaged", mor)
def _(writer: PlainWriter) -> None:
    """No reader takes the block of an instant that is not on the timeline."""
    path = newest_log(writer)
    instant = writer.table.timeline().completed()[-1].time.encode()
    content = writer.storage.get(path)
    assert instant in content
    writer.storage.replace(path, content.replace(instant, b"2" + instant[1:-1] + b"x"))


@damage("log-damaged", mor)
def _(writer: PlainWriter) -> None:
    """The schema of a block has lost a key."""
    path = writer.table.view().latest_file_slices()[0].log_files[0].path
    content = writer.storage.get(path)
    assert b'"fields"' in content
    writer.storage.replace(path, content.replace(b'"fields"', b'"------"'))


@damage("log-unsupported", mor)
def _(writer: PlainWriter) -> None:
    from serde_lab.table.files.log_block import BlockType, Header, frame_block

    path = newest_log(writer)
    writer.storage.replace(path, frame_block(BlockType.CDC_DATA, {Header.INSTANT_TIME: "1"}, b""))


def without_index(storage: Storage) -> PlainWriter:
    config = TableConfig("t", ("id",), table_type="MERGE_ON_READ", ordering_fields=("ts",))
    writer = PlainWriter(storage, config, SMALL)
    writer.upsert([row("a", 1)])
    LogAppender(writer).rows(row("b", 1)).commit()
    return writer


@damage("log-only-group", without_index)
def _(writer: PlainWriter) -> None:
    writer.storage.delete(newest(writer))


@damage("bucket-wrong", cow)
def _(writer: PlainWriter) -> None:
    edit_properties(writer, "num.buckets=1", "num.buckets=64")


@damage("bucket-wrong", cow)
def _(writer: PlainWriter) -> None:
    path = newest(writer)
    writer.storage.put_new(path.replace("00000000", "00000007", 1), writer.storage.get(path))


@damage("replaced-group-written", cow)
def _(writer: PlainWriter) -> None:
    gone = replaced_by_insert_overwrite_table(writer.table.view())
    instant = writer.begin("replacecommit")
    metadata = CommitMetadata("DELETE_PARTITION", replaced_file_ids=gone)
    writer.table.timeline().create_completed(instant, metadata.to_bytes(2))
    writer.upsert([row("a", 3)])


@damage("hashing-metadata-wrong", consistent)
def _(writer: PlainWriter) -> None:
    writer.storage.delete(metadata_path("", INITIAL_INSTANT))


@damage("hashing-metadata-wrong", consistent)
def _(writer: PlainWriter) -> None:
    writer.storage.replace(metadata_path("", INITIAL_INSTANT), b"{")


@damage("bucket-wrong", consistent)
def _(writer: PlainWriter) -> None:
    """A file group that is on no node."""
    writer.storage.replace(
        metadata_path("", INITIAL_INSTANT), HashingMetadata.initial("", 2).to_bytes()
    )


@damage("bucket-doubled", cow)
def _(writer: PlainWriter) -> None:
    path = newest(writer)
    writer.storage.put_new("00000000-0000-4000" + path[18:], writer.storage.get(path))


@damage("metadata-table-stale", cow)
def _(writer: PlainWriter) -> None:
    edit_properties(
        writer,
        "hoodie.table.version=9",
        "hoodie.table.version=9\nhoodie.table.metadata.partitions=files",
    )
    first = writer.table.timeline().completed()[0].time
    folder = ".hoodie/metadata/.hoodie/timeline"
    for time in ("00000000000000000", first):
        writer.storage.put_new(f"{folder}/{time}_{first}.deltacommit", b"x")


@damage("metadata-table-stale", cow)
def _(writer: PlainWriter) -> None:
    edit_properties(
        writer,
        "hoodie.table.version=9",
        "hoodie.table.version=9\nhoodie.table.metadata.partitions=files",
    )


def ordered_by(kind: pa.DataType, table_type: str) -> Callable[[Storage], PlainWriter]:
    def make(storage: Storage) -> PlainWriter:
        config = TableConfig("t", ("id",), table_type=table_type, ordering_fields=("ts",))  # type: ignore[arg-type]
        schema = pa.schema([("id", pa.string()), ("ts", kind), ("value", pa.string())])
        return PlainWriter(storage, config, schema)

    return make


@damage("ordering-string-parquet", ordered_by(pa.string(), "MERGE_ON_READ"))
def _(writer: PlainWriter) -> None:
    writer.upsert([{"id": "a", "ts": "1", "value": "x"}])
    LogAppender(writer, LogFormat("parquet")).rows({"id": "a", "ts": "2", "value": "y"}).commit()


@damage("ordering-type", ordered_by(pa.date32(), "COPY_ON_WRITE"))
def _(writer: PlainWriter) -> None:
    from datetime import date

    writer.upsert([{"id": "a", "ts": date(2024, 1, 1), "value": "x"}])


@damage("ordering-null", ordered_by(pa.int64(), "COPY_ON_WRITE"))
def _(writer: PlainWriter) -> None:
    writer.upsert([{"id": "a", "ts": None, "value": "x"}])


@damage("column-type", ordered_by(pa.timestamp("us"), "COPY_ON_WRITE"))
def _(writer: PlainWriter) -> None:
    from datetime import datetime

    writer.upsert([{"id": "a", "ts": datetime(2024, 1, 1), "value": "x"}])


@damage("null-list-element", every_type)
def _(writer: PlainWriter) -> None:
    writer.upsert([{**every_type_row(0, 2), "numbers": [1, None]}])


@damage("key-doubled", cow)
def _(writer: PlainWriter) -> None:
    rewrite(writer, lambda table: pa.concat_tables([table, table.slice(0, 1)]))


@damage("key-in-partitions", partitioned)
def _(writer: PlainWriter) -> None:
    writer.upsert([row("a", 1, "q")])


@damage("key-null", cow)
def _(writer: PlainWriter) -> None:
    rewrite(writer, lambda table: set_column(table, "_hoodie_record_key", [None, "b"]))


@damage("meta-column-wrong", cow)
def _(writer: PlainWriter) -> None:
    rewrite(writer, lambda table: set_column(table, "_hoodie_partition_path", ["elsewhere", ""]))


@damage("bloom-missing", cow)
def _(writer: PlainWriter) -> None:
    rewrite(writer, lambda table: table, footer=False)


@damage("bloom-wrong", cow)
def _(writer: PlainWriter) -> None:
    rewrite(writer, lambda table: set_column(table, "_hoodie_record_key", ["c", "d"]))


def set_column(table: pa.Table, name: str, values: list[str | None]) -> pa.Table:
    return table.set_column(table.schema.get_field_index(name), name, pa.array(values, pa.string()))


def rewrite(
    writer: PlainWriter, change: Callable[[pa.Table], pa.Table], footer: bool = True
) -> None:
    """The newest base file with other rows under the same name."""
    path = newest(writer)
    source = pq.ParquetFile(writer.storage.open_input(path))
    table = change(source.read())
    out = pa.BufferOutputStream()
    with pq.ParquetWriter(out, table.schema, store_schema=False) as parquet:
        parquet.write_table(table)
        if footer:
            parquet.add_key_value_metadata(
                {k.decode(): v.decode() for k, v in source.metadata.metadata.items()}
            )
    writer.storage.replace(path, out.getvalue())


@pytest.mark.parametrize(
    ("name", "make", "function"),
    DAMAGES,
    ids=[f"{name}-{i}" for i, (name, _, _) in enumerate(DAMAGES)],
)
def test_a_damage_is_found_by_its_name(
    local: Storage, name: str, make: Callable[[Storage], PlainWriter], function: Damage
) -> None:
    function(make(local))
    before = [(f.path, f.size_bytes, f.modified_epoch_ms) for f in local.list_files()]
    diagnosis = validate_table(local, deep=True)
    assert name in names(diagnosis)
    expected = CATALOGUE[name].severity is Severity.ROWS
    assert diagnosis.rows_at_stake or not expected
    assert [(f.path, f.size_bytes, f.modified_epoch_ms) for f in local.list_files()] == before
    for finding in diagnosis.findings:
        assert finding.where
        assert finding.detail
        assert json.dumps(finding.to_dict())


def test_every_finding_has_a_damaged_table() -> None:
    """Apart from those that need another reader, or a table that is not ours to read."""
    elsewhere = {"readers-disagree", "rows-unreadable"}
    assert {name for name, _, _ in DAMAGES} == CATALOGUE.keys() - elsewhere


def test_readers_that_disagree(local: Storage) -> None:
    cow(local)
    diagnosis = validate_table(local, deep=True, readers={"other": lambda _: 1})
    assert names(diagnosis) == {"readers-disagree"}
    assert diagnosis.rows == {"serde_lab": 2, "other": 1}
    assert diagnosis.rows_at_stake


def test_a_reader_that_fails(local: Storage) -> None:
    def fails(_: str) -> int:
        raise TableError("it is on fire")

    cow(local)
    diagnosis = validate_table(local, readers={"other": fails})
    assert [(f.name, f.where, f.detail) for f in diagnosis.findings] == [
        ("rows-unreadable", "other", "it is on fire")
    ]


def test_a_kind_of_table_that_is_not_supported_is_no_damage(local: Storage) -> None:
    writer = cow(local)
    edit_properties(writer, "hoodie.populate.meta.fields=true", "hoodie.populate.meta.fields=false")
    diagnosis = validate_table(local, deep=True)
    assert names(diagnosis) == {"unsupported-table"}
    assert not diagnosis.rows_at_stake


def test_a_folder_that_is_not_there_is_no_table_and_is_not_made(tmp_path: Path) -> None:
    assert names(validate_table(Storage.open(tmp_path / "none"), deep=True)) == {"not-a-table"}
    assert not (tmp_path / "none").exists()


def test_a_storage_that_denies_is_a_finding(tmp_path: Path) -> None:
    class Denying(Storage):
        def _get(self, path: str) -> bytes:
            if path.startswith(".hoodie/timeline/"):
                raise PermissionError(13, "Permission denied")
            return super()._get(path)

    cow(Storage.open(tmp_path))
    diagnosis = validate_table(Denying.open(tmp_path), deep=True)
    assert "commit-unreadable" in names(diagnosis)
    assert any(f.detail.endswith("Permission denied") for f in diagnosis.findings)


def damaged(content: bytes, random: Random) -> bytes:
    """Cut, flipped, zeroed, shifted, or something else altogether."""
    at = random.randrange(len(content) + 1)
    flipped = bytearray(content)
    for _ in range(random.choice([1, 20])):
        if content:
            flipped[random.randrange(len(content))] ^= 1 << random.randrange(8)
    return random.choice(
        [
            content[:at],
            bytes(flipped),
            content[:at] + bytes(len(content) - at),
            content[:at] + random.randbytes(5) + content[at:],
            random.randbytes(200),
            b"",
        ]
    )


class StandsStill(datetime):
    """A clock by which every file of a table is the same each time."""

    @classmethod
    def now(cls, tz: tzinfo | None = None) -> StandsStill:
        return cls(2026, 1, 2, 3, 4, 5, tzinfo=tz)


@pytest.mark.slow
def test_no_damage_of_any_file_is_too_much(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever becomes of whichever file, the doctor comes to an end with findings or a sentence.

    The same files meet the same damage each time.
    """
    random = Random(5)
    monkeypatch.setattr(timeline, "datetime", StandsStill)
    for make in (cow, mor, every_type):
        storage = Storage.open(tmp_path / make.__name__)
        make(storage)
        for file in sorted(storage.list_files(), key=lambda file: file.path):
            content = storage.get(file.path)
            for _ in range(3):
                storage.replace(file.path, damaged(content, random))
                with suppress(LabError):
                    validate_table(storage, deep=True)
            storage.replace(file.path, content)
        assert validate_table(storage, deep=True).findings == ()


def test_an_empty_folder_is_no_table(tmp_path: Path) -> None:
    assert names(validate_table(Storage.open(tmp_path))) == {"not-a-table"}
