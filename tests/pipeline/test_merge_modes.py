"""Delete markers and partial updates through the pipeline: small random histories against the oracle."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from serde_lab.errors import DataError, OptionError, SchemaError
from serde_lab.merging.merger import (
    COMMIT_TIME_STRATEGY,
    EVENT_TIME_STRATEGY,
    PAYLOAD_STRATEGY,
    Merged,
    MergedTable,
    RecordMerger,
)
from serde_lab.pipeline import write as pipeline_write
from serde_lab.pipeline.commit.table_services import compact
from serde_lab.pipeline.exchange.in_process import InProcessExchange
from serde_lab.pipeline.options.write import parse_options
from serde_lab.pipeline.plan import WritePlan
from serde_lab.pipeline.read import parse_read_options, plan_read
from serde_lab.table.files.log_block import BlockType
from serde_lab.table.read_plan import plan_snapshot
from serde_lab.verify.table_checks import check_contents
from tests.pipeline.lab_table import (
    FIRST,
    MOR,
    OPTIONS,
    PARTITIONED,
    SECOND,
    STRATEGIES,
    LabTable,
    table_of,
)

# hudi-rs does not read what is ordered by two fields (readers.toml)
pytestmark = pytest.mark.filterwarnings("ignore:fields ts, i.:serde_lab.errors.PortabilityWarning")

COMMIT = {"hoodie.write.record.merge.mode": "COMMIT_TIME_ORDERING"}
IGNORE = {"hoodie.table.partial.update.mode": "IGNORE_DEFAULTS"}
FILL = {
    "hoodie.table.partial.update.mode": "FILL_UNAVAILABLE",
    "hoodie.write.partial.update.unavailable.value": "?",
}
OWN_MARKER = {"hoodie.payload.delete.field": "op", "hoodie.payload.delete.marker": "D"}
TWO_FIELDS = {"hoodie.datasource.write.precombine.field": "ts,i"}
INT_FIELD = {"hoodie.datasource.write.precombine.field": "i"}

MODES: dict[str, dict[str, str]] = {
    "event": {},
    "commit": COMMIT,
    "own marker": OWN_MARKER,
    "int ordering": INT_FIELD,
    "two fields": TWO_FIELDS,
    "ignore defaults": IGNORE,
    "ignore defaults, commit": IGNORE | COMMIT,
    "fill unavailable": FILL,
    "fill unavailable, commit": FILL | COMMIT,
}
KINDS = {"cow": {}, "mor": MOR}
SCHEMA = pa.schema(
    [
        ("k", pa.string()),
        ("n", pa.int64()),
        ("ts", pa.int64()),
        ("i", pa.int32()),
        ("p", pa.string()),
        ("op", pa.string()),
        ("text", pa.string()),
        ("bytes", pa.binary()),
        ("x", pa.float64()),
        ("list", pa.list_(pa.int32())),
        ("s", pa.struct([("a", pa.int32()), ("b", pa.string())])),
        ("_hoodie_is_deleted", pa.bool_()),
    ]
)


def rows(draw: np.random.Generator, count: int, keys: int, marks: bool = True) -> pa.Table:
    """Rows of few keys and few ordering values, with gaps of either kind."""

    def maybe(values: list[Any], gap: float = 0.4) -> list[Any]:
        return [None if draw.random() < gap else value for value in values]

    numbers = draw.integers(0, keys, count)
    words = [str(w) for w in draw.choice(["?", "x", "y", "z"], count)]
    table = {
        "k": ["a"] * count,
        "n": numbers.tolist(),
        "ts": draw.integers(0, 5, count).tolist(),
        "i": draw.integers(-1, 3, count).tolist(),
        "p": [f"p {n % 3}" for n in numbers],
        "op": [str(w) for w in draw.choice(["I", "U", "D"] if marks else ["I"], count)],
        "text": maybe(words),
        "bytes": maybe([w.encode() for w in reversed(words)]),
        "x": maybe(draw.random(count).tolist()),
        "list": maybe([[int(n), -1] for n in numbers]),
        "s": maybe([{"a": int(n), "b": None} for n in numbers]),
        "_hoodie_is_deleted": maybe([bool(marks and draw.random() < 0.3) for _ in range(count)]),
    }
    return pa.table({f.name: pa.array(table[f.name], f.type) for f in SCHEMA})


def history(table: LabTable, seed: int, rust: bool = True, **options: object) -> None:
    """Upserts with duplicates, late rows and marked rows, deletes by key, a compaction."""
    draw = np.random.default_rng(seed)
    for number in range(4):
        if number == 3:
            table.delete(rows(draw, 4, 30).select(["k", "n", "p"]), **options)
        table.upsert(rows(draw, 60, 30), **options)
        if number == 2:
            judge(table, rust)
            table.compact()
    judge(table, rust)


def judge(table: LabTable, rust: bool) -> None:
    if rust:
        table.check()
        return
    found = check_contents(
        plan_snapshot(table.table).read(), table.expected(), table.rules, "us"
    ).results[0]
    assert found.passed, found.detail


ON_BOTH_KINDS = ("event", "own marker", "ignore defaults", "fill unavailable")
HISTORIES = [(mode, "mor") for mode in MODES] + [(mode, "cow") for mode in ON_BOTH_KINDS]


@pytest.mark.slow
@pytest.mark.parametrize(("mode", "kind"), HISTORIES)
def test_a_history_of_marked_rows_and_gaps_is_what_the_oracle_says(
    mode: str, kind: str, tmp_path: Path
) -> None:
    options = MODES[mode] | KINDS[kind]
    # hudi-rs refuses two ordering fields, and knows neither the marker of FILL_UNAVAILABLE nor the int 0
    rust = kind == "cow"
    seed = HISTORIES.index((mode, kind))
    more = PARTITIONED if seed % 2 else {}
    strategy = STRATEGIES[seed % len(STRATEGIES)]
    history(LabTable(tmp_path, options | more, SCHEMA), seed, rust, serde_lab__strategy=strategy)


@pytest.mark.parametrize("mode", ["event", "fill unavailable"])
def test_all_strategies_write_the_same(mode: str, tmp_path: Path) -> None:
    written = []
    for strategy in STRATEGIES:
        table = LabTable(tmp_path / strategy, MODES[mode], SCHEMA)
        draw = np.random.default_rng(3)
        for _ in range(2):
            table.upsert(rows(draw, 60, 30), serde_lab__strategy=strategy)
        written.append(plan_snapshot(table.table, columns=SCHEMA.names).read())
    assert all(found.equals(written[0]) for found in written)


@pytest.fixture
def in_three_shards(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every write of the test runs in three shards."""
    made = pipeline_write.make_plan
    monkeypatch.setattr(pipeline_write, "make_plan", lambda *given: replace(made(*given), shards=3))


