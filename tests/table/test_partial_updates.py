"""Log blocks of partial updates, whose rows lack columns, as Spark SQL's MERGE INTO writes them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa
import pytest

from serde_lab.table.config import TableConfig
from serde_lab.table.files import log_file
from serde_lab.table.files.log_block import Header
from serde_lab.table.services.compaction import (
    compact_slice,
    complete_compaction,
    schedule_compaction,
)
from serde_lab.table.storage.storage import Storage
from tests.table.made_up_tables import (
    LogAppender,
    PlainWriter,
    Row,
    avro_schema,
    our_rows,
    without_meta,
)

WHOLE = pa.schema([("id", pa.string()), ("ts", pa.int64()), ("a", pa.string()), ("b", pa.string())])
EVENT = "EVENT_TIME_ORDERING"
COMMIT = "COMMIT_TIME_ORDERING"


def row(key: str, ts: int, a: str | None, b: str | None) -> Row:
    return {"id": key, "ts": ts, "a": a, "b": b}


@pytest.fixture(params=[EVENT, COMMIT])
def writer(request: pytest.FixtureRequest, local: Storage) -> PlainWriter:
    config = TableConfig(
        "t", ("id",), table_type="MERGE_ON_READ", ordering_fields=("ts",), merge_mode=request.param
    )
    writer = PlainWriter(local, config, WHOLE)
    writer.upsert([row(key, 5, "a0", "b0") for key in "klmn"])
    return writer


def partly(writer: PlainWriter, monkeypatch: pytest.MonkeyPatch, *rows: Row) -> None:
    """A deltacommit of the columns that `rows` have, marked as partial."""
    framed = log_file.frame_block

    def marked(type: Any, header: Mapping[int, str], content: Any) -> bytes:
        return framed(type, {**header, Header.IS_PARTIAL: "true"}, content)

    with monkeypatch.context() as patch:
        patch.setattr(log_file, "frame_block", marked)
        log = LogAppender(writer)
        writer.schema = pa.schema([field for field in WHOLE if field.name in rows[0]])
        log.rows(*rows)
        stats = log.stats()
        writer.schema = WHOLE
        writer.complete(log.instant, stats)


def test_columns_that_a_block_leaves_out_are_those_of_the_row_before(
    writer: PlainWriter, monkeypatch: pytest.MonkeyPatch
) -> None:
    by_event = writer.config.merge_mode == EVENT
    partly(
        writer,
        monkeypatch,
        {"id": "k", "ts": 6, "a": "a1"},
        {"id": "l", "ts": 4, "a": "late"},
        {"id": "m", "ts": 7, "a": None},  # given, and null
        {"id": "new", "ts": 1, "a": "a1"},
    )
    partly(writer, monkeypatch, {"id": "k", "ts": 6, "b": "b2"}, {"id": "m", "ts": 6, "b": "b2"})
    LogAppender(writer).rows(row("n", 9, "whole", None)).commit()
    expected = [
        row("k", 6, "a1", "b2"),
        row("l", 5, "a0", "b0") if by_event else row("l", 4, "late", "b0"),
        # what comes late still fills what the row before it left out
        row("m", 7, None, "b2") if by_event else row("m", 6, None, "b2"),
        row("n", 9, "whole", None),
        row("new", 1, "a1", None),
    ]
    assert without_meta(our_rows(writer.table)) == expected
    plan = schedule_compaction(writer.table)
    assert plan is not None
    stats = [compact_slice(plan, task) for task in range(len(plan.reads.slices))]
    complete_compaction(writer.table, plan, stats, avro_schema(WHOLE, "t"))
    assert without_meta(our_rows(writer.table, read_optimised=True)) == expected


def test_a_delete_ends_what_partial_rows_are_made_of(
    writer: PlainWriter, monkeypatch: pytest.MonkeyPatch
) -> None:
    partly(writer, monkeypatch, {"id": "k", "ts": 6, "a": "a1"}, {"id": "l", "ts": 6, "a": "a1"})
    LogAppender(writer).deletes("k", "m", ordering=pa.array([9, 9])).commit()
    partly(writer, monkeypatch, {"id": "k", "ts": 9, "b": "b2"}, {"id": "m", "ts": 8, "b": "b2"})
    found = {r["id"]: r for r in without_meta(our_rows(writer.table))}
    by_event = writer.config.merge_mode == EVENT
    assert found["l"] == row("l", 6, "a1", "b0")
    assert ("m" in found) is not by_event
    assert found["k"]["b"] == "b2"
