"""The options of a write by Apache Hudi, and what it says of a failure; no Spark session is needed."""

from __future__ import annotations

import pytest

from serde_lab.peers.apache_hudi import root_cause
from tests.peers.hudi_options import HudiTable, HudiWrite, write_options


def test_options_of_a_table_and_a_write() -> None:
    table = HudiTable("t", ("a", "b"), ("ts",), ("p",), "MERGE_ON_READ", hive_style=True)
    options = write_options(
        table, HudiWrite(record_type="SPARK", compact_after=2, retain_commits=1)
    )
    assert options["hoodie.datasource.write.keygenerator.class"].endswith(".ComplexKeyGenerator")
    assert options["hoodie.bucket.index.hash.field"] == "a,b"
    assert options["hoodie.table.ordering.fields"] == "ts"
    assert options["hoodie.compact.inline.max.delta.commits"] == "2"
    assert options["hoodie.clean.commits.retained"] == "1"
    assert options["hoodie.archive.automatic"] == "false"
    assert options["hoodie.write.record.merge.custom.implementation.classes"].endswith(
        ".DefaultSparkRecordMerger"
    )


@pytest.mark.parametrize(
    ("keys", "partition", "kind"),
    [
        (("a",), (), "NonpartitionedKeyGenerator"),
        (("a", "b"), (), "NonpartitionedKeyGenerator"),
        (("a",), ("p",), "SimpleKeyGenerator"),
        (("a",), ("p", "q"), "ComplexKeyGenerator"),
        (("a", "b"), ("p",), "ComplexKeyGenerator"),
    ],
)
def test_key_generators(keys: tuple[str, ...], partition: tuple[str, ...], kind: str) -> None:
    assert HudiTable("t", keys, (), partition).key_generator.endswith(f".{kind}")


def test_the_innermost_cause_is_what_is_said() -> None:
    trace = "An error occurred.\n: A: one\n\tat x\nCaused by: B: two\n\tat y\nCaused by: C: three\n"
    assert root_cause(trace) == "C: three"
    assert root_cause("only this\nand more") == "only this"
    assert root_cause("") == "no cause given"