@pytest.mark.slow
@pytest.mark.usefixtures("in_three_shards")
@pytest.mark.parametrize("mode", ["event", "ignore defaults"])
def test_shards_merge_as_a_whole_does(mode: str, tmp_path: Path) -> None:
    history(LabTable(tmp_path, MODES[mode], SCHEMA), 7)


@pytest.mark.usefixtures("in_three_shards")
def test_a_bucket_that_was_emptied_is_filled_in_shards(tmp_path: Path) -> None:
    options = MODES["ignore defaults"] | {"hoodie.bucket.index.num.buckets": "1"}
    table = LabTable(tmp_path, options, SCHEMA)
    given = rows(np.random.default_rng(1), 20, 5, marks=False)
    table.upsert(given)
    before = plan_snapshot(table.table, columns=SCHEMA.names).read()
    table.write("delete", given.select(["k", "n", "p"]))
    assert plan_snapshot(table.table).read().num_rows == 0
    table.upsert(given)
    assert plan_snapshot(table.table, columns=SCHEMA.names).read().num_rows == before.num_rows


@pytest.mark.parametrize(
    ("kind", "value", "marker"),
    [
        (pa.timestamp("us", "UTC"), datetime(1970, 1, 1, tzinfo=UTC), "0"),
        (pa.int64(), 7, "7"),
        (pa.float64(), 1e10, "1.0E10"),
        (pa.bool_(), True, "true"),
    ],
)
def test_a_marker_of_deletes_of_any_type_with_text(
    kind: pa.DataType, value: object, marker: str, tmp_path: Path
) -> None:
    options = {"hoodie.payload.delete.field": "gone", "hoodie.payload.delete.marker": marker}
    table = LabTable(tmp_path, MOR | options)
    for ts, gone in ((1, [None, None]), (2, [value, None])):
        rows = table_of([("a", 1, ts, 1.0), ("a", 2, ts, 1.0)])
        table.upsert(rows.append_column("gone", pa.array(gone, kind)))
    assert plan_snapshot(table.table).read()["n"].to_pylist() == [2]
    assert compact(table.table) is not None
    assert plan_snapshot(table.table).read()["n"].to_pylist() == [2]


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        (pa.list_(pa.string()), "no text"),
        # tests/peers/test_marked_deletes.py
        (pa.date32(), "another text in Apache Hudi"),
        (pa.decimal128(5, 2), "another text in Apache Hudi"),
        (pa.binary(), "another text in Apache Hudi"),
    ],
)
def test_a_marker_of_deletes_without_a_common_text_is_refused(
    kind: pa.DataType, said: str, tmp_path: Path
) -> None:
    options = {"hoodie.payload.delete.field": "gone", "hoodie.payload.delete.marker": "D"}
    rows = table_of([("a", 1, 1, 1.0)]).append_column("gone", pa.array([None], kind))
    with pytest.raises(SchemaError, match=f"'gone' of type .*, whose values have {said}"):
        LabTable(tmp_path, MOR | options).upsert(rows)


