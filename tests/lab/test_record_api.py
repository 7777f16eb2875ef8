"""The record API by hand-made values: partial columns, promotions, the nested layout, the document."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from serde_lab.errors import DataError, DecodeError, SchemaError, UsageError
from serde_lab.merging.survivors import match
from serde_lab.records.schema import RecordSchema
from serde_lab.serde import interface, registry
from serde_lab.serde.framing import schema_fingerprint
from serde_lab.serde.interface import (
    Bounds,
    BoundSerde,
    Execution,
    SerdeOptions,
    verbs_through_arrow,
)
from serde_lab.serde.record_verbs import MetadataValues
from tests.lab import record_api

DOCUMENT = Path(interface.__file__).with_name("RECORD_API.md")
ARMS = record_api.arms()


def schema_of(**types: pa.DataType) -> RecordSchema:
    data = pa.schema([pa.field(name, t) for name, t in types.items()])
    return RecordSchema(data, record_key=(data.names[0],))


def batch_of(schema: RecordSchema, keys: list[str], **columns: list[Any]) -> pa.RecordBatch:
    rows = len(keys)
    envelope = [keys, *([text] * rows for text in ("p", "f", "U", "I")), [False] * rows]
    values = [*envelope, *columns.values()]
    arrays = [pa.array(v, f.type) for v, f in zip(values, schema.batch_schema, strict=True)]
    return pa.record_batch(arrays, schema=schema.batch_schema)


def bind(arm: tuple[str, Execution], schema: RecordSchema, **own: object) -> BoundSerde:
    return registry.bind(arm[0], schema, SerdeOptions(arm[1], own=own))


def crossed(bound: BoundSerde, batch: pa.RecordBatch) -> Any:
    frames = bound.encode(bound.from_arrow(batch), Bounds.single(len(batch)))
    return bound.decode(frames.frame)


@pytest.mark.parametrize("arm", ARMS)
def test_partial_columns_are_merged_in_bulk(arm: tuple[str, Execution]) -> None:
    """Stored records and an update that has some columns only: match, take, join."""
    stored = schema_of(id=pa.string(), price=pa.float64(), name=pa.string(), n=pa.int64())
    partial = schema_of(id=pa.string(), price=pa.float64())
    draw = np.random.default_rng(3)
    keys = [f"k{i}" for i in draw.permutation(300)]
    old = {key: (float(i), f"näme {i}", None if i % 3 else i) for i, key in enumerate(keys)}
    news = {f"k{i}": (-0.0 if i % 2 else None) for i in draw.permutation(500)[:200]}
    prices, names, ns = (list(column) for column in zip(*old.values(), strict=True))
    bound = bind(arm, stored)
    base = crossed(bound, batch_of(stored, keys, id=keys, price=prices, name=names, n=ns))
    given = list(news)
    update = batch_of(partial, given, id=given, price=list(news.values()))
    incoming = crossed(bind(arm, partial), update)
    found = match(base.record_keys(), incoming.record_keys())
    hits = np.flatnonzero(found >= 0)
    merged = bound.join(base.take(found[hits]), incoming.take(hits))
    expected = [
        {"id": key, "price": news[key], "name": old[key][1], "n": old[key][2]}
        for key in given
        if key in old
    ]
    assert merged.to_arrow().select(stored.data.names).to_pylist() == expected
    assert len(expected) > 50


@pytest.mark.parametrize("arm", ARMS)
def test_a_bootstrapped_record_is_its_skeleton_and_its_source(arm: tuple[str, Execution]) -> None:
    """RFC-12's two files hold record i in the same place: metadata in one, columns in the other."""
    skeleton, source = schema_of(seqno=pa.string()), schema_of(b=pa.int32(), a=pa.string())
    whole = schema_of(seqno=pa.string(), a=pa.string(), b=pa.int64())
    keys = ["k1", "k2", "k3"]
    left = crossed(bind(arm, skeleton), batch_of(skeleton, keys, seqno=["1", "2", "3"]))
    right = crossed(
        bind(arm, source), batch_of(source, ["", "", ""], b=[7, None, -1], a=["x", "é", None])
    )
    found = bind(arm, whole).join(left, right)
    assert found.record_keys().to_pylist() == keys
    rows = found.to_arrow().select(whole.data.names).to_pylist()
    assert rows == [
        {"seqno": "1", "a": "x", "b": 7},
        {"seqno": "2", "a": "é", "b": None},
        {"seqno": "3", "a": None, "b": -1},
    ]
    assert found.column("b").type == pa.int64()
    with pytest.raises(SchemaError, match="'gone' is in neither"):
        bind(arm, schema_of(gone=pa.int32())).join(left, right)


