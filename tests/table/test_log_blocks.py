"""Blocks byte by byte: the frame, Avro rows, deletes in the form that Spark wrote, damage."""

from __future__ import annotations

import json
import struct
from datetime import UTC, date, datetime
from decimal import Decimal

import fastavro
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from serde_lab.avro.schema import arrow_to_avro
from serde_lab.errors import DataError, TableError
from serde_lab.table.files.delete_block import decode_deletes, encode_deletes
from serde_lab.table.files.log_block import (
    BlockType,
    Damage,
    Header,
    LogBlock,
    decode_avro,
    encode_avro,
    frame_block,
    parse_blocks,
)

LONG = (pa.int64(),)


def test_the_frame_byte_by_byte() -> None:
    block = frame_block(BlockType.DELETE, {Header.INSTANT_TIME: "1é"}, b"abc")
    header = struct.pack(">iii", 1, 0, 3) + "1é".encode()
    length = 8 + len(header) + 8 + 3 + 4 + 8
    assert block == (
        b"#HUDI#"
        + struct.pack(">qii", length, 1, 1)
        + header
        + struct.pack(">q", 3)
        + b"abc"
        + struct.pack(">i", 0)
        + struct.pack(">q", length + 6)
    )
    (found,) = parse_blocks(pa.py_buffer(block))
    assert isinstance(found, LogBlock)
    assert (found.type, dict(found.header), found.instant) == (1, {0: "1é"}, "1é")
    assert found.content.to_pybytes() == b"abc"
    assert (found.offset, found.size_bytes) == (0, len(block))


def test_every_truncation_is_found() -> None:
    whole = frame_block(BlockType.AVRO_DATA, {Header.INSTANT_TIME: "1", Header.SCHEMA: "{}"}, b"xy")
    for size in range(1, len(whole)):
        found = list(parse_blocks(pa.py_buffer(whole + whole[:size])))
        assert isinstance(found[0], LogBlock)
        assert isinstance(found[1], Damage)
        assert (found[1].offset, found[1].size_bytes) == (len(whole), size)
        assert len(found) == 2


def test_the_search_goes_on_behind_damage() -> None:
    whole = frame_block(BlockType.AVRO_DATA, {Header.INSTANT_TIME: "1"}, b"xy")
    found = list(parse_blocks(pa.py_buffer(b"junk" + whole + whole[:30] + whole)))
    assert [type(part).__name__ for part in found] == ["Damage", "LogBlock", "Damage", "LogBlock"]
    assert found[3].offset == 4 + len(whole) + 30


@given(st.data())
def test_no_damage_crashes_or_passes_for_another_length(data: st.DataObject) -> None:
    whole = frame_block(BlockType.DELETE, {Header.INSTANT_TIME: "1", Header.SCHEMA: "{}"}, b"abcd")
    at = data.draw(st.integers(0, len(whole) - 1))
    broken = bytearray(whole)
    broken[at] ^= data.draw(st.integers(1, 255))
    found = list(parse_blocks(pa.py_buffer(bytes(broken))))
    assert sum(part.size_bytes for part in found) == len(whole)


SCHEMA = pa.schema([("id", pa.string()), ("n", pa.int64()), pa.field("must", pa.int32(), False)])
AVRO = json.dumps(
    {
        "type": "record",
        "name": "r",
        "fields": [
            {"name": "id", "type": ["null", "string"], "default": None},
            {"name": "n", "type": ["null", "long"], "default": None},
            {"name": "must", "type": "int"},
        ],
    }
)


def test_avro_rows_are_those_of_a_plain_writer() -> None:
    import io

    rows = [{"id": "a", "n": 1, "must": -1}, {"id": None, "n": None, "must": 2**31 - 1}]
    batch = pa.RecordBatch.from_pylist(rows, schema=SCHEMA)
    content = encode_avro(batch, AVRO)
    expected = struct.pack(">ii", 3, 2)
    for row in rows:
        out = io.BytesIO()
        fastavro.schemaless_writer(out, fastavro.parse_schema(json.loads(AVRO)), row)
        expected += struct.pack(">i", len(out.getvalue())) + out.getvalue()
    assert content.to_pybytes() == expected
    assert decode_avro(content, AVRO, "f").to_pylist() == rows
    assert decode_avro(encode_avro(batch.slice(0, 0), AVRO), AVRO, "f").num_rows == 0