def test_marked_rows_go_to_delete_blocks_with_their_ordering_values(tmp_path: Path) -> None:
    from tests.pipeline.test_merge_on_read import blocks_of

    table = LabTable(tmp_path, MOR | {"hoodie.bucket.index.num.buckets": "1"}, SCHEMA)
    draw = np.random.default_rng(1)
    table.upsert(rows(draw, 20, 5, marks=False))
    marked = rows(draw, 1, 5).set_column(11, SCHEMA.field(11), pa.array([True]))
    table.upsert(marked)
    assert [block.type for block in blocks_of(table)] == [BlockType.DELETE]


def test_a_bulk_insert_of_marked_rows_is_refused(tmp_path: Path) -> None:
    marked = rows(np.random.default_rng(1), 1, 5).set_column(11, SCHEMA.field(11), pa.array([True]))
    table = LabTable(tmp_path, {}, SCHEMA)
    with pytest.raises(DataError, match=r"1 rows are marked as deletes.*by upsert"):
        table.write("bulk_insert", marked)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"hoodie.payload.delete.field": "op"}, "without hoodie.payload.delete.marker"),
        (OWN_MARKER | {"hoodie.payload.delete.field": "gone"}, "'gone', which is not a column"),
        (IGNORE | {"hoodie.write.table.version": "6"}, "need table version 9"),
    ],
)
def test_what_cannot_be_is_refused_by_name(
    options: dict[str, str], says: str, tmp_path: Path
) -> None:
    with pytest.raises((OptionError, SchemaError), match=says):
        LabTable(tmp_path, options, SCHEMA).upsert(rows(np.random.default_rng(1), 5, 5))


def test_a_later_write_may_not_change_how_the_table_merges(tmp_path: Path) -> None:
    draw = np.random.default_rng(1)
    table = LabTable(tmp_path, OWN_MARKER, SCHEMA)
    table.upsert(rows(draw, 5, 5))
    for key, value in {**FILL, **COMMIT, "hoodie.payload.delete.marker": "X"}.items():
        with pytest.raises(OptionError, match="but the existing table has"):
            table.upsert(rows(draw, 5, 5), **{key.replace(".", "__"): value})


class Sums(RecordMerger):
    """Adds up `x`."""

    strategy_id = "11111111-2222-3333-4444-555555555555"

    def merge(self, older: pa.RecordBatch, newer: pa.RecordBatch, table: MergedTable) -> Merged:
        total = pc.add(older.column("x"), newer.column("x"))
        at = newer.schema.get_field_index("x")
        return Merged(newer.set_column(at, newer.schema.field(at), total))


class SumsOfPickle(Sums):
    """The same, for one strategy only."""

    record_types = ("PICKLE",)


MERGERS = "hoodie.write.record.merge.custom.implementation.classes"
SUMS = f"{__name__}:Sums"
OF_PICKLE = f"{__name__}:SumsOfPickle"
CUSTOM = {
    "hoodie.write.record.merge.mode": "CUSTOM",
    "hoodie.write.record.merge.strategy.id": Sums.strategy_id,
    MERGERS: SUMS,
}


