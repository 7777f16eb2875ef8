"""The vectorised Avro codec against fastavro, byte for byte, and against damage."""

from __future__ import annotations

import datetime as dt
import io
import itertools
import pickle
import random
from decimal import Decimal
from typing import Any

import fastavro
import numpy as np
import pyarrow as pa
import pyarrow.types as pat
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from serde_lab.avro import decoder as avro_decoder
from serde_lab.avro import encoder as avro_encoder
from serde_lab.avro.codec import AvroCodec
from serde_lab.avro.schema import arrow_to_avro, with_avro_names
from serde_lab.errors import DataError, DecodeError, SchemaError
from serde_lab.records.plain_form import first_difference, to_plain, to_plain_batch
from serde_lab.records.schema import ENVELOPE
from serde_lab.serde.conformance import cases
from serde_lab.serde.conformance.damage import Allocation


def codec_of(schema: pa.Schema) -> AvroCodec:
    return AvroCodec(arrow_to_avro(schema, "t_record", "hoodie.t"), schema)


def one_column(values: list[Any], t: pa.DataType, *, nullable: bool = True) -> pa.RecordBatch:
    schema = pa.schema([pa.field("c", t, nullable)])
    return pa.record_batch([pa.array(values, t)], schema=schema)


# -- an independent writer: fastavro on plain Python values -----------------------------------------


def fastavro_datums(batch: pa.RecordBatch) -> list[bytes]:
    """What fastavro writes for each row, from physical values and a schema without logical types."""
    schema = fastavro.parse_schema(_physical(arrow_to_avro(batch.schema, "t_record", "hoodie.t")))
    columns = [_python(to_plain(column)) for column in batch.columns]
    rows = [dict(zip(batch.schema.names, row, strict=True)) for row in zip(*columns, strict=True)]
    return [_written(schema, row) for row in rows]


def _written(schema: Any, row: dict[str, Any]) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, schema, row)
    return out.getvalue()


def _physical(avro: Any) -> Any:
    if isinstance(avro, list):
        return [_physical(a) for a in avro]
    if isinstance(avro, dict):
        logical = ("logicalType", "precision", "scale")
        return {k: _physical(v) for k, v in avro.items() if k not in logical}
    return avro


def _python(array: pa.Array) -> list[Any]:
    """Python values by recursion over types: days, microseconds and decimals' bytes."""
    t = array.type
    if pat.is_struct(t):
        children = [_python(array.field(i)) for i in range(t.num_fields)]
        rows = [
            dict(zip([f.name for f in t], row, strict=True)) for row in zip(*children, strict=True)
        ]
        values: list[Any] = rows
    elif pat.is_list(t) or pat.is_map(t):
        if pat.is_map(t):
            items: list[Any] = list(zip(array.keys.to_pylist(), _python(array.items), strict=True))
        else:
            items = _python(array.values)
        ends = [0] * (len(array) + 1)
        if items:
            ends = np.frombuffer(array.buffers()[1], np.int32, len(array) + 1).tolist()
        values = [items[a:b] for a, b in itertools.pairwise(ends)]
        if pat.is_map(t):
            values = [dict(pairs) for pairs in values]
    elif pat.is_decimal(t):
        size = next(n for n in range(1, 17) if 10**t.precision <= 2 ** (8 * n - 1))
        values = [_fixed(v, t.scale, size) for v in array.to_pylist()]
    elif pat.is_timestamp(t):
        values = array.cast(pa.int64()).to_pylist()
    elif pat.is_date(t):
        values = array.cast(pa.int32()).to_pylist()
    else:
        values = array.to_pylist()
    return [v if ok else None for v, ok in zip(values, array.is_valid().to_pylist(), strict=True)]


def _fixed(value: Decimal | None, scale: int, size: int) -> bytes | None:
    if value is None:
        return None
    sign, digits, exponent = value.as_tuple()
    assert exponent == -scale
    unscaled = int("".join(map(str, digits))) * (-1 if sign else 1)
    return unscaled.to_bytes(size, "big", signed=True)