@pytest.mark.parametrize("arm", ARMS)
def test_numbers_become_the_nearest(arm: tuple[str, Execution]) -> None:
    """Rounded once: by way of a double, 2**60 + 2**36 + 1 would become another float."""
    before = schema_of(a=pa.int64(), b=pa.int64(), c=pa.binary())
    numbers = [2**53 + 1, 2**60 + 2**36 + 1, -(2**63), 16_777_217]
    texts = [b"", "é".encode(), b"\0", b"x"]
    records = crossed(
        bind(arm, before), batch_of(before, list("klmn"), a=numbers, b=numbers, c=texts)
    )
    bound = bind(arm, schema_of(a=pa.float64(), b=pa.float32(), c=pa.string()))
    found = bound.rewrite(records)
    assert found.column("a").to_pylist() == [2.0**53, 2.0**60 + 2.0**36, -(2.0**63), 16_777_217.0]
    assert found.column("b").to_pylist() == [2.0**53, 2.0**60 + 2.0**37, -(2.0**63), 16_777_216.0]
    assert found.column("c").to_pylist() == ["", "é", "\0", "x"]
    wrong = batch_of(before, list("klmn"), a=numbers, b=numbers, c=[b"x", b"\xff", b"", b""])
    with pytest.raises(DataError, match=r"'c' cannot become string: .* not UTF-8"):
        bound.rewrite(crossed(bind(arm, before), wrong)).column("c")


@pytest.mark.parametrize("arm", ARMS)
def test_numbers_become_what_java_writes(arm: tuple[str, Execution]) -> None:
    """As Hudi's rewriteRecord does, which makes a double of a float by way of its text."""
    before = schema_of(f=pa.float32(), g=pa.float32(), d=pa.float64(), i=pa.int32())
    floats, doubles = [0.1, 16_777_216.0, None, -0.0], [1e7, 123.0, float("nan"), 1.5e-5]
    sent = batch_of(before, list("klmn"), f=floats, g=floats, d=doubles, i=[-1, 0, None, 7])
    bound = bind(arm, schema_of(f=pa.float64(), g=pa.string(), d=pa.string(), i=pa.string()))
    found = bound.rewrite(crossed(bind(arm, before), sent))
    assert found.column("f").to_pylist() == [0.1, 16_777_216.0, None, -0.0]
    assert found.column("g").to_pylist() == ["0.1", "1.6777216E7", None, "-0.0"]
    assert found.column("d").to_pylist() == ["1.0E7", "123.0", "NaN", "1.5E-5"]
    assert found.column("i").to_pylist() == ["-1", "0", None, "7"]


@pytest.mark.parametrize("arm", ARMS)
def test_defaults_of_every_shape(arm: tuple[str, Execution]) -> None:
    before = schema_of(a=pa.int32())
    inner = pa.struct([("x y", pa.int64()), ("z", pa.list_(pa.string()))])
    after = schema_of(
        a=pa.int32(), s=inner, m=pa.map_(pa.string(), pa.int32()), d=pa.decimal128(20, 2)
    )
    defaults = {
        "s": {"x y": 5, "z": ["é", None]},
        "m": [("k", None)],
        "d": pa.scalar(Decimal("7.0")),
    }
    records = crossed(bind(arm, before), batch_of(before, ["k1", "k2"], a=[1, None]))
    found = crossed(bind(arm, after), bind(arm, after).rewrite(records, None, defaults).to_arrow())
    row = found.to_arrow().select(["s", "m", "d"]).to_pylist()[1]
    assert (row["s"], row["m"]) == (defaults["s"], defaults["m"])
    assert str(row["d"]) == "7.00"
    with pytest.raises(SchemaError, match=r"'d' of type .* cannot default to 'seven'"):
        bind(arm, after).rewrite(records, None, {"d": "seven"})