def snapshot(table: LabTable, mergers: str = SUMS) -> dict[int, float]:
    plan = plan_read(table.table, parse_read_options({MERGERS: mergers} if mergers else {}))
    found = plan.read()
    return dict(zip(found["n"].to_pylist(), found["x"].to_pylist(), strict=True))


@pytest.mark.parametrize("kind", KINDS)
def test_a_merger_of_the_tables_own(kind: str, tmp_path: Path) -> None:
    table = LabTable(tmp_path, CUSTOM | KINDS[kind])
    table.upsert([("a", n, 5, 1.0) for n in range(4)])
    # twice in one batch, and whatever the ordering value
    table.upsert([("a", 0, 1, 2.0), ("a", 0, 9, 4.0), ("a", 1, 5, 8.0), ("a", 9, 5, 16.0)])
    assert snapshot(table) == {0: 7.0, 1: 9.0, 2: 1.0, 3: 1.0, 9: 16.0}
    # another implementation of the same strategy, for this write only
    table.delete([("a", 2, 0, None)])
    table.upsert([("a", 1, 1, 1.0)], **{MERGERS.replace(".", "__"): f"{OF_PICKLE},{SUMS}"})
    expected = {0: 7.0, 1: 10.0, 3: 1.0, 9: 16.0}
    assert snapshot(table) == expected
    if kind == "mor":
        assert compact(table.table.merging_by([SUMS])) is not None
        assert not table.logs()
        assert snapshot(table, "") == expected


def test_an_inline_compaction_merges_by_the_tables_own_merger(tmp_path: Path) -> None:
    inline = {
        "hoodie__compact__inline": "true",
        "hoodie__compact__inline__max__delta__commits": "1",
    }
    table = LabTable(tmp_path, CUSTOM | MOR)
    table.upsert([("a", 0, 5, 1.0)])
    table.upsert([("a", 0, 1, 2.0)], **inline)
    assert not table.logs()
    assert snapshot(table, "") == {0: 3.0}
    # what could write but not compact is refused before it writes
    before = table.table.timeline().instants()
    mergers = MERGERS.replace(".", "__")
    says = f"strategy {Sums.strategy_id} and records of type ARROW"
    with pytest.raises(OptionError, match=f"{says}: {OF_PICKLE} offers"):
        table.upsert(
            [("a", 0, 1, 2.0)], serde_lab__strategy="pickle", **{mergers: OF_PICKLE}, **inline
        )
    with pytest.raises(OptionError, match=f"{says}: none is given"):
        table.delete([("a", 0, 0, None)], **{mergers: ""}, **inline)
    assert table.table.timeline().instants() == before


def test_how_a_table_is_merged_is_written_as_hudi_expects(tmp_path: Path) -> None:
    table = LabTable(tmp_path, CUSTOM)
    table.upsert(FIRST)
    text = (table.path / ".hoodie/hoodie.properties").read_text()
    assert "hoodie.record.merge.mode=CUSTOM" in text
    assert f"hoodie.record.merge.strategy.id={Sums.strategy_id}" in text
    assert SUMS not in text


def test_a_write_by_another_strategy_is_refused(tmp_path: Path) -> None:
    table = LabTable(tmp_path)
    table.upsert(FIRST)
    other = {"hoodie__write__record__merge__strategy__id": COMMIT_TIME_STRATEGY}
    with pytest.raises(
        OptionError, match=rf"is {COMMIT_TIME_STRATEGY}, but the existing table has"
    ):
        table.upsert(SECOND, **other)
    table.upsert(SECOND, hoodie__write__record__merge__strategy__id=EVENT_TIME_STRATEGY)
    table.check()


def test_no_merger_that_fits_leaves_nothing_behind(tmp_path: Path) -> None:
    table = LabTable(tmp_path, CUSTOM | {MERGERS: OF_PICKLE})
    with pytest.raises(
        OptionError, match=r"of type ARROW: .*SumsOfPickle offers 1111.* for PICKLE"
    ):
        table.upsert(FIRST)
    assert not (table.path / ".hoodie").exists()
    table.upsert(FIRST, serde_lab__strategy="pickle")


PAYLOADS = {
    "OverwriteWithLatestAvroPayload": COMMIT,
    "DefaultHoodieRecordPayload": {},
    "EventTimeAvroPayload": {},
    "PartialUpdateAvroPayload": IGNORE,
    "OverwriteNonDefaultsWithLatestAvroPayload": IGNORE | COMMIT,
}


