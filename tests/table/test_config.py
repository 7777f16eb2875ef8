"""What a table says of itself: read as written, inferred where it is silent, refused by name."""

from __future__ import annotations

from pathlib import Path

import pytest

from serde_lab.errors import OptionError, TableError
from serde_lab.table.config import PROPERTIES_PATH, TableConfig
from serde_lab.table.config_properties import from_properties
from serde_lab.table.properties import table_checksum
from serde_lab.table.storage.storage import Storage
from serde_lab.table.table import HoodieTable
from serde_lab.table.validation import validate_table

PLAIN = {
    "hoodie.table.name": "trips",
    "hoodie.table.type": "COPY_ON_WRITE",
    "hoodie.table.version": "9",
    "hoodie.timeline.layout.version": "2",
    "hoodie.table.recordkey.fields": "id",
}


def read(**changes: str | None) -> TableConfig:
    properties = {**PLAIN, **{k.replace("__", "."): v for k, v in changes.items()}}
    return from_properties({k: v for k, v in properties.items() if v is not None}, "f")


@pytest.mark.parametrize("version", [9, 6])
@pytest.mark.parametrize(
    "config",
    [
        TableConfig("trips", ("id",)),
        TableConfig("trips", ("id",), ordering_fields=("ts",), bucket_count=8),
        TableConfig(
            "trips",
            ("id", "line"),
            table_type="MERGE_ON_READ",
            partition_fields=("region", "day"),
            ordering_fields=("ts",),
            hive_style=True,
            url_encode=True,
            database="lake",
            bucket_count=16,
            bucket_fields=("line",),
        ),
        TableConfig("trips", ("id",), ordering_fields=("ts",), merge_mode="COMMIT_TIME_ORDERING"),
    ],
    ids=["least", "bucket", "all", "commit-time"],
)
def test_a_table_is_opened_as_it_was_made(
    storage: Storage, config: TableConfig, version: int
) -> None:
    from dataclasses import replace

    made = replace(config, version=version)
    HoodieTable.create(storage, made)
    found = HoodieTable.open(storage).config
    assert replace(found, extra={}) == made
    assert not found.metadata_partitions
    found.check_writable()


def test_a_table_is_made_once(storage: Storage) -> None:
    HoodieTable.create(storage, TableConfig("trips", ("id",)))
    with pytest.raises(TableError, match="there already is a table"):
        HoodieTable.create(storage, TableConfig("other", ("id",)))
    assert HoodieTable.open(storage).config.name == "trips"


def test_properties_whose_end_is_missing_are_refused(local: Storage) -> None:
    """The last lines say how many buckets there are, and by which field the newer row is found."""
    HoodieTable.create(
        local, TableConfig("trips", ("id",), ordering_fields=("ts",), bucket_count=16)
    )
    file = Path(local.describe(PROPERTIES_PATH))
    whole = file.read_bytes()
    lines = [end + 1 for end, byte in enumerate(whole[:-1]) if byte == ord("\n")]
    for end in (*range(0, len(whole), 31), *lines[3:], len(whole) - 1):
        file.write_bytes(whole[:end])
        with pytest.raises(TableError, match=r"hoodie\.properties"):
            HoodieTable.open(local)
        assert validate_table(local).rows_at_stake


def test_no_table_is_a_sentence(storage: Storage) -> None:
    with pytest.raises(TableError, match=r"is not a Hudi table; \.hoodie/hoodie\.properties"):
        HoodieTable.open(storage)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"hoodie.table.name": None}, "hoodie.table.name is missing"),
        ({"hoodie.table.type": None}, "hoodie.table.type is missing"),
        ({"hoodie.timeline.layout.version": None}, "layout.version is missing"),
        ({"hoodie.table.type": "COW"}, "'COW'; known are COPY_ON_WRITE and MERGE_ON_READ"),
        ({"hoodie.table.version": "10"}, "hoodie.table.version is 10; the lab reads 6, 8 and 9"),
        ({"hoodie.table.version": "5"}, "hoodie.table.version is 5"),
        ({"hoodie.timeline.layout.version": "1"}, "table version 9 has 2"),
        ({"hoodie.populate.meta.fields": "false"}, "hoodie.populate.meta.fields=false"),
        ({"hoodie.datasource.write.drop.partition.columns": "true"}, "drop.partition.columns=true"),
        ({"hoodie.datasource.write.hive_style_partitioning": "1"}, "it must be true or false"),
        ({"hoodie.table.cdc.enabled": "True"}, "it must be true or false"),
        ({"hoodie.table.base.file.format": "ORC"}, "is ORC; only PARQUET is supported"),
        ({"hoodie.table.log.file.format": "HFILE"}, "is HFILE; only HOODIE_LOG is supported"),
        ({"hoodie.table.format": "iceberg"}, "is iceberg; only native is supported"),
        ({"hoodie.record.merge.mode": "LATEST"}, "hoodie.record.merge.mode is LATEST; known are"),
        ({"hoodie.table.partial.update.mode": "KEEP"}, "partial.update.mode is KEEP; known are"),
        ({"hoodie.bootstrap.base.path": "/x"}, "hoodie.bootstrap.base.path=/x"),
        ({"hoodie.table.checksum": "1"}, f"give {table_checksum('trips')}"),
    ],
)
def test_a_kind_of_table_that_would_be_read_wrong_is_refused(
    changes: dict[str, str | None], message: str
) -> None:
    with pytest.raises(TableError, match=message):
        read(**{k.replace(".", "__"): v for k, v in changes.items()})