@pytest.mark.parametrize("execution", ["batch", "row"])
def test_the_nested_layout_is_as_described(execution: Execution) -> None:
    schema = schema_of(flag=pa.bool_(), text=pa.string())
    batch = pa.record_batch(
        [
            *(pa.array(v) for v in (["k1", "k2"], ["p", ""], ["f", "f"], ["U", ""], ["+U", ""])),
            pa.array([False, True]),
            pa.array([True, None]),
            pa.array(["é", None]),
        ],
        schema=schema.batch_schema,
    )
    fingerprint = schema_fingerprint(schema).to_bytes(4, "little")
    lengths = b"".join(n.to_bytes(4, "little") for n in (2, 1, 1, 1, 2))
    metadata = b"\0" + b"\0" + lengths + b"k1" + b"p" + b"f" + b"U" + b"+U"
    row = b"\0" + b"\x01" + b"\x02\0\0\0" + "é".encode()
    sizes = bytes([len(metadata), 0, 0, 0, len(row), 0, 0, 0])
    with_row = b"\xa1\x04" + fingerprint + b"\0" + sizes + metadata + row
    lengths = b"".join(n.to_bytes(4, "little") for n in (2, 0, 1, 0, 0))
    metadata = b"\0" + b"\x01" + lengths + b"k2" + b"f"
    index = b"\xa1\x04" + fingerprint + b"\x02" + bytes([len(metadata), *[0] * 7]) + metadata
    bound = bind(("internal_row", execution), schema, layout="nested")
    frames = bound.encode(bound.from_arrow(batch), Bounds.single(2)).frame
    assert frames.to_pylist() == [with_row, index]
    assert bound.decode(frames).to_arrow().equals(batch)
    # neither layout reads the other's records
    flat = bind(("internal_row", execution), schema)
    with pytest.raises(DecodeError, match="not a record of this strategy"):
        flat.decode(frames)
    with pytest.raises(DecodeError, match="not a record of this strategy"):
        bound.decode(flat.encode(flat.from_arrow(batch), Bounds.single(2)).frame)
    for damaged, problem in (
        (with_row[:6] + b"\1" + with_row[7:], "metadata is null|bytes that are not zero"),
        (with_row[:6] + b"\2" + with_row[7:], "a null has bytes that are not zero"),
        (with_row[:15] + b"\1" + with_row[16:], "metadata is null|bytes that are not zero|is null"),
        (
            index[:16] + b"\0" + index[17:],
            "an index record must have no row, and any other record must have one",
        ),
        (with_row + b"x", "lengths that it states"),
    ):
        with pytest.raises(DecodeError, match=problem) as caught:
            bound.decode(pa.array([with_row, damaged])).to_arrow()
        assert caught.value.record == 1
    # the row is not touched by other metadata
    updated = bound.update_metadata(bound.decode(frames), MetadataValues(file_id="elsewhere"))
    assert bound.encode(updated, Bounds.single(2)).frame[0].as_py().endswith(row)


# -- the document ----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def costs() -> list[record_api.VerbCost]:
    return [cost for arm in ARMS for cost in record_api.verb_costs(*arm, rows=40, repeats=1)]


def test_every_verb_is_measured_and_in_the_document(
    costs: list[record_api.VerbCost],
) -> None:
    verbs = {*record_api.MEANING, *record_api.BESIDE}
    assert {(c.strategy, c.execution, c.verb) for c in costs} == {
        (*arm, verb) for arm in ARMS for verb in verbs
    }
    measured = record_api.verb_table(costs).splitlines()
    lines = DOCUMENT.read_text(encoding="utf-8").splitlines()
    # all but the figures: names, meanings, and who leaves the representation
    for line in measured:
        words = "|".join(line.split("|")[:4])
        found = [known for known in lines if known.startswith(words)]
        assert len(found) == 1, f"{words}: remake {DOCUMENT.name}"
        assert found[0].count("|") == line.count("|")


def test_the_document_says_who_leaves_the_representation(
    costs: list[record_api.VerbCost],
) -> None:
    for arm in ARMS:
        assert verbs_through_arrow(bind(arm, schema_of(a=pa.int32()))) == frozenset()
    assert not any(cost.through_arrow for cost in costs)
    one = [replace(c, through_arrow=c.strategy == "avro" and c.verb == "join") for c in costs]
    (line,) = [x for x in record_api.verb_table(one).splitlines() if x.startswith("| `join`")]
    assert "| pickle, pickle_columns, internal_row, arrow |" in line


def test_layouts_are_set_side_by_side() -> None:
    found = record_api.layout_costs("batch", rows=30, repeats=1)
    flat, nested = found
    # null bits, lengths of 4 bytes for five strings instead of 10 in all, two lengths more
    assert nested.bytes - flat.bytes == pytest.approx(21)
    table = record_api.layout_table(found)
    assert f"| batch | nested | {nested.bytes:.1f} (+" in table


def test_tables_are_remade_between_their_marks() -> None:
    text = "a\n<!-- record_api: verbs -->\nold\n<!-- end -->\nb\n"
    new = record_api.redone(text, {"verbs": "new\n"})
    assert new == "a\n<!-- record_api: verbs -->\n\nnew\n\n<!-- end -->\nb\n"
    assert record_api.redone(new, {"verbs": "new\n"}) == new
    with pytest.raises(UsageError, match="no mark '<!-- record_api: layouts"):
        record_api.redone(text, {"layouts": ""})