@pytest.mark.parametrize("name", PAYLOADS)
def test_a_payload_class_of_hudis_is_a_merge_mode_in_table_version_9(
    name: str, tmp_path: Path
) -> None:
    payload = {"hoodie.datasource.write.payload.class": f"org.apache.hudi.common.model.{name}"}
    by_payload = LabTable(tmp_path / "payload", payload, SCHEMA)
    by_mode = LabTable(tmp_path / "mode", PAYLOADS[name], SCHEMA)
    draw = np.random.default_rng(5)
    first = rows(draw, 40, 20)
    for table in (by_payload, by_mode):
        table.upsert(first)
    one, other = by_payload.table.config, by_mode.table.config
    assert (one.merge_mode, one.partial_update_mode) == (
        other.merge_mode,
        other.partial_update_mode,
    )
    assert one.payload_class in ("", f"org.apache.hudi.common.model.{name}")


@pytest.mark.parametrize(
    ("name", "ordering"),
    [
        ("PostgresDebeziumAvroPayload", "_event_lsn"),
        ("MySqlDebeziumAvroPayload", "_event_bin_file,_event_pos"),
    ],
)
def test_payload_classes_of_debezium_bring_their_own_names(name: str, ordering: str) -> None:
    options = {
        **OPTIONS,
        "hoodie.datasource.write.payload.class": f"org.apache.hudi.common.model.debezium.{name}",
    }
    del options["hoodie.datasource.write.precombine.field"]
    config = parse_options(options).table
    assert (config.merge_mode, ",".join(config.ordering_fields)) == (
        "EVENT_TIME_ORDERING",
        ordering,
    )
    assert (config.delete_field, config.delete_marker) == ("_change_operation_type", "d")
    fills = name.startswith("Postgres")
    assert config.partial_update_mode == ("FILL_UNAVAILABLE" if fills else "")
    assert config.unavailable_value == ("__debezium_unavailable_value" if fills else "")
    with pytest.raises(
        OptionError, match=f"hoodie.table.ordering.fields is ts, .* implies {ordering}"
    ):
        parse_options({**options, "hoodie.table.ordering.fields": "ts"})


@pytest.mark.parametrize("ordering", ["i", ""])
def test_two_names_of_the_ordering_fields_must_agree(ordering: str) -> None:
    """Else a write would merge by one of them, and say nothing of the other."""
    older = "hoodie.datasource.write.precombine.field"
    options = {**OPTIONS, older: "ts", "hoodie.table.ordering.fields": ordering}
    with pytest.raises(OptionError, match=rf"{older} is 'ts', but .* is '{ordering}'"):
        parse_options(options)
    assert parse_options({**options, older: ordering}).table.ordering_fields == tuple(
        filter(None, [ordering])
    )


@pytest.mark.parametrize(
    ("payload", "stated", "says"),
    [
        (
            "OverwriteWithLatestAvroPayload",
            {"hoodie.write.record.merge.strategy.id": EVENT_TIME_STRATEGY},
            f"strategy.id is {EVENT_TIME_STRATEGY}, but .* implies COMMIT_TIME_ORDERING",
        ),
        (
            "DefaultHoodieRecordPayload",
            {"hoodie.write.record.merge.strategy.id": PAYLOAD_STRATEGY},
            f"strategy.id is {PAYLOAD_STRATEGY}, but .* implies EVENT_TIME_ORDERING",
        ),
        (
            "PartialUpdateAvroPayload",
            FILL,
            "partial.update.mode is FILL_UNAVAILABLE, but .* implies IGNORE_DEFAULTS",
        ),
        ("AWSDmsAvroPayload", OWN_MARKER, "delete.field is op, but .* implies Op"),
    ],
)
def test_a_payload_class_and_what_is_stated_beside_it_must_agree(
    payload: str, stated: dict[str, str], says: str
) -> None:
    """Else one of the two would be ignored: Apache Hudi goes by the class."""
    by_class = {"hoodie.datasource.write.payload.class": f"org.apache.hudi.common.model.{payload}"}
    with pytest.raises(OptionError, match=says):
        parse_options({**OPTIONS, **by_class, **stated})
    assert parse_options({**OPTIONS, **by_class}).table.merge_mode != "CUSTOM"


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("mode", ["event", "commit", "own marker", "ignore defaults"])
def test_the_payload_bridge_writes_what_the_mode_says_at_its_own_price(
    mode: str, kind: str, tmp_path: Path
) -> None:
    bridge = {MERGERS: "org.apache.hudi.common.model.HoodieAvroRecordMerger"}
    table = LabTable(tmp_path, MODES[mode] | KINDS[kind] | bridge, SCHEMA)
    draw = np.random.default_rng(11)
    for _ in range(3):
        table.upsert(rows(draw, 60, 30), serde_lab__strategy="avro")
    judge(table, rust=kind == "cow")


