"""Delete markers and partial updates through the pipeline: small random histories against the oracle."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from serde_lab.errors import DataError, OptionError, SchemaError
from serde_lab.table.log_block import BlockType
from serde_lab.table.read_plan import plan_snapshot
from serde_lab.verify.checks import rows_match
from tests.pipeline.lab_table import MOR, PARTITIONED, STRATEGIES, LabTable

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
    found = rows_match(plan_snapshot(table.table).read(), table.expected(), table.rules, "us")
    assert found.passed, found.detail


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("mode", MODES)
def test_a_history_of_marked_rows_and_gaps_is_what_the_oracle_says(
    mode: str, kind: str, tmp_path: Path
) -> None:
    options = MODES[mode] | KINDS[kind]
    # hudi-rs refuses two ordering fields, and knows neither the marker of FILL_UNAVAILABLE nor the int 0
    rust = kind == "cow" and mode != "two fields"
    seed = list(MODES).index(mode) + len(MODES) * list(KINDS).index(kind)
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


@pytest.mark.parametrize("mode", ["event", "ignore defaults"])
def test_shards_merge_as_a_whole_does(mode: str, tmp_path: Path) -> None:
    from dataclasses import replace

    from serde_lab.pipeline import write

    made = write.make_plan

    def in_shards(*given: Any) -> Any:
        return replace(made(*given), shards=3)

    table = LabTable(tmp_path, MODES[mode], SCHEMA)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(write, "make_plan", in_shards)
        history(table, 7)


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
        (OWN_MARKER | {"hoodie.payload.delete.field": "gone"}, "'gone', which is no column"),
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
        with pytest.raises(OptionError, match="the table at hand has"):
            table.upsert(rows(draw, 5, 5), **{key.replace(".", "__"): value})
