"""Tables whose columns are added, left out, moved and widened from write to write, against DuckDB."""

from __future__ import annotations

import re
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from serde_lab.errors import OptionError, SchemaError
from serde_lab.pipeline.exchange.in_process import InProcessExchange
from serde_lab.pipeline.options.write import parse_options
from serde_lab.pipeline.write import PreparedWrite
from serde_lab.table.read_plan import plan_snapshot
from serde_lab.table.storage.storage import Storage
from tests.faults.test_optimistic_writers import OPTIMISTIC
from tests.pipeline.lab_table import MOR, PARTITIONED, STRATEGIES, LabTable, table_of

pytestmark = pytest.mark.slow

FILL = {"hoodie.write.set.null.for.missing.columns": "true"}
# so many that some base files stay as the first write made them
MANY = {"hoodie.bucket.index.num.buckets": "24"}
PARQUET = {**MOR, "hoodie.logfile.data.block.format": "parquet"}
NESTED_FIRST = pa.struct([("a", pa.int32()), ("l", pa.list_(pa.struct([("f", pa.float32())])))])
NESTED_LAST = pa.struct(
    [("a", pa.int64()), ("l", pa.list_(pa.struct([("f", pa.float64()), ("new", pa.string())])))]
)
FIRST = pa.schema(
    [
        ("k", pa.string()),
        ("n", pa.int32()),
        ("ts", pa.int32()),
        ("p", pa.string()),
        ("whole", pa.int32()),
        ("part", pa.float32()),
        ("word", pa.int64()),
        ("price", pa.decimal128(9, 2)),
        ("s", NESTED_FIRST),
        ("m", pa.map_(pa.string(), pa.int32())),
    ]
)
# moved, one column left out, one added, and all others wider
SECOND = pa.schema(
    [
        ("late", pa.date32()),
        ("s", NESTED_LAST),
        ("ts", pa.int64()),
        ("part", pa.float64()),
        ("whole", pa.float64()),
        ("m", pa.map_(pa.string(), pa.string())),
        ("n", pa.int64()),
        ("k", pa.string()),
        ("p", pa.string()),
        ("price", pa.decimal128(20, 2)),
    ]
)
LAST = pa.schema(
    [
        *(FIRST.field(name) for name in ("k",)),
        ("n", pa.int64()),
        ("ts", pa.int64()),
        ("p", pa.string()),
        ("whole", pa.float64()),
        ("part", pa.float64()),
        ("word", pa.string()),
        ("price", pa.decimal128(20, 2)),
        ("s", NESTED_LAST),
        ("m", pa.map_(pa.string(), pa.string())),
        ("late", pa.date32()),
    ]
)


def rows(schema: pa.Schema, numbers: range, ts: int) -> pa.Table:
    """Rows of any of the schemas: every third has nulls."""
    made = []
    for number in numbers:
        row: dict[str, Any] = {"k": f"k{number % 5}", "n": number, "ts": ts, "p": f"p{number % 2}"}
        if number % 3:
            inner = {"f": number / 10, "new": f"n{number}"}
            row |= {
                "whole": number,
                "part": number / 7,
                "word": number if pa.types.is_integer(kind_of(schema, "word")) else f"w{number}",
                "s": {"a": number, "l": [inner, {}]},
                "m": [("x", number), ("y", None)],
                "late": number,
                "price": Decimal(number) / 4,
            }
            if pa.types.is_map(schema.field("m").type) and schema.field("m").type.item_type == (
                pa.string()
            ):
                row["m"] = [("x", f"m{number}"), ("y", None)]
        made.append(row)
    return pa.Table.from_pylist(made, schema)


def kind_of(schema: pa.Schema, name: str) -> pa.DataType:
    return schema.field(name).type if name in schema.names else pa.null()


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("kind", [MANY, MOR, PARQUET | PARTITIONED], ids=["cow", "avro", "parquet"])
def test_every_change_at_once(kind: dict[str, str], strategy: str, tmp_path: Path) -> None:
    table = LabTable(tmp_path, {**kind, **FILL, "serde_lab.strategy": strategy}, LAST)
    table.upsert(rows(FIRST, range(30), 1))
    table.upsert(rows(SECOND, range(20, 40), 2))
    # an older writer goes on: its rows are of the first schema, the table's stays
    table.upsert(rows(FIRST, range(35, 45), 3))
    table.upsert(rows(LAST, range(10), 3))
    table.delete(rows(FIRST, range(3, 6), 9).select(["k", "n", "p"]))
    table.check()
    stored = table.table.data_schema()
    assert stored is not None
    assert stored.names == LAST.names
    assert plan_snapshot(table.table, columns=LAST.names).read().schema.types == LAST.types
    if kind is not MANY:
        table.compact()
        table.check()