def test_a_map_with_a_key_twice_is_no_avro_row() -> None:
    """Java keeps the last of its values, and other readers both."""
    kind = pa.list_(pa.map_(pa.string(), pa.int32()))
    avro = json.dumps(arrow_to_avro(pa.schema([pa.field("m", kind)]), "record", "of.test"))

    def rows(*keys: str) -> pa.RecordBatch:
        maps = [None, [[(key, 1) for key in keys], [("b", 2)]], [[("c", 1)]]]
        return pa.record_batch([pa.array(maps, kind)], names=["m"]).slice(1)

    assert decode_avro(encode_avro(rows("a", "b"), avro), avro, "").num_rows == 2
    with pytest.raises(DataError, match=r"'m\.element' has a map with a key twice"):
        encode_avro(rows("a", "b", "a"), avro)


def test_every_truncation_of_avro_rows_is_found() -> None:
    batch = pa.RecordBatch.from_pylist([{"id": "a", "n": 1, "must": -1}] * 2, schema=SCHEMA)
    content = encode_avro(batch, AVRO)
    for size in range(content.size):
        with pytest.raises(TableError, match=r"^f"):
            decode_avro(content.slice(0, size), AVRO, "f")
    with pytest.raises(TableError, match="follow its last record"):
        decode_avro(pa.py_buffer(content.to_pybytes() + b"x"), AVRO, "f")
    with pytest.raises(TableError, match="of version 2"):
        decode_avro(pa.py_buffer(struct.pack(">ii", 2, 0)), AVRO, "f")


def test_deletes_as_spark_writes_them() -> None:
    # one delete by commit time: branch Int, value 0
    listed = b"\x02" + b"\x02\x0eTXN-002" + b"\x02\x12region=us" + b"\x04\x00" + b"\x00"
    content = struct.pack(">ii", 3, len(listed)) + listed
    found = decode_deletes(pa.py_buffer(content), LONG, "f")
    assert found.keys.to_pylist() == ["TXN-002"]
    assert found.commit_time.tolist() == [True]
    assert encode_deletes(found.keys, "region=us").to_pybytes() == content


@pytest.mark.parametrize(
    ("values", "branch"),
    [
        (pa.array([True, False]), 1),
        (pa.array([5, -7], pa.int32()), 2),
        (pa.array([2**40, -1], pa.int64()), 3),
        (pa.array([1.5, -0.0], pa.float32()), 4),
        (pa.array([1.5, float("inf")], pa.float64()), 5),
        (pa.array(["é", ""]), 7),
        (pa.array([date(2024, 1, 2), date(1960, 1, 1)]), 2),
        (pa.array([Decimal("12.34"), Decimal("-0.01")], pa.decimal128(15, 2)), 9),
        (pa.array([datetime(2024, 1, 2, tzinfo=UTC)] * 2, pa.timestamp("us", "UTC")), 3),
    ],
    ids=lambda value: str(getattr(value, "type", value)),
)
def test_ordering_values_of_every_type(values: pa.Array, branch: int) -> None:
    keys = pa.array(["k1", "k" * 200])
    content = encode_deletes(keys, "p", (values,))
    found = decode_deletes(content, (values.type,), "f")
    assert found.keys.equals(keys)
    assert found.commit_time.tolist() == [False, False]
    assert found.ordering == (values,)
    # count, then union 1 and key of two bytes, then union 1 and "p", then the branch
    assert content.to_pybytes()[8 + 1 + 4 + 3] == 2 * branch


def test_an_ordering_value_becomes_a_wider_type_as_in_a_row() -> None:
    narrow = pa.array([0.7, 0.1], pa.float32())
    content = encode_deletes(pa.array(["a", "b"]), "p", (narrow,))
    found = decode_deletes(content, (pa.float64(),), "f")
    assert found.ordering[0].to_pylist() == [0.7, 0.1]


def test_decimals_keep_all_digits_that_a_delete_block_has() -> None:
    text = "123456789012345.678901234567891"
    values = pa.array([Decimal(text), Decimal(f"-{text}")], pa.decimal128(30, 15))
    content = encode_deletes(pa.array(["a", "b"]), "p", (values,))
    assert decode_deletes(content, (values.type,), "f").ordering == (values,)


