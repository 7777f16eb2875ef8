"""Batches that leave out columns of their table: what they say is written, and the rest stays."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from serde_lab.avro.schema import avro_to_arrow
from serde_lab.errors import OptionError, SchemaError
from serde_lab.pipeline import write as pipeline_write
from serde_lab.pipeline.options.write import parse_options
from serde_lab.pipeline.read import parse_read_options, plan_read
from serde_lab.records.keys import KeyGenerator
from serde_lab.records.schema import META_NAMES, RecordSchema
from serde_lab.serde.interface import SerdeOptions
from serde_lab.serde.registry import strategy as registered
from serde_lab.table.files.log_block import BlockType, Header, LogBlock, parse_blocks
from serde_lab.table.read_plan import plan_snapshot
from tests.pipeline.lab_table import MOR, STRATEGIES, LabTable

SCHEMA = pa.schema(
    [
        ("k", pa.string()),
        ("ts", pa.int64()),
        ("p", pa.string()),
        ("a", pa.string()),
        ("b", pa.list_(pa.int32())),
        ("x", pa.float64()),
    ]
)
OPTIONS = {
    **MOR,
    "hoodie.datasource.write.recordkey.field": "k",
    "hoodie.bucket.index.num.buckets": "2",
    "serde_lab.partial_updates": "true",
}
COMMIT = {"hoodie.write.record.merge.mode": "COMMIT_TIME_ORDERING"}
PARQUET = {"hoodie.logfile.data.block.format": "parquet"}
PARTITIONED = {"hoodie.datasource.write.partitionpath.field": "p"}


def batch(*rows: dict[str, Any], **types: pa.DataType) -> pa.Table:
    """Rows with the columns of the first one; `types` of columns that the table does not have so."""
    fields = [pa.field(n, types[n]) if n in types else SCHEMA.field(n) for n in rows[0]]
    return pa.Table.from_pylist(list(rows), schema=pa.schema(fields))


def whole(key: str, ts: int, word: str, number: int) -> dict[str, Any]:
    return {"k": key, "ts": ts, "p": "p", "a": word, "b": [number], "x": number / 2}


def table_in(folder: Path, **options: str) -> LabTable:
    """A table of the keys k to n, all at 5."""
    table = LabTable(folder, OPTIONS | options, SCHEMA)
    table.upsert(batch(*(whole(key, 5, "first", 5) for key in "klmn")))
    return table


def delete(table: LabTable, *keys: str) -> None:
    table.delete(pa.table({"k": keys}), serde_lab__partial_updates="false")


def seen(table: LabTable, optimised: bool = False) -> dict[str, tuple[Any, ...]]:
    """ts, a, b and x by key; a key stands but once."""
    rows = plan_snapshot(table.table, read_optimised=optimised).read().to_pylist()
    found = {row["k"]: (row["ts"], row["a"], row["b"], row["x"]) for row in rows}
    assert len(found) == len(rows)
    return found


def blocks_of(table: LabTable) -> list[LogBlock]:
    """All log blocks, by instant."""
    logs = sorted(table.path.rglob(".*.log.*"), key=lambda log: log.name.split("_")[1])
    found = [block for log in logs for block in parse_blocks(pa.py_buffer(log.read_bytes()))]
    assert all(isinstance(block, LogBlock) for block in found)
    return [block for block in found if isinstance(block, LogBlock)]


def columns_of(block: LogBlock) -> list[str]:
    names = avro_to_arrow(json.loads(block.header[Header.SCHEMA])).names
    return [name for name in names if name not in META_NAMES]


@pytest.mark.slow
@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("options", [{}, COMMIT, PARQUET], ids=["event", "commit", "parquet"])
def test_what_a_batch_leaves_out_stays(
    options: dict[str, str], strategy: str, tmp_path: Path
) -> None:
    by_event = options != COMMIT
    table = table_in(tmp_path, **options | {"serde_lab.strategy": strategy})
    first = table.upsert(
        batch(
            {"k": "k", "ts": 6, "a": "new"},
            {"k": "l", "ts": 4, "a": "late"},
            {"k": "m", "ts": 8, "a": "twice"},
            {"k": "m", "ts": 7, "a": "lower twin"},
            {"k": "n", "ts": 9, "a": None},  # given, and null
            {"k": "o", "ts": 1, "a": "unknown"},
        )
    )
    assert (first.rows_updated, first.rows_inserted) == (4, 1)
    table.upsert(batch({"b": [7], "ts": 7, "k": "k"}, {"b": [7], "ts": 7, "k": "o"}))
    expected: dict[str, tuple[Any, ...]] = {
        "k": (7, "new", [7], 2.5),
        "l": (5, "first", [5], 2.5) if by_event else (4, "late", [5], 2.5),
        "m": (8, "twice", [5], 2.5) if by_event else (7, "lower twin", [5], 2.5),
        "n": (9, None, [5], 2.5),
        "o": (7, "unknown", [7], None),
    }
    assert seen(table) == expected
    # a deleted key has nothing that could stay
    delete(table, "k", "o")
    table.upsert(batch({"k": "k", "ts": 7, "a": "back"}, {"k": "o", "ts": 9, "a": "back"}))
    expected |= {"k": (7, "back", None, None), "o": (9, "back", None, None)}
    assert seen(table) == expected
    table.compact()
    assert table.logs() == []
    assert seen(table, optimised=True) == expected


def test_a_block_has_the_columns_that_are_given_and_says_so(tmp_path: Path) -> None:
    table = table_in(tmp_path)
    table.upsert(batch({"k": "k", "ts": 6, "x": 1.0}))
    table.upsert(batch({"k": "new", "ts": 6, "x": 1.0}))
    table.upsert(batch(whole("k", 7, "all", 7)))
    delete(table, "l")
    found = [(block.type, block.header.get(Header.IS_PARTIAL)) for block in blocks_of(table)]
    assert found == [
        (BlockType.AVRO_DATA, "true"),
        # Apache Hudi cannot read a partial row that has no whole one before it
        (BlockType.AVRO_DATA, None),
        (BlockType.AVRO_DATA, None),
        (BlockType.DELETE, None),
    ]
    partial, *others = blocks_of(table)
    assert columns_of(partial) == ["k", "ts", "x"]
    assert all(columns_of(block) == SCHEMA.names for block in others)
    # the table has all its columns, whatever the last commit brought
    assert table.table.data_schema().names == SCHEMA.names  # type: ignore[union-attr]


def test_a_late_row_fills_what_the_log_has_not_said(tmp_path: Path) -> None:
    table = table_in(tmp_path)
    table.upsert(batch({"k": "k", "ts": 9, "a": "top"}))
    table.upsert(batch({"k": "k", "ts": 6, "a": "late", "x": 1.0}))
    assert seen(table)["k"] == (9, "top", [5], 1.0)
    table.compact()
    # what is stored is whole: nothing is left to fill
    table.upsert(batch({"k": "k", "ts": 6, "x": 3.0}))
    assert seen(table)["k"] == (9, "top", [5], 1.0)


def test_changes_are_whole_rows(tmp_path: Path) -> None:
    table = table_in(tmp_path)
    begin = table.table.timeline().completed()[-1].completion_time
    table.upsert(batch({"k": "k", "ts": 6, "a": "new"}, {"k": "l", "ts": 4, "a": "late"}))
    table.upsert(batch({"k": "m", "ts": 6, "x": 6.0}, {"k": "o", "ts": 6, "x": 6.0}))
    asked = {
        "hoodie.datasource.query.type": "incremental",
        "hoodie.datasource.read.begin.instanttime": begin,
    }
    rows = plan_read(table.table, parse_read_options(asked)).read().to_pylist()
    assert {row["k"]: (row["ts"], row["a"], row["b"], row["x"]) for row in rows} == {
        "k": (6, "new", [5], 2.5),
        "m": (6, "first", [5], 6.0),
        "o": (6, None, None, 6.0),
    }


def test_columns_are_added_and_made_wider_by_a_partial_batch(tmp_path: Path) -> None:
    table = table_in(tmp_path)
    table.upsert(
        batch(
            {"k": "k", "ts": 6, "b": [2**40], "more": "x"},
            b=pa.list_(pa.int64()),
            more=pa.string(),
        )
    )
    schema = table.table.data_schema()
    assert schema is not None
    assert schema.names == [*SCHEMA.names, "more"]
    assert seen(table)["k"] == (6, "first", [2**40], 2.5)
    rows = plan_snapshot(table.table, columns=["k", "more"]).read().to_pylist()
    assert {row["k"]: row["more"] for row in rows} == {"k": "x", "l": None, "m": None, "n": None}


def test_new_file_groups_and_partitions_get_whole_rows(tmp_path: Path) -> None:
    table = table_in(tmp_path, **PARTITIONED)
    table.upsert(batch({"k": "k", "ts": 6, "p": "elsewhere", "a": "x"}))
    assert blocks_of(table) == []
    rows = plan_snapshot(table.table).read().to_pylist()
    assert sorted((row["p"], row["a"], row["x"]) for row in rows if row["k"] == "k") == [
        ("elsewhere", "x", None),
        ("p", "first", 2.5),
    ]


def test_shards_know_their_keys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = pipeline_write.make_plan
    monkeypatch.setattr(pipeline_write, "make_plan", lambda *given: replace(made(*given), shards=3))
    table = table_in(tmp_path)
    table.upsert(batch(*({"k": key, "ts": 6, "a": "new"} for key in "klmnop")))
    old, new = (6, "new", [5], 2.5), (6, "new", None, None)
    assert seen(table) == {**dict.fromkeys("klmn", old), **dict.fromkeys("op", new)}


@pytest.mark.parametrize(
    ("options", "operation", "says"),
    [
        ({"hoodie.datasource.write.table.type": "COPY_ON_WRITE"}, "upsert", "which has no logs"),
        ({"hoodie.write.table.version": "6"}, "upsert", "of version 6, whose readers know none"),
        (
            {"hoodie.table.partial.update.mode": "IGNORE_DEFAULTS"},
            "upsert",
            "fills gaps already, by IGNORE_DEFAULTS",
        ),
        (
            {"hoodie.write.record.merge.custom.implementation.classes": "a.b:C"},
            "upsert",
            "has a merger of its own here",
        ),
        ({}, "delete", "the operation is delete, which updates nothing"),
    ],
)
def test_what_cannot_have_partial_rows_is_refused_by_name(
    options: dict[str, str], operation: str, says: str
) -> None:
    given = {
        **OPTIONS,
        "hoodie.table.name": "t",
        "hoodie.table.ordering.fields": "ts",
        "hoodie.datasource.write.operation": operation,
        **options,
    }
    with pytest.raises(OptionError, match=f"serde_lab.partial_updates is true, and .*{says}"):
        parse_options(given)


@pytest.mark.parametrize("blocks", ["avro", "parquet"])
def test_a_column_of_partial_rows_becomes_wider_only_after_compaction(
    blocks: str, tmp_path: Path
) -> None:
    options = {"hoodie.logfile.data.block.format": blocks, "serde_lab.partial_updates": "false"}
    columns = pa.schema([("k", pa.string()), ("ts", pa.int64()), ("n", pa.int32())])
    wide = columns.set(2, pa.field("n", pa.int64()))
    table = LabTable(tmp_path, {**OPTIONS, **options}, columns)

    def rows(schema: pa.Schema, **values: Any) -> pa.Table:
        return pa.Table.from_pylist([{"k": "k", **values}], schema=schema)

    table.upsert(rows(columns, ts=1, n=1))
    partly: dict[str, object] = {"serde_lab__partial_updates": "true"}
    table.upsert(rows(columns.remove(2), ts=2), **partly)
    # no partial row has the column yet
    other = columns.append(pa.field("m", pa.int32()))
    table.upsert(rows(other, ts=3, n=2, m=3))
    table.upsert(rows(other.remove(2), ts=4, m=4), **partly)
    with pytest.raises(SchemaError, match=r"'m' .* int32 .* become double.*compact the table"):
        table.upsert(rows(other.set(3, pa.field("m", pa.float64())), ts=5, n=5, m=5.0))
    table.upsert(rows(wide.append(other.field("m")), ts=5, n=5, m=5))
    assert table.compact() is not None
    table.upsert(rows(wide.append(pa.field("m", pa.float64())), ts=6, n=6, m=6.5))
    found = plan_snapshot(table.table).read().select(["k", "ts", "n", "m"]).to_pylist()
    assert found == [{"k": "k", "ts": 6, "n": 6, "m": 6.5}]


def test_an_ordering_column_becomes_wider_only_once_deletes_are_compacted(tmp_path: Path) -> None:
    """Deletes keep its values of the old type, which other readers do not convert."""
    options = {"serde_lab.partial_updates": "false"}
    columns = pa.schema([("k", pa.string()), ("ts", pa.int32()), ("n", pa.int32())])
    wide = columns.set(1, pa.field("ts", pa.int64()))
    table = LabTable(tmp_path, {**OPTIONS, **options}, columns)

    def rows(schema: pa.Schema, key: str, **values: Any) -> pa.Table:
        return pa.Table.from_pylist([{"k": key, **values}], schema=schema)

    table.upsert(rows(columns, "k", ts=1, n=1))
    table.upsert(rows(columns, "gone", ts=1, n=1))
    table.write("delete", rows(columns, "gone", ts=2, n=0), 1)
    with pytest.raises(SchemaError, match=r"'ts' .* int32 .* become int64.*hold deletes.*compact"):
        table.upsert(rows(wide, "k", ts=2, n=2))
    table.upsert(rows(columns.set(2, pa.field("n", pa.int64())), "k", ts=2, n=2))
    assert table.compact() is not None
    table.upsert(rows(wide, "k", ts=3, n=3))
    found = plan_snapshot(table.table).read().select(["k", "ts", "n"]).to_pylist()
    assert found == [{"k": "k", "ts": 3, "n": 3}]


def test_columns_that_no_row_can_do_without(tmp_path: Path) -> None:
    table = table_in(tmp_path)
    with pytest.raises(SchemaError, match="ordering column 'ts' is not in the data"):
        table.upsert(batch({"k": "k", "a": "x"}))
    with pytest.raises(SchemaError, match="column 'a' of the table is not in the data"):
        table.upsert(batch({"k": "k", "ts": 6, "p": "p"}), serde_lab__partial_updates="false")
    marked = pa.schema([*SCHEMA, ("_hoodie_is_deleted", pa.bool_())])
    other = LabTable(tmp_path / "marked", OPTIONS, marked)
    other.upsert(pa.Table.from_pylist([whole("k", 5, "first", 5)], schema=marked))
    before = other.table.timeline().instants()
    with pytest.raises(SchemaError, match="'_hoodie_is_deleted' of the table marks deletes"):
        other.upsert(batch({"k": "k", "ts": 6, "a": "x"}))
    assert other.table.timeline().instants() == before
    other.upsert(pa.Table.from_pylist([whole("k", 6, "next", 6)], schema=marked))
    assert seen(other) == {"k": (6, "next", [6], 3.0)}


def test_a_column_marks_deletes_only_once_partial_rows_are_compacted(tmp_path: Path) -> None:
    """Apache Hudi would look for it in partial rows at its position in whole ones, and fail."""
    marked = pa.schema([*SCHEMA, ("_hoodie_is_deleted", pa.bool_())])
    rows = pa.Table.from_pylist([{**whole("k", 7, "gone", 7), "_hoodie_is_deleted": True}], marked)
    table = table_in(tmp_path)
    table.upsert(batch(whole("k", 5, "first", 5)), serde_lab__partial_updates="false")
    table.upsert(batch({"k": "k", "ts": 6, "a": "x"}))
    with pytest.raises(
        SchemaError, match=r"'_hoodie_is_deleted' .* would mark deletes.*compact the"
    ):
        table.upsert(rows)
    assert table.compact() is not None
    table.upsert(rows, serde_lab__partial_updates="false")
    assert "k" not in seen(table)


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_partial_update_is_what_records_join_with(strategy: str, tmp_path: Path) -> None:
    table = table_in(tmp_path)
    given = batch({"k": "n", "ts": 6, "a": "x"}, {"k": "k", "ts": 7, "a": None})
    whole_schema, part_schema = (
        RecordSchema(pa.schema([f.with_nullable(True) for f in schema]), ("k",), (), ("ts",))
        for schema in (SCHEMA, given.schema)
    )
    rows = plan_snapshot(table.table).read().select(SCHEMA.names).sort_by("k")
    stored = rows.take(pc.index_in(given["k"], value_set=rows["k"].combine_chunks()))
    whole_serde, part_serde = (
        registered(strategy).bind(schema, SerdeOptions()) for schema in (whole_schema, part_schema)
    )
    older, newer = (
        KeyGenerator(schema).envelop(data.combine_chunks().to_batches()[0])
        for schema, data in ((whole_schema, stored), (part_schema, given))
    )
    joined = whole_serde.join(whole_serde.from_arrow(older), part_serde.from_arrow(newer))
    table.upsert(given, serde_lab__strategy=strategy)
    after = plan_snapshot(table.table).read().select(SCHEMA.names).sort_by("k")
    at = pc.index_in(given["k"], value_set=after["k"].combine_chunks())
    made = pa.Table.from_batches([joined.to_arrow()]).select(SCHEMA.names)
    assert made.to_pylist() == after.take(at).to_pylist()
