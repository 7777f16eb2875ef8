"""Tables written by the base-file calls, as hudi-rs reads them: every row, column and meta column."""

from __future__ import annotations

import pytest

from serde_lab.table.config import TableConfig
from serde_lab.table.storage.data_files import Writing
from serde_lab.table.storage.storage import Storage
from tests.table.made_up_tables import (
    EVERY_TYPE,
    SMALL,
    PlainWriter,
    every_type_row,
    hudi_rs_rows,
    without_meta,
)


def config(version: int, **changes: object) -> TableConfig:
    return TableConfig("trips", ("id",), version=version, ordering_fields=("ts",), **changes)  # type: ignore[arg-type]


def row(key: str, ts: int) -> dict[str, object]:
    return {"id": key, "ts": ts, "value": f"{key}@{ts}"}


@pytest.mark.parametrize("version", [9, 6])
@pytest.mark.parametrize(
    "layout",
    [
        {},
        {"partition_fields": ("region",)},
        {"partition_fields": ("region",), "hive_style": True},
        {"partition_fields": ("region", "small"), "hive_style": True},
    ],
    ids=["flat", "folders", "hive", "two-fields"],
)
def test_every_type_and_several_commits_come_back(
    local: Storage, version: int, layout: dict[str, object]
) -> None:
    def made(number: int, ts: int) -> dict[str, object]:
        made = every_type_row(number, ts, f"r{number % 3}")
        if "small" in layout.get("partition_fields", ()):  # type: ignore[operator]
            made["small"] = number % 2
        return made

    writer = PlainWriter(local, config(version, **layout), EVERY_TYPE)
    expected = {}
    for ts, numbers in enumerate([range(20), range(10, 30), range(5)], start=1):
        rows = [made(number, ts) for number in numbers]
        writer.upsert(rows)
        expected |= {r["id"]: r for r in rows}
    assert without_meta(hudi_rs_rows(local)) == without_meta(expected.values())


def test_meta_columns_tell_who_wrote_a_row(storage: Storage) -> None:
    writer = PlainWriter(storage, config(9), SMALL)
    first = writer.upsert([row("a", 1), row("b", 1), row("c", 1)])
    second = writer.upsert([row("b", 2), row("d", 2)], deletes=["c"])
    name = writer.table.view().latest_base_files()[0].path
    found = hudi_rs_rows(storage)
    assert without_meta(found) == [row("a", 1), row("b", 2), row("d", 2)]
    assert [r["_hoodie_commit_time"] for r in found] == [first.time, second.time, second.time]
    assert [r["_hoodie_commit_seqno"] for r in found] == [
        f"{first.time}_0_0",
        f"{second.time}_0_0",
        f"{second.time}_0_1",
    ]
    assert {r["_hoodie_file_name"] for r in found} == {name}
    assert {r["_hoodie_partition_path"] for r in found} == {""}


def test_readers_go_back_in_time(storage: Storage) -> None:
    writer = PlainWriter(storage, config(9), SMALL)
    first = writer.upsert([row("a", 1), row("b", 1)])
    second = writer.upsert([row("b", 2)])
    assert first.completion_time
    assert without_meta(hudi_rs_rows(storage, as_of_timestamp=first.completion_time)) == [
        row("a", 1),
        row("b", 1),
    ]
    slices = writer.table.view(as_of=first.completion_time).latest_file_slices()
    assert [s.base_instant for s in slices] == [first.time]
    slices = writer.table.view().latest_file_slices()
    assert [s.base_instant for s in slices] == [second.time]


@pytest.mark.parametrize("codec", ["zstd", "gzip", "snappy", "none", "lz4"])
def test_every_codec_is_read(local: Storage, codec: str) -> None:
    from serde_lab.table.files.base_file import BaseFileWriter
    from serde_lab.table.files.parquet import BaseFileFormat

    writer = PlainWriter(local, config(9), SMALL)
    instant = writer.begin()
    import pyarrow as pa

    base = BaseFileWriter(
        local,
        Writing(instant.time, "0-1-0"),
        data_schema=SMALL,
        partition_path="",
        file_id="00000000-0000-4000-8000-000000000000-0",
        format=BaseFileFormat(codec, None),
    )
    batch = pa.RecordBatch.from_pylist([row("a", 1)], schema=SMALL)
    base.append(batch.column(0), batch)
    writer.complete(instant, [base.close()])
    assert without_meta(hudi_rs_rows(local)) == [row("a", 1)]