def test_the_bridges_detour_is_a_phase_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = InProcessExchange.run
    seen: list[set[str]] = []

    def watched(self: InProcessExchange, plan: WritePlan) -> Any:
        done = run(self, plan)
        seen.append({name for each in self.reports for name in each.phases})
        return done

    monkeypatch.setattr(InProcessExchange, "run", watched)
    bridge = {MERGERS: "org.apache.hudi.common.model.HoodieAvroRecordMerger"}
    for name, options in {"bridged": bridge, "native": {}}.items():
        table = LabTable(tmp_path / name, options, SCHEMA)
        table.upsert(rows(np.random.default_rng(5), 60, 20))
    assert ["payload" in phases for phases in seen] == [True, False]


@pytest.mark.parametrize("name", ["Longest", "DataAlone"])
def test_a_payload_class_of_the_users_merges_and_is_read(name: str, tmp_path: Path) -> None:
    name = f"tests.merging.test_mergers:{name}"
    table = LabTable(
        tmp_path, MOR | {"hoodie.datasource.write.payload.class": name}, LONGEST_SCHEMA
    )
    table.upsert(longest([("x", 1, "xx"), ("y", 1, "yy")]))
    table.upsert(longest([("x", 2, "z"), ("y", 0, "yyyy"), ("y", 0, "zzz")]))
    assert table.table.config.merge_rules.strategy == PAYLOAD_STRATEGY
    for compacted in (False, True):
        if compacted:
            assert table.compact() is not None
        found = plan_snapshot(table.table).read()
        assert dict(zip(found["k"].to_pylist(), found["b"].to_pylist(), strict=True)) == {
            "x": "xx",
            "y": "yyyy",
        }
        assert sorted(found["_hoodie_record_key"].to_pylist()) == ["k:x,n:1", "k:y,n:1"]


@pytest.mark.parametrize("operation", ["insert", "bulk_insert", "upsert"])
@pytest.mark.parametrize("name", ["tests.merging.test_mergers:Insertable", "com.acme.Payload"])
def test_a_payload_class_that_cannot_be_followed_is_refused_before_anything_is_written(
    name: str, operation: str, tmp_path: Path
) -> None:
    options = {"hoodie.datasource.write.payload.class": name}
    table = LabTable(tmp_path, options, LONGEST_SCHEMA)
    with pytest.raises(OptionError, match="payload class"):
        table.write(operation, longest([("x", 1, "xx")]))
    assert not table.path.exists()


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("OtherKey", "was given k 'x' and gave 'other'"),
        ("OtherType", "payload class .*:OtherType gave .*, which is no record of the table"),
        ("NoneOfBoth", "payload class .*:NoneOfBoth: pre_combine of two records gave None"),
    ],
)
def test_what_a_payload_class_returns_is_held_to_the_table(
    name: str, says: str, tmp_path: Path
) -> None:
    options = {"hoodie.datasource.write.payload.class": f"tests.merging.test_mergers:{name}"}
    table = LabTable(tmp_path, options, LONGEST_SCHEMA)
    table.upsert(longest([("x", 1, "xx")]))
    with pytest.raises((DataError, SchemaError), match=says):
        table.upsert(longest([("x", 2, "z"), ("x", 3, "zz")]))


LONGEST_SCHEMA = pa.schema(
    [("k", pa.string()), ("n", pa.int64()), ("ts", pa.int64()), ("b", pa.string())]
)


def longest(content: list[tuple[str, int, str]]) -> pa.Table:
    return pa.table(
        {
            "k": [k for k, _, _ in content],
            "n": [1] * len(content),
            "ts": [ts for _, ts, _ in content],
            "b": [b for _, _, b in content],
        },
        schema=LONGEST_SCHEMA,
    )
