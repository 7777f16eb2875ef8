"""Tables of Apache Hudi that the lab reads right and must not write: refused by name, and left alone."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from serde_lab.errors import LabError, TableError
from serde_lab.verify.readers import HudiRs
from tests.peers.hudi_options import HudiTable, HudiWrite
from tests.peers.lab_writer import LabWriter
from tests.peers.peer_tables import ALL_READERS, FIRST, SECOND, PeerTable

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.hudi]

MOR = {"table_type": "MERGE_ON_READ"}
CDC = {"hoodie.table.cdc.enabled": "true"}
CUSTOM = {
    "hoodie.datasource.write.keygenerator.class": "org.apache.hudi.keygen.CustomKeyGenerator",
    "hoodie.datasource.write.partitionpath.field": "p:SIMPLE",
}

# a file id is random, and one in forty begins with eight digits, as that of a bucket does
OTHER_INDEX = "under another index than the bucket index|is not one of 8 buckets"

KINDS: dict[str, tuple[dict[str, Any], dict[str, str], dict[str, str], str]] = {
    "another index": (
        {"index": "SIMPLE"},
        {},
        {"index": "BUCKET", "buckets": "8"},
        OTHER_INDEX,
    ),
    "another index, by log": (
        {"index": "BLOOM", **MOR},
        {},
        {"index": "BUCKET", "buckets": "8"},
        OTHER_INDEX,
    ),
    "more buckets": ({"buckets": 8}, {}, {"buckets": "2"}, "is not one of 2 buckets"),
    "fewer buckets": ({"buckets": 2}, {}, {"buckets": "8"}, "of 8 buckets belongs to another"),
    "buckets of other fields": (
        {"buckets": 8, "bucket_fields": ("n",)},
        {},
        {"fields": "k"},
        "of 8 buckets belongs to another",
    ),
    "changes of each row": (
        {},
        CDC,
        {},
        "hoodie.table.cdc.enabled=true, which the lab cannot write",
    ),
    "partition fields whose kinds are not named": (
        {"partition": ("p",)},
        CUSTOM,
        {},
        "states partition kinds",
    ),
}


@pytest.mark.parametrize("name", KINDS)
def test_refused_by_name_and_left_as_it_was(
    name: str, hudi_session: SparkSession, tmp_path: Path
) -> None:
    kind, extra, stated, says = KINDS[name]
    table = PeerTable(hudi_session, tmp_path, HudiTable("t", ("k", "n"), ("o",), **kind))
    table.by_hudi(FIRST, HudiWrite(extra=extra))
    # of the key generator CUSTOM hudi-rs takes "p:SIMPLE" for a column (readers.toml)
    judges = ("apache-hudi", "serde_lab") if extra == CUSTOM else ALL_READERS
    if extra == CUSTOM:
        with pytest.raises(TableError, match=r"hudi-rs cannot read .*is not present in the table"):
            HudiRs(table.path).facts()
    assert table.problems(judges) == []
    options = {}
    if "buckets" in stated:
        options["hoodie.bucket.index.num.buckets"] = stated["buckets"]
    if "index" in stated:
        options["hoodie.index.type"] = stated["index"]
    if "fields" in stated:
        options["hoodie.bucket.index.hash.field"] = stated["fields"]
    with pytest.raises(LabError, match=says):
        LabWriter(table).step(SECOND, **options)
    del table.commits[-1]  # nothing was written
    assert table.problems(judges) == []