def check(batch: pa.RecordBatch) -> None:
    codec = codec_of(batch.schema)
    datums = codec.encode(batch)
    datums.validate(full=True)
    assert datums.to_pylist() == fastavro_datums(batch)
    found = codec.decode(datums)
    found.validate(full=True)
    assert first_difference(found, batch) is None


# -- equal to fastavro ------------------------------------------------------------------------------


@pytest.mark.slow
@settings(max_examples=300, deadline=None, derandomize=True)
@given(cases.cases())
def test_bytes_equal_fastavros_and_come_back(case: Any) -> None:
    check(_legal(case[1]))


def _legal(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The data columns in plain form, under names that Avro allows, inside structs too."""
    plain = to_plain_batch(batch.select(batch.schema.names[len(ENVELOPE) :]))
    schema = with_avro_names(plain.schema)
    arrays = [_as_type(a, f.type) for a, f in zip(plain.columns, schema, strict=True)]
    return pa.record_batch(arrays, schema=schema)


def _as_type(array: pa.Array, t: pa.DataType) -> pa.Array:
    """A plain array under a type that differs in names only."""
    if pat.is_struct(t):
        children = [_as_type(array.field(i), t.field(i).type) for i in range(t.num_fields)]
    elif pat.is_list(t):
        children = [_as_type(array.values, t.value_type)]
    elif pat.is_map(t):
        pairs = [array.keys, _as_type(array.items, t.item_type)]
        children = [pa.StructArray.from_arrays(pairs, fields=[t.key_field, t.item_field])]
    else:
        return array
    own = array.buffers()[: 1 if pat.is_struct(t) else 2]
    return pa.Array.from_buffers(t, len(array), own, array.null_count, 0, children)


@pytest.mark.parametrize("step", range(3))
def test_awkward_values_of_every_type(step: int) -> None:
    batch = _legal(cases.awkward_case()[1])
    check(batch.slice(step * 4))


def test_numbers_of_every_length() -> None:
    edges = [0]
    for bits in range(64):
        edges += [2**bits - 1, -(2**bits), -(2**bits) + 1, min(2**bits, 2**63 - 1)]
    longs = one_column([*edges, None], pa.int64())
    check(longs)
    assert {len(d) - 1 for d in codec_of(longs.schema).encode(longs).to_pylist()} == set(range(11))
    check(one_column([e for e in edges if abs(e) < 2**31], pa.int32(), nullable=False))
    check(one_column([e for e in edges if abs(e) < 2**15], pa.int16()))
    # all of one length: no byte is left out
    check(one_column([2**40 + n for n in range(40)], pa.int64()))


def test_logical_types_are_written_as_fastavro_writes_them() -> None:
    schema = pa.schema(
        [("d", pa.decimal128(15, 2)), ("day", pa.date32()), ("at", pa.timestamp("us", "UTC"))]
    )
    moment = dt.datetime(2024, 2, 29, 23, 59, 59, 999_999, dt.UTC)
    rows = [
        {"d": Decimal("-12345.67"), "day": dt.date(1969, 12, 31), "at": moment},
        {
            "d": Decimal("0.01"),
            "day": dt.date(9999, 12, 31),
            "at": moment.replace(year=1900, day=1),
        },
        {"d": None, "day": None, "at": None},
    ]
    avro = fastavro.parse_schema(arrow_to_avro(schema, "t_record", "hoodie.t"))
    batch = pa.RecordBatch.from_pylist(rows, schema)
    datums = codec_of(schema).encode(batch)
    assert datums.to_pylist() == [_written(avro, row) for row in rows]
    assert codec_of(schema).decode(datums).equals(batch)


def test_nan_and_negative_zero_keep_their_bits() -> None:
    values = np.array([0x7FF8000000000001, 0x8000000000000000, 0xFFF0000000000000], np.uint64)
    batch = pa.record_batch({"c": pa.array(values.view(np.float64))})
    found = codec_of(batch.schema).decode(codec_of(batch.schema).encode(batch))
    bits = np.frombuffer(found.column(0).buffers()[1], np.uint64, 3)
    assert bits.tolist() == values.tolist()


# -- shapes that the batches above do not reach -----------------------------------------------------


def test_more_rows_than_a_chunk() -> None:
    rows = avro_encoder.CHUNK_ROWS + avro_decoder.CHUNK_ROWS + 7
    numbers = pa.array([None if n % 11 == 0 else n * n for n in range(rows)])
    text = pa.array([None if n % 7 == 0 else "x" * (n % 90) for n in range(rows)])
    lists = pa.array([list(range(n % 4)) for n in range(rows)])
    batch = pa.record_batch({"n": numbers, "t": text, "l": lists})
    codec = codec_of(batch.schema)
    datums = codec.encode(batch)
    assert codec.decode(datums).equals(batch)
    assert datums[-5:].to_pylist() == fastavro_datums(batch.slice(rows - 5))
    # parts of an array decode as well as the whole
    assert codec.decode(datums.slice(8190, 5)).equals(batch.slice(8190, 5))


@pytest.mark.parametrize("rows", [1, 23, 24, 25, 200])
def test_lists_of_very_different_lengths(rows: int) -> None:
    random.seed(rows)
    sizes = [random.choice([0, 1, 2, 3, 30]) for _ in range(rows - 1)] + [700]
    inner = pa.struct([("s", pa.string()), ("l", pa.list_(pa.int64())), ("d", pa.float64())])
    values = [
        [
            {"s": "é" * (k % 3), "l": list(range(k % 5)), "d": k / 3} if k % 7 else None
            for k in range(n)
        ]
        for n in sizes
    ]
    check(one_column(values, pa.list_(inner)))
    maps = [[(f"key{k}", str(k) if k % 3 else None) for k in range(n)] for n in sizes]
    check(one_column(maps, pa.map_(pa.string(), pa.string())))
    check(
        one_column(
            [[[k % 128] * (k % 3) for k in range(n)] for n in sizes], pa.list_(pa.list_(pa.int8()))
        )
    )


def _varint(n: int) -> bytes:
    folded, out = (n << 1) ^ (n >> 63), b""
    while folded > 0x7F:
        out, folded = out + bytes([folded & 0x7F | 0x80]), folded >> 7
    return out + bytes([folded])


def test_lists_in_several_blocks_with_and_without_sizes() -> None:
    # as Java's BlockingBinaryEncoder writes them: a negative count, then the bytes of the block
    def items(*values: int) -> bytes:
        return b"".join(b"\x02" + _varint(v) for v in values)

    block = items(3, 400, -5)
    datums = [
        b"\x02" + _varint(-3) + _varint(len(block)) + block + _varint(1) + items(9) + b"\0",
        b"\x02" + _varint(2) + items(1, 2) + _varint(-1) + _varint(2) + items(7) + b"\0",
        b"\x02\0",
        b"\0",
    ]
    expected = one_column([[3, 400, -5, 9], [1, 2, 7], [], None], pa.list_(pa.int32()))
    codec = codec_of(expected.schema)
    for repeats in (1, 30):
        found = codec.decode(pa.array(datums * repeats, pa.binary()))
        assert found.column(0).to_pylist() == expected.column(0).to_pylist() * repeats


def test_unions_with_null_in_second_place() -> None:
    avro = {"type": "record", "name": "r", "fields": [{"name": "a", "type": ["string", "null"]}]}
    rows = [{"a": "x"}, {"a": None}, {"a": ""}]
    codec = AvroCodec(avro)
    datums = pa.array([_written(fastavro.parse_schema(avro), row) for row in rows], pa.binary())
    assert codec.decode(datums).to_pylist() == rows
    assert codec.encode(codec.decode(datums)).equals(datums)


def test_fields_that_may_not_be_null() -> None:
    schema = pa.schema(
        [
            pa.field("a", pa.int64(), False),
            pa.field("s", pa.struct([pa.field("x", pa.int8(), False)])),
        ]
    )
    batch = pa.record_batch(
        [pa.array([1, 2]), pa.array([{"x": 3}, None], schema.field("s").type)], schema=schema
    )
    codec = codec_of(schema)
    assert codec.encode(batch).to_pylist() == [b"\x02\x02\x06", b"\x04\x00"]
    assert codec.decode(codec.encode(batch)).equals(batch)
    with_null = pa.record_batch(
        [pa.array([1, None]), batch.column(1)],
        schema=pa.schema([("a", pa.int64()), schema.field(1)]),
    )
    with pytest.raises(DataError, match="'a' is null"):
        codec.encode(with_null)


def test_empty_batches_and_travel() -> None:
    batch = _legal(cases.awkward_case()[1])
    codec = pickle.loads(pickle.dumps(codec_of(batch.schema)))
    assert codec.encode(batch.slice(0, 0)).equals(pa.array([], pa.binary()))
    assert codec.decode(pa.array([], pa.binary())).equals(batch.slice(0, 0))
    assert first_difference(codec.decode(codec.encode(batch)), batch) is None


def test_columns_must_fit_the_avro_schema() -> None:
    avro = arrow_to_avro(pa.schema([("a", pa.int32())]), "r", "n")
    with pytest.raises(SchemaError, match="'a' is int32 in Avro, expected string"):
        AvroCodec(avro, pa.schema([("a", pa.string())]))
    with pytest.raises(SchemaError, match="expected"):
        AvroCodec(avro, pa.schema([("b", pa.int32())]))


# -- damage -----------------------------------------------------------------------------------------


def _damaged_batch() -> pa.RecordBatch:
    inner = pa.struct([("t", pa.string()), ("n", pa.int16()), ("b", pa.bool_())])
    schema = pa.schema(
        [
            ("n", pa.int64()),
            ("d", pa.decimal128(20, 2)),
            ("l", pa.list_(inner)),
            ("m", pa.map_(pa.string(), pa.list_(pa.float32()))),
            ("s", pa.struct([("x", inner), ("y", pa.decimal128(9, 2))])),
            ("t", pa.string()),
        ]
    )
    item = {"t": "text", "n": -300, "b": True}
    row = {
        "n": 2**62,
        "d": Decimal("-123456789.01"),
        "l": [item, None, {**item, "t": None}],
        "m": [("k", [1.5, None]), ("", None)],
        "s": {"x": item, "y": Decimal("-1.00")},
        "t": "é" * 70,
    }
    return pa.RecordBatch.from_pylist([row], schema)


@pytest.mark.parametrize("copies", [1, 30])
def test_every_prefix_is_refused_and_names_its_row(copies: int) -> None:
    batch = _damaged_batch()
    codec = codec_of(batch.schema)
    whole = codec.encode(batch)[0].as_py()
    for length in range(len(whole)):
        datums = [whole] * copies
        at = copies // 3
        datums[at] = whole[:length]
        with pytest.raises(DecodeError) as found:
            codec.decode(pa.array(datums, pa.binary()), "a name")
        assert (found.value.strategy, found.value.record) == ("a name", at)


def test_bytes_behind_the_last_field_are_refused() -> None:
    batch = _damaged_batch()
    codec = codec_of(batch.schema)
    whole = codec.encode(batch)[0].as_py()
    with pytest.raises(DecodeError, match="record 1: 1 bytes follow its last field"):
        codec.decode(pa.array([whole, whole + b"\0", whole], pa.binary()))


def test_null_datums_are_refused() -> None:
    codec = codec_of(pa.schema([("a", pa.int32())]))
    with pytest.raises(DecodeError, match="record 1: it is null"):
        codec.decode(pa.array([b"\0", None], pa.binary()))


@pytest.mark.slow
@pytest.mark.parametrize("copies", [1, 30])
def test_every_damaged_byte_raises_or_gives_valid_rows(copies: int) -> None:
    batch = _damaged_batch()
    codec = codec_of(batch.schema)
    whole = codec.encode(batch)[0].as_py()
    raised = 0
    for at in range(len(whole)):
        for value in {0, 1, 2, 0x7F, 0x80, 0xFF, whole[at] ^ 4} - {whole[at]}:
            damaged = whole[:at] + bytes([value]) + whole[at + 1 :]
            try:
                found = codec.decode(pa.array([damaged] * copies, pa.binary()))
            except DecodeError:
                raised += 1
                continue
            found.validate(full=True)
            assert found.schema == batch.schema
    assert raised > len(whole)


@pytest.mark.parametrize(
    ("t", "datum", "problem"),
    [
        (pa.int64(), b"\x02" + b"\xff" * 9 + b"\x02", "64 bits"),
        (pa.int64(), b"\x02" + b"\x80" * 12 + b"\x00", "64 bits"),
        (pa.int32(), b"\x02" + _varint(2**31), "32 bits"),
        (pa.int8(), b"\x02" + _varint(128), "8 bits"),
        (pa.int32(), b"\x04\x00", "union branch"),
        (pa.int32(), b"\x01", "union branch"),
        (pa.bool_(), b"\x02\x02", "neither true nor false"),
        (pa.string(), b"\x02" + _varint(-1), "-1 bytes"),
        (pa.string(), b"\x02" + _varint(2**62) + b"abc", "bytes"),
        (pa.string(), b"\x02\x02\xff", "UTF-8"),
        (pa.string(), b"\x02\x04\xc3\x28", "UTF-8"),
        (pa.decimal128(2, 0), b"\x02\x64", "2 digits"),
        (pa.decimal128(2, 0), b"\x02\x9c", "2 digits"),
        (pa.decimal128(38, 0), b"\x02\x7f" + b"\xff" * 15, "38 digits"),
        (pa.decimal128(38, 0), b"\x02\x80" + b"\0" * 15, "38 digits"),
        (pa.list_(pa.int64()), b"\x02" + _varint(2**62) + b"\0" * 50, "items"),
        (pa.list_(pa.int64()), b"\x02" + _varint(-(2**63)) + _varint(1) + b"\0", "items"),
        (pa.list_(pa.int64()), b"\x02" + _varint(-1) + _varint(99) + b"\0\0", "bytes"),
        (pa.list_(pa.int64()), b"\x02\x02\x02\x02", "middle"),
        (pa.list_(pa.list_(pa.int8())), b"\x02\x02\x02" + _varint(99) + b"\0", "middle"),
    ],
)
def test_impossible_values_are_refused(t: pa.DataType, datum: bytes, problem: str) -> None:
    codec = codec_of(pa.schema([("c", t)]))
    with Allocation() as allocation, pytest.raises(DecodeError, match=problem):
        codec.decode(pa.array([b"\0", datum, b"\0"], pa.binary()))
    assert allocation.peak_bytes < 256 << 10
    many = pa.array([b"\0"] * 40 + [datum] * 60, pa.binary())
    with pytest.raises(DecodeError) as found:
        codec.decode(many)
    assert found.value.record == 40


@settings(max_examples=200, deadline=None, derandomize=True)
@given(st.binary(max_size=60), st.integers(1, 40))
def test_any_bytes_raise_or_give_valid_rows(datum: bytes, copies: int) -> None:
    schema = _damaged_batch().schema
    for column in schema:
        codec = codec_of(pa.schema([column]))
        try:
            codec.decode(pa.array([b"\x02" + datum] * copies, pa.binary())).validate(full=True)
        except DecodeError:
            continue


def test_a_long_list_of_nulls_is_read_in_time_that_its_bytes_allow() -> None:
    # a byte an item: the most items that any number of bytes can hold
    batch = one_column([[None] * 200_000, [], [None] * 3], pa.list_(pa.int64()))
    codec = codec_of(batch.schema)
    assert codec.decode(codec.encode(batch)).equals(batch)