@pytest.mark.parametrize("kind", [MANY, MOR], ids=["cow", "mor"])
def test_gaps_are_filled_across_schemas(kind: dict[str, str], tmp_path: Path) -> None:
    partial = {"hoodie.table.partial.update.mode": "IGNORE_DEFAULTS"}
    table = LabTable(tmp_path, {**kind, **FILL, **partial}, LAST)
    table.upsert(rows(FIRST, range(12), 2))
    table.upsert(rows(SECOND, range(2, 8), 1))  # late: fills what the stored rows lack
    table.upsert(rows(FIRST, range(5, 14), 3))
    table.upsert(rows(LAST, range(10, 16), 3))
    table.check()
    if kind is MOR:
        table.compact()
        table.check()


@pytest.mark.parametrize("name", ["a b", "1a", "ü", "a.b"])
def test_a_name_that_avro_does_not_have_makes_no_table(name: str, tmp_path: Path) -> None:
    table = LabTable(tmp_path)
    inner = pa.struct([(name, pa.int32())])
    for kind, column in ((pa.int32(), name), (inner, f"s.{name}")):
        data = pa.table({"k": ["a"], "n": [1], "ts": [1]}).append_column(
            column.partition(".")[0] if kind == inner else name, pa.nulls(1, kind)
        )
        with pytest.raises(SchemaError, match=re.escape(f"'{column}' has a name that Avro")):
            table.upsert(data)
    assert not table.path.exists() or not any(table.path.iterdir())


@pytest.mark.parametrize("kind", [{}, MOR], ids=["cow", "mor"])
def test_what_cannot_be_reconciled_is_refused_by_name_and_nothing_is_written(
    kind: dict[str, str], tmp_path: Path
) -> None:
    table = LabTable(tmp_path, {**kind}, FIRST)
    table.upsert(rows(FIRST, range(10), 1))
    before = sorted(path for path in table.path.rglob("*") if path.is_file())
    good = rows(FIRST, range(10), 2)
    flags = pa.nulls(len(good), pa.bool_())
    number = pa.array([None] * len(good), pa.struct([("a", pa.date32()), ("l", pa.int32())]))
    for bad, column in (
        (good.drop_columns(["word"]), "'word' of the table is not in the data"),
        (good.set_column(4, "whole", flags), "'whole' is of type bool"),
        (good.set_column(8, "s", number), r"'s\.a' is of type date32"),
        (good.set_column(2, "ts", good["k"]), "ordering column 'ts'"),
        (good.append_column("no-name", flags), "'no-name' has a name that Avro does not allow"),
    ):
        with pytest.raises(SchemaError, match=column):
            table.write("upsert", bad)
    assert sorted(path for path in table.path.rglob("*") if path.is_file()) == before
    table.check()


RECONCILE = {"hoodie.datasource.write.reconcile.schema": "true"}
INNER = pa.struct([("a", pa.int32()), ("b", pa.int32())])
PLAIN = pa.schema(
    [("k", pa.string()), ("n", pa.int64()), ("ts", pa.int64()), ("w", pa.int32()), ("s", INNER)]
)


def plain(ts: int, schema: pa.Schema = PLAIN) -> pa.Table:
    """Two rows in the types of `schema`."""
    whole = [
        {"k": "a", "n": n, "ts": ts, "w": n, "z": n, "s": {"a": n, "b": n, "z": n}}
        for n in range(2)
    ]
    return pa.Table.from_pylist(whole, schema)


def with_struct(schema: pa.Schema, *fields: str) -> pa.Schema:
    kind = pa.struct([(name, pa.int32()) for name in fields])
    return schema.set(schema.get_field_index("s"), pa.field("s", kind))


LESS = PLAIN.remove(3)
MORE = PLAIN.append(pa.field("z", pa.int32()))
LESS_INSIDE, MORE_INSIDE = with_struct(PLAIN, "a"), with_struct(PLAIN, "a", "b", "z")
ONLY_LESS, ONLY_MORE = (LESS, LESS_INSIDE), (MORE, MORE_INSIDE)
BOTH = (
    LESS.append(MORE.field("z")),
    with_struct(LESS, "a", "b", "z"),
    with_struct(PLAIN, "a", "z"),
)


@pytest.mark.parametrize("kind", [{}, MOR], ids=["cow", "mor"])
@pytest.mark.parametrize("options", [FILL, RECONCILE, {}], ids=["fill", "reconcile", "neither"])
@pytest.mark.parametrize("schema", [*ONLY_LESS, *ONLY_MORE, *BOTH], ids=str)
def test_what_a_batch_leaves_out_is_null_where_that_was_asked_for(
    kind: dict[str, str], options: dict[str, str], schema: pa.Schema, tmp_path: Path
) -> None:
    stands = (
        schema in ONLY_MORE or options == FILL or (options == RECONCILE and schema in ONLY_LESS)
    )
    whole = pa.unify_schemas([PLAIN, MORE]) if "z" in schema.names else PLAIN
    if "z" in [field.name for field in schema.field("s").type]:
        whole = with_struct(whole, "a", "b", "z")
    table = LabTable(tmp_path, {**kind, **options}, whole if stands else PLAIN)
    table.upsert(plain(1))
    before = sorted(path for path in table.path.rglob("*") if path.is_file())
    if stands:
        table.upsert(plain(2, schema))
    else:
        said = (
            "accepts only one of the two"
            if options == RECONCILE
            else "of the table is not in the data"
        )
        with pytest.raises(SchemaError, match=said):
            table.write("upsert", plain(2, schema))
        assert sorted(path for path in table.path.rglob("*") if path.is_file()) == before
    table.check()


