"""The `hoodie.*` options of a scenario, as both writers and the checks read them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from serde_lab.lab.cells.peer_arms import options_of_peer
from serde_lab.lab.plan import Write, options_of, table_config
from serde_lab.pipeline.options.write import known_options
from serde_lab.records.operation import Operation
from serde_lab.records.schema import RecordSchema
from serde_lab.scenario.hudi_options import table_options, write_options
from serde_lab.scenario.loading import parse_scenario
from serde_lab.verify.table_rules import TableRules
from tests.lab.small_scenario import content, scenario, source

DAYS = {
    "timestamp.type": "SCALAR",
    "timestamp.scalar.time.unit": "DAYS",
    "output.dateformat": "yyyy/MM",
}
COMMIT_TIME = {"merge_mode": "COMMIT_TIME_ORDERING", "delete_field": "d", "delete_marker": "D"}


def test_the_lab_and_apache_hudi_are_handed_the_same_options(tmp_path: Path) -> None:
    arms = ["internal_row", *({"name": n, "peer": n} for n in ("hudi_avro", "hudi_spark_tuned"))]
    table = {"type": "MERGE_ON_READ", "log_blocks": "parquet"}
    found = scenario(source(tmp_path), arms, exchange="spark", table=table)
    shared = write_options(found, None, Operation.UPSERT)
    assert shared["hoodie.bucket.index.num.buckets"] == "2"
    assert shared["hoodie.logfile.data.block.format"] == "parquet"
    ours = options_of(found, found.arm("internal_row"), Write(Operation.UPSERT))
    assert ours.items() >= shared.items()
    assert not shared.keys() - known_options().keys()
    for peer in ("hudi_avro", "hudi_spark_tuned"):
        assert options_of_peer(found, found.arm(peer), 1).items() >= shared.items()


def test_a_table_with_partitions_has_more_tasks_than_buckets(tmp_path: Path) -> None:
    for data, tasks in (({}, "2"), ({"partition": "flag"}, "8")):
        found = scenario(source(tmp_path), data=data)
        options = write_options(found, None, Operation.UPSERT)
        assert options["hoodie.upsert.shuffle.parallelism"] == tasks


def test_tasks_can_be_stated_for_timed_writes_and_for_a_peer(tmp_path: Path) -> None:
    peer = {"name": "hudi_spark", "peer": "hudi_spark", "topology": {"tasks": 3}}
    raw = content(source(tmp_path), ["arrow", peer], exchange="spark")
    found = parse_scenario({**raw, "topology": {"tasks": 4}})
    for name, timed in (("arrow", "4"), ("hudi_spark", "3")):
        for set_up, tasks in ((False, timed), (True, "2")):
            options = write_options(found, found.arm(name), Operation.UPSERT, set_up=set_up)
            assert options["hoodie.upsert.shuffle.parallelism"] == tasks


@pytest.mark.parametrize(
    ("data", "table"),
    [
        ({}, {}),
        ({}, {"type": "MERGE_ON_READ", "buckets": 3, "bucket_fields": "id", "version": 6}),
        ({"partition": "flag"}, {"hive_style": True, "url_encode": True}),
        ({"partition": ["flag", "name"]}, COMMIT_TIME),
        ({"partition": "flag"}, {"time_folders": DAYS}),
        ({"key": ["id", "name"], "partition": "flag"}, {"time_folders": DAYS}),
        ({}, {"partial_update": "FILL_UNAVAILABLE", "unavailable_value": " ?"}),
        ({}, {"partial_update": "IGNORE_DEFAULTS"}),
    ],
)
def test_writer_and_checks_read_the_same_table(
    tmp_path: Path, data: dict[str, Any], table: dict[str, Any]
) -> None:
    found = scenario(source(tmp_path), data=data, table=table)
    columns = pa.schema([("id", pa.int64()), ("event_ts", pa.int64())])
    schema = RecordSchema(columns, ("id",), found.data.partition, ("event_ts",))
    rules = TableRules.of_options(table_options(found), schema)
    config = table_config(found)
    assert (rules.merge_mode, rules.table_type) == (config.merge_mode, config.table_type)
    assert (rules.hive_style, rules.url_encode) == (config.hive_style, config.url_encode)
    assert (rules.buckets, rules.bucket_fields) == (config.bucket_count, config.bucket_fields)
    assert rules.key_is_global == config.index_is_global
    assert (rules.time, rules.kinds) == (config.extra, config.partition_kinds)
    assert (rules.partial_update, rules.unavailable) == (
        config.partial_update_mode,
        config.unavailable_value,
    )
    assert (rules.delete_field, rules.delete_marker) == (config.delete_field, config.delete_marker)


@pytest.mark.parametrize("index", ["SIMPLE", "GLOBAL_BLOOM", "INMEMORY", "FLINK_STATE"])
def test_keys_are_global_for_both_or_for_neither(tmp_path: Path, index: str) -> None:
    found = scenario(
        source(tmp_path),
        [{"name": "a", "strategy": "arrow", "topology": {"name": "state"}}],
        data={"partition": "flag"},
        table={"index": index, "buckets": 8},
    )
    arm = found.arm("a")
    schema = RecordSchema(pa.schema([("id", pa.int64())]), ("id",), ("flag",))
    rules = TableRules.of_options(table_options(found, arm), schema)
    assert rules.key_is_global == table_config(found, arm).index_is_global
    assert (rules.buckets, table_config(found, arm).bucket_count) == (0, None)


def test_rows_without_keys_have_no_index_and_no_merging(tmp_path: Path) -> None:
    whole = scenario(source(tmp_path))
    data = whole.data.model_copy(update={"keyless": True, "key": ()})
    options = table_options(whole.model_copy(update={"data": data}))
    assert options["hoodie.datasource.write.recordkey.field"] == ""
    assert not {"hoodie.index.type", "hoodie.write.record.merge.mode"} & options.keys()
