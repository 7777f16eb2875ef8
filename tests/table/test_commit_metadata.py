"""Commit metadata: the writer schema of Hudi 1.x, both forms, and errors for damaged ones."""

from __future__ import annotations

import io
import json

import fastavro
import pytest

from serde_lab.errors import TableError
from serde_lab.table.timeline.commit_metadata import (
    COMMIT_SCHEMA,
    REPLACE_COMMIT_SCHEMA,
    CommitMetadata,
    WriteStat,
)

STAT = WriteStat(
    fileId="f-0",
    path="p/f-0_0-1-0_1.parquet",
    numWrites=5,
    numUpdateWrites=2,
    numInserts=3,
    fileSizeInBytes=100,
    partitionPath="p",
    prevBaseFile="x.parquet",
)
LOG = WriteStat("f-0", "p/.f-0_1.log.1_0-1-0", partitionPath="p", logVersion=1, logFiles=("a",))


@pytest.mark.parametrize("layout", [1, 2])
@pytest.mark.parametrize(
    "metadata",
    [
        CommitMetadata("UPSERT", (LOG, STAT), {"schema": "{}"}),
        CommitMetadata("COMPACT", (STAT,), compacted=True),
        CommitMetadata("INSERT_OVERWRITE", (STAT,), replaced_file_ids={"p": ("g-0", "h-0")}),
        CommitMetadata("INSERT"),
    ],
    ids=["log", "compaction", "replace", "empty"],
)
def test_what_is_written_is_read_again(metadata: CommitMetadata, layout: int) -> None:
    assert CommitMetadata.from_bytes(metadata.to_bytes(layout), "f") == metadata


def test_the_schema_is_hudi_s() -> None:
    fields = [field["name"] for field in COMMIT_SCHEMA["fields"]]
    assert fields == [
        "partitionToWriteStats",
        "compacted",
        "extraMetadata",
        "version",
        "operationType",
    ]
    stats = COMMIT_SCHEMA["fields"][0]["type"][1]["values"]["items"]
    assert len(stats["fields"]) == 31
    assert all(field["type"][0] == "null" for field in stats["fields"])
    assert [f["name"] for f in REPLACE_COMMIT_SCHEMA["fields"]] == [
        *fields,
        "partitionToReplaceFileIds",
    ]


def test_the_container_is_plain_and_says_its_schema() -> None:
    content = CommitMetadata("UPSERT", (STAT,)).to_bytes(2)
    reader = fastavro.reader(io.BytesIO(content))
    assert list(reader.metadata) == ["avro.schema"]
    assert content == CommitMetadata("UPSERT", (STAT,)).to_bytes(2)
    assert json.loads(reader.metadata["avro.schema"]) == COMMIT_SCHEMA
    (record,) = reader
    (stat,) = record["partitionToWriteStats"]["p"]
    assert stat["prevCommit"] == "null"
    assert stat["logFiles"] is None
    assert record["version"] is None


def test_an_empty_file_is_no_commit_without_files() -> None:
    """As a power cut may leave it: what the write replaced would be visible again."""
    with pytest.raises(TableError, match=r"^the-file: is empty, and every write states there"):
        CommitMetadata.from_bytes(b"", "the-file")


@pytest.mark.parametrize(
    "content",
    [
        CommitMetadata("UPSERT", (STAT,)).to_bytes(2)[:-9],
        b"Obj\x01",
        b"not avro at all",
        b"{broken",
    ],
)
def test_damage_is_a_sentence(content: bytes) -> None:
    with pytest.raises(TableError, match=r"^the-file: (is not a readable|is not readable|holds 0)"):
        CommitMetadata.from_bytes(content, "the-file")
