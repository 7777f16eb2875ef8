"""What a scenario file becomes, and what is said of one that cannot be."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from serde_lab.errors import ScenarioError
from serde_lab.records.partition_time import TimeRule
from serde_lab.scenario.identity import asked
from serde_lab.scenario.loading import (
    find_scenario,
    list_scenarios,
    load_scenario,
    parse_scenario,
    scenario_folder,
)
from serde_lab.scenario.model import ParquetData, TpchData

MINIMAL = """
title = "t"
question = "q"
[data]
source = "tpch"
table = "orders"
scale_factor = 0.01
[[commit]]
rows = 10
[[arm]]
name = "a"
strategy = "pickle"
"""

RAW: Mapping[str, Any] = {
    "name": "s",
    "title": "t",
    "question": "q",
    "data": {"source": "tpch", "table": "lineitem", "scale_factor": 1, "partition": "l_shipmode"},
    "setup": [{"operation": "bulk_insert"}],
    "commit": [{"updates": 0.5, "duplicates": 0.1}, {"updates": 0.5}],
    "arm": [
        {"name": "a", "strategy": "pickle", "options": {"rows_per_frame": 1}},
        {"name": "b", "strategy": "avro", "options": {"rows_per_frame": 1}},
        {"name": "c", "control": "exchange_only"},
    ],
}
OWN = {"source": "parquet", "path": "x", "key": "k"}
NO_CONTROL = [("arm/2", {"name": "c", "strategy": "arrow"})]
ORDERS = {"source": "tpch", "table": "orders", "scale_factor": 1, "refresh": True}
REFRESH = [("commit", [{}])]
DROP = {"operation": "delete_partition", "partitions": ["AIR"]}


def changed(*changes: tuple[str, Any]) -> dict[str, Any]:
    """RAW with values set by key; `...` takes the key away."""
    raw = copy.deepcopy(dict(RAW))
    for key, value in changes:
        *steps, last = key.split("/")
        at: Any = raw
        for step in steps:
            at = at[int(step)] if isinstance(at, list) else at.setdefault(step, {})
        if value is ...:
            del at[last]
        elif isinstance(at, list):
            at[int(last)] = value
        else:
            at[last] = value
    return raw


def said(*changes: tuple[str, Any]) -> str:
    with pytest.raises(ScenarioError) as caught:
        parse_scenario(changed(*changes), "my.toml")
    return str(caught.value)


def test_defaults(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text(MINIMAL)
    scenario = load_scenario(str(file))
    assert scenario.name == "mine"
    assert scenario.reference == "a"
    assert isinstance(scenario.data, TpchData)
    assert scenario.data.record_key == ("o_orderkey",)
    assert scenario.ordering == ("event_ts",)
    assert scenario.data.own_ordering == ()
    assert scenario.commits[0].operation == "upsert"
    assert scenario.table.level == 1
    assert scenario.measure.rounds == 5
    assert scenario.arms[0].kind == "strategy"


def test_everything_is_frozen() -> None:
    scenario = parse_scenario(RAW)
    with pytest.raises(ValueError, match="frozen"):
        scenario.measure.rounds = 3
    with pytest.raises(ValueError, match="frozen"):
        scenario.arms[0].options.execution = "row"


def test_a_dump_is_the_same_scenario() -> None:
    scenario = parse_scenario(changed(("arm/0/options/layout", "dict")))
    dump = scenario.to_json()
    assert parse_scenario(dump) == scenario
    assert dump["commit"][0]["updates"] == 0.5
    assert dump["arm"][0]["options"]["layout"] == "dict"
    assert dump["arm"][2]["frames_of"] == "a"
    assert dump["table"]["buckets"] == 8


def test_kinds_follow_from_keys() -> None:
    scenario = parse_scenario(RAW)
    assert [arm.kind for arm in scenario.arms] == ["strategy", "strategy", "control"]
    assert [arm.subject for arm in scenario.arms] == ["pickle", "avro", "exchange_only"]
    assert scenario.arms[0].options.given == {"rows_per_frame": 1}


def test_one_column_needs_no_brackets() -> None:
    scenario = parse_scenario(changed(("data", {**OWN, "ordering": "o", "partition": ["p", "q"]})))
    assert isinstance(scenario.data, ParquetData)
    assert scenario.data.record_key == ("k",)
    assert scenario.ordering == ("o",)
    assert scenario.data.partition == ("p", "q")


def test_folders_named_by_time_are_hudis_own_options() -> None:
    own = {**OWN, "ordering": "o", "partition": "p"}
    stated = {"timestamp.type": "SCALAR", "output.dateformat": "yyyy/MM"}
    scenario = parse_scenario(changed(("data", own), ("table", {"time_folders": stated})))
    assert scenario.table.time_properties == {
        "hoodie.keygen.timebased.timestamp.type": "SCALAR",
        "hoodie.keygen.timebased.output.dateformat": "yyyy/MM",
    }
    assert TimeRule.from_properties(scenario.table.time_properties)
    assert asked(scenario) != asked(parse_scenario(changed(("data", own))))
    for wrong, words in (
        ({**stated, "timestamp.kind": "x"}, "unknown option 'timestamp.kind'; known are"),
        ({**stated, "timestamp.type": "x"}, "hoodie.keygen.timebased.timestamp.type is 'x'"),
    ):
        assert words in said(("data", own), ("table", {"time_folders": wrong}))


def test_paths_are_relative_to_the_file_and_overrides_to_the_caller(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    data = '[data]\nsource = "parquet"\npath = "in/*.parquet"\nkey = "k"\nordering = "o"\n'
    commit = '[[commit]]\npath = "/abs/x.parquet"\n[[arm]]\nname = "a"\nstrategy = "pickle"\n'
    file.write_text('title = "t"\nquestion = "q"\n' + data + commit)
    scenario = load_scenario(str(file))
    assert isinstance(scenario.data, ParquetData)
    assert scenario.data.path == str(tmp_path / "in/*.parquet")
    assert scenario.commits[0].path == "/abs/x.parquet"
    other = load_scenario(str(file), ["data.path=here/x.parquet"])
    assert isinstance(other.data, ParquetData)
    assert other.data.path == "here/x.parquet"


def test_rows_of_refreshes() -> None:
    scenario = parse_scenario(changed(("data", ORDERS), *REFRESH))
    assert scenario.rows_of(1_500_000) == (1_500_000, 3_000)


def test_rows_of_a_batch() -> None:
    scenario = parse_scenario(changed(("commit/0/rows", 7), ("commit/1/share", 1.5)))
    assert scenario.rows_of(101) == (101, 7, 152)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        # shape
        ([("table", {"bukets": 8})], "table.bukets: is an unknown key; known keys are type, codec, "
         "codec_level, log_blocks, merge_mode, partial_update, unavailable_value, delete_field, "
         "delete_marker, merger_classes, version, index, buckets, bucket_fields, hive_style, url_encode, "
         "time_folders; "
         "did you mean 'buckets'?"),
        ([("table", {"partition": "x"})], "; 'partition' belongs in [data]"),
        ([("data/tables", "x")], "data.tables: is an unknown key; known keys are source, table, sc"),
        ([("rounds", 3)], "rounds: is an unknown key; known keys are name, title"),
        ([("rounds", 3)], "'rounds' belongs in [measure]"),
        ([("measure/topology", {})], "'topology' belongs outside of any table or in [arm]"),
        ([("arm/1/option", {})], "arm.b.option: is an unknown key; known keys are name, strategy, control"),
        ([("title", ...)], "title: is missing"),
        ([("data", ...)], "data: is missing"),
        ([("data/source", ...)], 'data: has no `source`, expected source = "tpch", "parquet" or "shapes"'),
        ([("data/source", "csv")], "data: has source = 'csv', expected \"tpch\", \"parquet\" or \"shapes\""),
        ([("data/table", "linitem")], "data.table: found 'linitem', expected one of region, nation, "
         "supplier, customer, part, partsupp, orders, lineitem; did you mean 'lineitem'?"),
        ([("data/scale_factor", 0)], "data.scale_factor: found 0, expected a number above 0"),
        ([("data/scale_factor", "1")], "data.scale_factor: found '1', expected a number"),
        ([("data/key", [1])], "data.key.1: found 1, expected a text in quotes"),
        ([("measure", {"rounds": 1.5})], "measure.rounds: found 1.5, expected a whole number"),
        ([("measure", {"rounds": True})], "measure.rounds: found True, expected a whole number"),
        ([("measure", {"rounds": 0})], "measure.rounds: found 0, expected a number from 1"),
        ([("measure", 3)], "measure: found 3, expected a table"),
        ([("table", {"hive_style": "yes"})], "table.hive_style: found 'yes', expected true or false"),
        ([("table", {"time_folders": {"output.dateformat": 1}})], "table.time_folders"),
        ([("table", {"time_folders": {"output": "y"}}), ("data/partition", [])],
         "table.time_folders: needs one key column or more and one partition column, found 2 and 0"),
        ([("table", {"version": 7})], "table.version: found 7, expected one of 9, 6"),
        ([("table", {"codec": "zst"})], "table.codec: found 'zst', expected one of zstd, gzip, "
         "snappy, lz4, uncompressed; did you mean 'zstd'?"),
        ([("commit", [])], "commit: is empty, expected at least one"),
        ([("commit", {"rows": 1})], "expected an array of tables, [[commit]]"),
        ([("commit/1/updates", 1.5)], "commit.2.updates: found 1.5, expected a number up to 1"),
        ([("commit/1/duplicates", 1)], "commit.2.duplicates: found 1, expected a number below 1"),
        ([("commit/1/operation", "upsrt")], "did you mean 'upsert'?"),
        ([("arm/0/name", "1")], "arm.1.name: found '1', expected letters, digits, - and _, not"),
        ([("arm/0/name", "a.b")], "arm.a.b.name: found 'a.b', expected letters"),
        ([("arm/0/options/rows_per_frame", -1)], "arm.a.options.rows_per_frame: found -1, expected"),
        ([("arm/0/options/execution", "loop")], "arm.a.options.execution: found 'loop', expected one "
         "of row, batch"),
        ([("data/seed", float("inf"))], "data.seed: found inf, expected a finite number"),
        ([("data", {"source": "parquet", "path": "x"})], "data.key: is missing; name the columns "
         "of the record key, or set keyless = true"),
        ([("data", {**OWN, "path": ""})], "data.path: is empty"),
        ([("data", {**OWN, "key": []})], "data.key: is empty, expected at least one"),
        ([("gate", {"limit": [{"armm": "a"}]})], "gate.limit.1.armm: is an unknown key; known keys are arm"),
        # columns
        ([("data/partition", "l_shipmod")], "data.partition: table lineitem has no column "
         "'l_shipmod'; its columns are l_orderkey"),
        ([("data/partition", "l_shipmod")], "did you mean 'l_shipmode'?"),
        ([("data/key", ["l_tax", "l_tax"])], "data.key: names 'l_tax' 2 times"),
        ([("data/ordering", "l_orderkey")], "data.ordering: 'l_orderkey' is also a key column"),
        ([("data/ordering", "l_shipmode")], "data.ordering: 'l_shipmode' is also a partition column"),
        # batches
        ([("commit/0/rows", 1), ("commit/0/share", 1)], "commit.1: has rows and share, expected at most one"),
        ([("commit/0/path", "x")], 'commit.1.path: needs [data] source = "parquet"'),
        ([("data", OWN), ("commit/1", {"path": "x"})], "commit.2.path: needs data.ordering"),
        ([("data", {**OWN, "ordering": "o"}), ("commit/0", {"path": "x"})], "commit.2: is derived "
         "from [data], but commit.1 before it has its own `path`"),
        ([("data", {**OWN, "ordering": "o"}), ("commit/1", {"path": "x", "late": 0.1})],
         "commit.2.late: cannot be set: the rows come from `path`"),
        ([("setup/0/updates", 0.1)], "setup.1.updates: cannot be set: a bulk_insert has no such rows"),
        ([("setup", [])], "commit.1.updates: updates = 0.5 needs stored keys, but this is the first"),
        ([("commit/1/late", 0.6)], "commit.2: late + deletes is 0.6 of the rows, but only 0.5"),
        ([("commit/1", {"operation": "bulk_insert"})], "commit.2.operation: a bulk_insert makes no"),
        ([("commit/1/deletes", 0.6)], "commit.2: late + deletes is 0.6 of the rows, but only 0.5"),
        ([("commit/0/deletes", 0.1), ("commit/0/operation", "insert_overwrite")], "commit.1.deletes: "
         "cannot be set: of the derived batches, only those of upserts have marked rows"),
        # refreshes
        ([("data/refresh", True)], "commit.1.updates: cannot be set: data.refresh decides the rows"),
        ([("data", {**ORDERS, "table": "part"}), *REFRESH], "data.refresh: needs table orders, "),
        ([("data", {**ORDERS, "ordering": "o_orderdate"}), *REFRESH], "data.refresh: needs the ordering"),
        ([("data", {**ORDERS, "key": "o_custkey"}), *REFRESH], "data.refresh: needs the table's primary"),
        ([("data", ORDERS), *REFRESH, ("commit", [{"operation": "delete"}])], "commit.1.operation: is "
         "delete, but with data.refresh this is a refresh: expected upsert"),
        ([("data", ORDERS), *REFRESH, ("setup", [])], "data.refresh: needs a batch after the first"),
        # what is taken away
        ([*NO_CONTROL, ("commit/1", {"operation": "delete_partition"})], "commit.2.partitions: is "
         "missing; it lists the partition paths to delete"),
        ([*NO_CONTROL, ("commit/1", {"operation": "delete_partition", "partitions": "a", "rows": 1})],
         "commit.2.rows: cannot be set: a delete_partition has no rows"),
        ([*NO_CONTROL, ("data/partition", ...), ("commit/1", DROP)], "commit.2.operation: needs "
         "data.partition, which is empty"),
        ([*NO_CONTROL, ("setup/0", DROP)], "setup.1.operation: needs a table with rows, but this is"),
        ([*NO_CONTROL, ("commit", [DROP])], "commit: has no batch with rows"),
        ([*NO_CONTROL, ("commit/1", {"operation": "delete_partition", "partitions": ["a,b"]})],
         "commit.2.partitions: 'a,b' has a comma"),
        ([("commit/1", DROP)], "commit.2.operation: arm 'c' (exchange_only) cannot do "
         "delete_partition yet"),
        ([("commit/1/partitions", ["a"])], "commit.2.partitions: is for delete_partition, not for "
         "upsert"),
        # rows with their places
        ([*NO_CONTROL, ("setup/0/operation", "upsert_prepped")], "setup.1.operation: an upsert_prepped "
         "belongs in [[commit]]"),
        ([*NO_CONTROL, ("commit/1/operation", "upsert_prepped")], "commit.2.updates: is 0.5, expected 1"),
        ([*NO_CONTROL, ("commit/0", DROP), ("commit/1", {"operation": "upsert_prepped", "updates": 1})],
         "commit.2.operation: an upsert_prepped needs stored keys, but commit.1 before it removed some"),
        ([*NO_CONTROL, ("data", {**OWN, "ordering": "o"}),
          ("commit/1", {"operation": "upsert_prepped", "path": "x"})],
         "commit.2.path: cannot be set: the rows of an upsert_prepped are always derived"),
        # rows without keys
        ([("data", {**OWN, "keyless": True})], "data.keyless: is true, but data.key names k"),
        ([("data/keyless", True)], "commit.1.operation: an upsert needs record keys, but data.keyless"),
        ([("data/keyless", True), ("data/ordering", "l_tax")], "data.ordering: has no effect: rows"),
        ([("data/keyless", True), ("table", {"buckets": 2})], "table.buckets: has no effect: rows"),
        ([("data/keyless", True), ("table", {"merge_mode": "COMMIT_TIME_ORDERING"})],
         "table.merge_mode: has no effect: rows without keys are never merged"),
        ([("data/keyless", True), ("arm/0/merging", {"partial_update": "IGNORE_DEFAULTS"})],
         "arm.a.merging.partial_update: has no effect"),
        ([("data/keyless", True), ("arm/2/control", "spark_native")], "arm.c: spark_native sends rows "
         "to the bucket of their key"),
        ([("data/keyless", True), ("arm/2", {"name": "c", "peer": "hudi_avro"})], "arm.c: peers "
         "cannot write rows without keys yet"),
        ([("data/keyless", True), ("data/key_range", "third")], "data.key_range: needs record keys"),
        ([("data/keyless", True), ("commit/0", {"operation": "insert", "updates": 0.5})],
         "commit.1.updates: cannot be set: an insert has no such rows; only upsert"),
        # table
        ([("data/partition", ...), ("table", {"hive_style": True})], "table.hive_style: needs "
         "data.partition"),
        ([("table", {"bucket_fields": "l_tax"})], "table.bucket_fields: 'l_tax' is not in the key, "
         "which is l_orderkey, l_linenumber"),
        ([("table", {"codec": "snappy", "codec_level": 1})], "codec snappy has no levels"),
        ([("table", {"codec": "gzip", "codec_level": 10})], "found 10, expected 1 to 9 for gzip"),
        # arms
        ([("arm/1/name", "a")], "arm.a: 2 arms have this name"),
        ([("reference", "aa")], "reference: there is no arm 'aa'; arms are a, b, c"),
        ([("arm/0/strategy", ...)], "arm.a: has none, expected exactly one of strategy"),
        ([("arm/0/control", "parquet_floor")], "arm.a: has strategy and control, expected exactly one"),
        ([("arm/2/options", {"execution": "row"})], "arm.c.options: a control takes no options"),
        ([("arm/2/frames_of", "c")], "arm.c.frames_of: there is no arm 'c'; arms are a, b"),
        ([("arm/0/frames_of", "b")], "arm.a.frames_of: is only for control = 'exchange_only'"),
        ([("arm/2", {"name": "c", "peer": "hudi_avro", "options": {"execution": "row"}})],
         "arm.c.options: a peer takes no options"),
        ([("arm/2", {"name": "c", "peer": "hudi_avro"}), ("table", {"codec": "gzip", "codec_level": 1})],
         "table.codec_level: found 1, but Apache Hudi writes gzip at level 6 only"),
        ([("table", {"log_blocks": "parquet"})], "table.log_blocks: is only for MERGE_ON_READ"),
        # who reads the source, and record classes
        ([("arm/2/source_reader", "spark")],
         "arm.c.source_reader: is only for strategies, not for a control"),
        ([("arm/0/source_reader", "spark"), ("measure/exchange", "none")],
         "arm.a.source_reader: needs Spark, but measure.exchange is 'none'"),
        ([("arm/0/source_reader", "files")], "arm.a.source_reader: "),
        # the form in which frames cross Spark's shuffle
        ([("arm/2/shuffle", "rdd")], "arm.c.shuffle: is only for strategies, not for a control"),
        ([("arm/0/shuffle", "rdd"), ("measure/exchange", "inprocess")],
         "arm.a.shuffle: needs Spark, but measure.exchange is 'inprocess'"),
        ([("arm/0/shuffle", "rdd"), ("arm/0/source_reader", "spark")],
         "arm.a.shuffle: is 'rdd', but Spark reads the source"),
        ([("arm/0/shuffle", "rdd"), ("arm/0/topology", {"name": "step3"})],
         "arm.a.shuffle: is 'rdd', but topology 'step3' sorts frames"),
        ([("arm/0/shuffle", "rdd"), ("arm/2", {"name": "c", "control": "exchange_only", "frames_of": "a"})],
         "arm.c.frames_of: is 'a', whose shuffle is 'rdd'"),
        ([("arm/1/changes", "shuffle")], "arm.b.changes: is 'shuffle', but the difference from arm 'a' is"),
        ([("arm/0/shuffle", "bytes")], "arm.a.shuffle: "),
        ([("arm/2", {"name": "c", "peer": "hudi_spark_record"})], "arm.c: hudi_spark_record writes no "
         "table: it needs measure.exchange 'none', which is 'spark'"),
        ([("arm/2", {"name": "c", "peer": "hudi_spark_record"}), ("measure/exchange", "none"),
          ("codec", {"batch_rows": [100, 1000], "types": [], "widths": []})],
         "codec.batch_rows: has 100, but hudi_spark_record needs batches of at least 1,000"),
        ([("arm/2", {"name": "c", "peer": "hudi_spark_record"}), ("measure/exchange", "none"),
          ("codec", {"batch_rows": [1000], "types": []})],
         "arm.c: hudi_spark_record is measured on the scenario's own records only"),
        ([("arm/1/changes", "source")], "arm.b.changes: is 'source', but the difference from arm 'a' is"),
        ([("arm/0/options/execution", "batch")], "arm.a.options.execution: pickle has no execution "
         "'batch', only 'row'"),
        ([("arm/1/strategy", "arrow"), ("arm/1/options/execution", "row")],
         "arm.b.options.execution: arrow has no execution 'row', only 'batch'"),
        ([("arm/1/changes", "framing")], "arm.b.changes: is 'framing', but the difference from arm "
         "'a' is representation (strategy)"),
        ([("arm/1/changes", "representation"), ("arm/1/options/rows_per_frame", 9)],
         "is representation (strategy); framing (rows_per_frame)"),
        ([("arm/1/changes", "execution"), ("arm/1/strategy", "pickle")], "'a' is none"),
        ([("arm/0/changes", "framing")], "the strategy arm before it, but there is no such arm"),
        ([("arm/2/changes", "framing")], "is only for strategies, not for a control"),
        ([("arm/2", {"name": "c", "control": "spark_native"}), ("measure", {"exchange": "inprocess"})],
         "arm.c: spark_native needs Spark, but measure.exchange is 'inprocess'"),
        ([("measure", {"exchange": "inprocess"})],
         "arm.c: exchange_only needs Spark, but measure.exchange is 'inprocess'"),
        ([("arm/2", {"name": "c", "peer": "hudi_spark"}), ("measure", {"exchange": "inprocess"})],
         "arm.c: hudi_spark needs Spark"),
        # gate
        ([("gate", {"control": "x"})], "gate.control: there is no arm 'x'"),
        ([("gate", {"limit": [{"arm": "x", "relative": 1}]})], "gate.limit.1.arm: there is no arm"),
        ([("gate", {"limit": [{"arm": "a"}]})], "gate.limit.1: sets neither relative nor absolute"),
        ([("gate", {"metrics": ["second"]})], "gate.metrics: 'second' is no metric of serde_lab; known are"),
        (
            [("gate", {"limit": [{"metric": "frame", "relative": 1}]})],
            "gate.limit.1.metric: 'frame' is no metric of serde_lab; known are",
        ),
        ([("gate", {"limit": [{"phase": "map.encodee", "relative": 1}]})],
         "gate.limit.1.phase: is 'map.encodee', which is no phase; expected one such as 'map.encode'"),
        ([("gate", {"limit": [{"phase": "encode", "relative": 1}]})], "is 'encode', which is no phase"),
        ([("gate", {"limit": [{"phase": "map.encode", "metric": "seconds", "relative": 1}]})],
         "gate.limit.1.metric: is 'seconds'; a phase's limit is one of phase_cpu_s or phase_wall_s"),
        ([("gate", {"limit": [{"metric": "phase_cpu_s", "relative": 1}]})], "is 'phase_cpu_s'; a phase's"),
        ([("gate", {"limit": [{"metric": "frame_bytes", "relative": 1}]})],
         "gate.limit.1.metric: is 'frame_bytes', which has no limit: any change counts"),
        ([("gate", {"limit": [{"metric": "table_bytes", "relative": 1}]})],
         "is 'table_bytes', whose limit is gate.bytes"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_said(changes: list[tuple[str, Any]], expected: str) -> None:
    sentence = said(*changes)
    assert sentence.startswith("my.toml: ")
    assert expected in sentence


def test_an_inprocess_scenario_with_strategies_is_fine() -> None:
    parse_scenario(changed(("measure", {"exchange": "inprocess"}), *NO_CONTROL))


def test_one_problem_is_one_line_and_several_are_listed() -> None:
    assert "\n" not in said(("title", ...))
    several = said(("title", ...), ("measure", {"rounds": 0}))
    assert several.splitlines() == [
        "my.toml: 2 problems:",
        "  title: is missing",
        "  measure.rounds: found 0, expected a number from 1",
    ]


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"title = ", "mine.toml: is not valid TOML: "),
        (b"\xff", "mine.toml: is not text in UTF-8, at byte 0"),
        (
            MINIMAL.replace('"q"', "2024-01-01").encode(),
            "question: found 2024-01-01, a date, which",
        ),
    ],
)
def test_files_that_cannot_be_read(tmp_path: Path, content: bytes, expected: str) -> None:
    (tmp_path / "mine.toml").write_bytes(content)
    with pytest.raises(ScenarioError, match=r"mine\.toml") as caught:
        load_scenario(str(tmp_path / "mine.toml"))
    assert expected in str(caught.value)


def test_lookup(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mine.toml").write_text(MINIMAL)
    monkeypatch.chdir(tmp_path)
    assert find_scenario("mine.toml") == Path("mine.toml")
    assert find_scenario("./mine.toml") == Path("mine.toml")
    assert find_scenario("mine", tmp_path) == tmp_path / "mine.toml"
    assert find_scenario("smoke") == scenario_folder() / "smoke.toml"
    for what, folder, expected in (
        ("mine", None, r"there is no scenario 'mine' in .*; known are .*ladder, .*smoke"),
        ("smok", None, r"did you mean 'smoke'\?"),
        ("", None, "there is no scenario ''"),
        ("none.toml", None, "none.toml: no such file"),
        ("./x", None, "x: no such file"),
        (f"{tmp_path}/", None, "is a folder, expected a scenario file"),
        ("mine", tmp_path / "no", "no: is not a folder"),
    ):
        with pytest.raises(ScenarioError, match=expected):
            find_scenario(what, folder)


def test_a_bundled_folder_wins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from serde_lab.scenario import loading

    monkeypatch.setattr(loading, "_PACKAGE", tmp_path / "serde_lab")
    assert scenario_folder() == tmp_path / "scenarios"
    (tmp_path / "serde_lab" / "_scenarios").mkdir(parents=True)
    assert scenario_folder() == tmp_path / "serde_lab" / "_scenarios"


def test_a_broken_file_does_not_hide_the_others(tmp_path: Path) -> None:
    (tmp_path / "good.toml").write_text(MINIMAL)
    (tmp_path / "bad.toml").write_text("title = 3")
    bad, good = list_scenarios(tmp_path)
    assert (bad.name, good.name, good.title) == ("bad", "good", "t")
    assert bad.problem
    assert not good.problem