@pytest.mark.parametrize("options", [FILL, RECONCILE])
@pytest.mark.parametrize("name", ["k", "ts"])
def test_key_and_ordering_columns_are_never_left_out(
    name: str, options: dict[str, str], tmp_path: Path
) -> None:
    table = LabTable(tmp_path, options, PLAIN)
    table.upsert(plain(1))
    with pytest.raises(SchemaError, match=f"column '{name}' is not in the data"):
        table.upsert(plain(2).drop_columns([name]))


def test_columns_are_never_dropped(tmp_path: Path) -> None:
    drop = "hoodie.datasource.write.schema.allow.auto.evolution.column.drop"
    LabTable(tmp_path, {drop: "false"}, PLAIN).upsert(plain(1))
    with pytest.raises(OptionError, match=f"{drop} is 'true', expected false"):
        LabTable(tmp_path, {drop: "true"}, PLAIN).upsert(plain(2))


@pytest.mark.parametrize("role", ["recordkey", "partitionpath"])
@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        (pa.int64(), pa.float64(), r"'i' is of type double, .* has int64: .* become 1\.0"),
        (pa.int32(), pa.float32(), r"'i' is of type float, .* has int32"),
        (pa.int32(), pa.int64(), ""),
        (pa.int64(), pa.string(), ""),
        (pa.float32(), pa.float64(), ""),
        (pa.float64(), pa.int64(), ""),  # the table's type stays: 1 is written as 1.0
    ],
)
def test_keys_keep_their_text_when_their_columns_become_wider(
    role: str, before: pa.DataType, after: pa.DataType, said: str, tmp_path: Path
) -> None:
    options = {"hoodie.datasource.write.recordkey.field": "k"}
    options[f"hoodie.datasource.write.{role}.field"] = "i"
    first = plain(1).append_column("i", pa.array([1, 2]).cast(before))
    second = plain(2).append_column("i", pa.array([1, 2]).cast(after))
    if role == "partitionpath":
        options["hoodie.datasource.write.recordkey.field"] = "n"
    wider = after if pa.types.is_integer(before) or after == pa.float64() else before
    schema = (first if said else second).schema.set(5, pa.field("i", before if said else wider))
    table = LabTable(tmp_path, options, schema)
    table.upsert(first)
    if said:
        with pytest.raises(SchemaError, match=said):
            table.write("upsert", second)
    else:
        table.upsert(second)
    assert table.check().fingerprint.rows == 2


def test_a_marker_of_deletes_keeps_its_text(tmp_path: Path) -> None:
    """Otherwise a batch of ints would no longer delete, and its rows would come back."""
    options = {"hoodie.payload.delete.field": "gone", "hoodie.payload.delete.marker": "1"}
    table = LabTable(tmp_path, options, PLAIN)

    def marked(ts: int, kind: pa.DataType) -> pa.Table:
        return plain(ts).append_column("gone", pa.array([1, 2]).cast(kind))

    table.write("upsert", marked(1, pa.int32()))
    with pytest.raises(SchemaError, match=r"delete marker column 'gone' .* become 1\.0"):
        table.write("upsert", marked(2, pa.float64()))
    table.write("upsert", marked(2, pa.int64()))
    assert plan_snapshot(table.table).read().num_rows == 1


@pytest.mark.parametrize("mode", ["single writer", "optimistic"])
@pytest.mark.parametrize("operation", ["upsert", "delete", "delete_partition"])
def test_a_column_that_another_writer_added_before_the_lock_is_not_taken_away(
    operation: str, mode: str, tmp_path: Path
) -> None:
    table = LabTable(tmp_path, {**PARTITIONED, **(OPTIMISTIC if mode == "optimistic" else {})})
    table.upsert([("a", n, 1, 0.0) for n in range(8)])
    rows = table_of([("a", 0, 5, None)])
    if operation == "delete":
        rows = rows.select(["k", "n", "p"])
    asked = {"hoodie.datasource.write.operation": operation}
    if operation == "delete_partition":
        asked["hoodie.datasource.write.partitions.to.delete"] = "p 0"
    options = parse_options({**table.given({}), **asked}, table.table.config)
    prepared = PreparedWrite.of(Storage.open(table.path), rows.schema, options)
    wider = table_of([("a", n, 2, 0.0) for n in range(8)])
    table.upsert(wider.append_column("more", pa.array([7] * 8, pa.int64())))
    with pytest.raises(SchemaError, match="were changed by another writer meanwhile: 'more'"):
        prepared.commit(InProcessExchange([rows.to_batches()]))
    assert plan_snapshot(table.table).read()["more"].to_pylist() == [7] * 8