@pytest.mark.parametrize(
    ("changes", "mode"),
    [
        ({}, "COMMIT_TIME_ORDERING"),
        ({"hoodie.table.ordering.fields": "ts"}, "EVENT_TIME_ORDERING"),
        (
            {
                "hoodie.table.precombine.field": "ts",
                "hoodie.compaction.payload.class": (
                    "org.apache.hudi.common.model.OverwriteWithLatestAvroPayload"
                ),
            },
            "COMMIT_TIME_ORDERING",
        ),
        (
            {
                "hoodie.compaction.payload.class": (
                    "org.apache.hudi.common.model.DefaultHoodieRecordPayload"
                )
            },
            "EVENT_TIME_ORDERING",
        ),
        (
            {"hoodie.record.merge.strategy.id": "ce9acb64-bde0-424c-9b91-f6ebba25356d"},
            "COMMIT_TIME_ORDERING",
        ),
        ({"hoodie.compaction.payload.class": "my.Payload"}, "CUSTOM"),
        ({"hoodie.record.merge.strategy.id": "1897ef5f-18bc-4557-939c-9d6a8afd1519"}, "CUSTOM"),
    ],
)
def test_the_merge_mode_of_a_table_that_does_not_state_it(
    changes: dict[str, str], mode: str
) -> None:
    assert read(**{k.replace(".", "__"): v for k, v in changes.items()}).merge_mode == mode


BY_TIME = TableConfig("t", ("id",), partition_fields=("p",), key_generator="TIMESTAMP")


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (TableConfig("my table", ("id",)), "letters, digits and _"),
        (TableConfig("t", (), bucket_count=8), "but the table has no record key"),
        (TableConfig("t", ("id",), version=8), "version 8 cannot be created"),
        (
            TableConfig("t", ("id",), merge_mode="CUSTOM"),
            "CUSTOM, but neither a strategy nor a payload class",
        ),
        (TableConfig("t", ("id",), delete_field="op"), "without hoodie.payload.delete.marker"),
        (TableConfig("t", ("id",), partial_update_mode="FILL_UNAVAILABLE"), "need each other"),
        (TableConfig("t", ("id",), merge_mode="EVENT_TIME_ORDERING"), "needs an ordering field"),
        (TableConfig("t", ("id",), bucket_count=0), "is 0, expected at least 1"),
        (TableConfig("t", ("id",), key_generator="HASHED"), "'HASHED' is not supported"),
        (BY_TIME, "timestamp.type is ''"),
        (TableConfig("t", ("id", "n"), key_generator="SIMPLE"), "SIMPLE does not fit 2 key"),
        (
            TableConfig("t", ("id",), partition_fields=("n", "m", "n"), key_generator="COMPLEX"),
            "field names n twice, and Apache Hudi cannot read",
        ),
    ],
)
def test_an_impossible_table_is_refused(local: Storage, config: TableConfig, message: str) -> None:
    with pytest.raises(OptionError, match=message):
        HoodieTable.create(local, config)
    assert local.list_files() == []


def test_a_table_with_a_metadata_table_is_not_written(local: Storage) -> None:
    table = HoodieTable.create(local, TableConfig("trips", ("id",)))
    text = local.get(".hoodie/hoodie.properties").decode()
    extra = "hoodie.table.metadata.partitions=files\nhoodie.table.metadata.partitions.inflight=\n"
    local.replace(".hoodie/hoodie.properties", (text + extra).encode())
    local.put_new(".hoodie/.hoodie.properties.crc", b"stale")
    local.put_new(".hoodie/metadata/.hoodie/hoodie.properties", b"x")
    found = HoodieTable.open(local)
    with pytest.raises(TableError, match=r"has a metadata table \(files\)"):
        found.config.check_writable()
    mended = found.drop_metadata_table()
    mended.config.check_writable()
    assert [f.path for f in local.list_files()] == [".hoodie/hoodie.properties"]
    assert mended.config == HoodieTable(local, table.config).open(local).config