def deletes(*records: tuple[str, object]) -> pa.Buffer:
    """A delete block by a plain writer, whose union may differ from record to record."""
    import io

    from serde_lab.table.files.delete_block import DELETE_LIST_SCHEMA

    listed = [
        {"recordKey": key, "partitionPath": None, "orderingVal": value} for key, value in records
    ]
    out = io.BytesIO()
    fastavro.schemaless_writer(out, DELETE_LIST_SCHEMA, {"deleteRecordList": listed})
    return pa.py_buffer(struct.pack(">ii", 3, len(out.getvalue())) + out.getvalue())


def test_blocks_that_mix_branches() -> None:
    content = deletes(("a", None), ("b", {"Long": 7}), ("c", {"Int": 0}), ("d", {"Int": 3}))
    found = decode_deletes(content, LONG, "f")
    assert found.keys.to_pylist() == ["a", "b", "c", "d"]
    assert found.commit_time.tolist() == [True, False, True, False]
    assert found.ordering[0].to_pylist() == [None, 7, None, 3]


def test_several_ordering_fields() -> None:
    # as Apache Hudi writes them: ArrayWrapper, the array's branch, two wrappers, the end of the array
    array = b"\x18" + b"\x02" + b"\x04" + b"\x06\x0e" + b"\x0e\x02x" + b"\x00"
    listed = b"\x02" + b"\x02\x02a" + b"\x02\x02p" + array + b"\x00"
    content = struct.pack(">ii", 3, len(listed)) + listed
    types = (pa.int64(), pa.string())
    found = decode_deletes(pa.py_buffer(content), types, "f")
    assert found.commit_time.tolist() == [False]
    assert [values.to_pylist() for values in found.ordering] == [[7], ["x"]]
    assert encode_deletes(found.keys, "p", found.ordering).to_pybytes() == content
    with pytest.raises(TableError, match="has 2 ordering values; the table has 1"):
        decode_deletes(pa.py_buffer(content), LONG, "f")


def test_dates_and_times_in_all_their_wrappers() -> None:
    parts = [{"LocalDate": 1}, {"Int": 1}, {"Date": 1}, {"Long": 5}, {"TimestampMicros": 5}]
    content = deletes(("a", {"wrappedValues": parts}), ("b", {"Int": 0}), ("c", None))
    day, moment = pa.date32(), pa.timestamp("us", "UTC")
    found = decode_deletes(content, (day, day, day, moment, moment), "f")
    assert found.commit_time.tolist() == [False, True, True]
    at = datetime(1970, 1, 1, 0, 0, 0, 5, UTC)
    assert [v.to_pylist() for v in found.ordering[:3]] == [[date(1970, 1, 2), None, None]] * 3
    assert [v.to_pylist() for v in found.ordering[3:]] == [[at, None, None]] * 2


def test_no_deletes_are_none() -> None:
    found = decode_deletes(encode_deletes(pa.array([], pa.string()), ""), LONG, "f")
    assert len(found) == 0


def test_every_truncation_of_deletes_is_found() -> None:
    content = encode_deletes(pa.array(["k1", "k2"]), "p", (pa.array([1, 2]),))
    for size in range(content.size):
        with pytest.raises(TableError, match=r"^f: "):
            decode_deletes(content.slice(0, size), LONG, "f")


def test_ordering_values_that_have_no_form() -> None:
    keys = pa.array(["a"])
    with pytest.raises(DataError, match=r"does not fit into decimal\(30, 15\)"):
        encode_deletes(keys, "", (pa.array([Decimal(10) ** 20], pa.decimal128(38, 0)),))
    with pytest.raises(DataError, match="null ordering value"):
        encode_deletes(keys, "", (pa.array([None], pa.int64()),))
    with pytest.raises(TableError, match="ordering values of type string; the table has int64"):
        decode_deletes(encode_deletes(keys, "", (pa.array(["x"]),)), LONG, "f")


def test_many_deletes_have_their_own_values() -> None:
    keys = pa.array([f"key-{n}" for n in range(3000)])
    values = pa.array(np.arange(3000) * 7)
    found = decode_deletes(encode_deletes(keys, "p", (values,)), LONG, "f")
    assert found.keys.equals(keys)
    assert found.ordering[0].equals(values)
