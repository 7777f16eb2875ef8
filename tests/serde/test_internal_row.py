"""internal_row keeps the laws of the SerDe interface, and its bytes are those that it describes."""

from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from serde_lab.errors import DataError, DecodeError
from serde_lab.records.schema import RecordSchema
from serde_lab.serde.conformance import Conformance
from serde_lab.serde.framing import schema_fingerprint
from serde_lab.serde.interface import Bounds, SerdeOptions
from serde_lab.serde.internal_row import records as internal_row_records
from serde_lab.serde.internal_row.strategy import BoundInternalRow, InternalRowStrategy

pytestmark = pytest.mark.slow


class TestInternalRow(Conformance):
    name = "internal_row"
    golden = Path(__file__).parent / "golden"
    own_options = ({}, {"layout": "nested"})


@pytest.mark.slow
class TestInternalRowInBlocks(Conformance):
    """The same laws where every few records are a block of their own."""

    name = "internal_row"
    golden = Path(__file__).parent / "golden"

    @pytest.fixture(autouse=True)
    def _few(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(internal_row_records, "BLOCK_ROWS", 3)


class TestManyInternalRows(TestInternalRowInBlocks):
    """The same laws where what was read is never kept."""

    @pytest.fixture(autouse=True)
    def _fewer(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(internal_row_records, "MOST_KEPT_ROWS", 3)


DATA = pa.schema(
    [
        pa.field("flag", pa.bool_()),
        pa.field("text", pa.string()),
        pa.field("price", pa.decimal128(9, 2)),
        pa.field("items", pa.list_(pa.int16())),
    ]
)
SCHEMA = RecordSchema(DATA, record_key=("text",))


def bind(schema: RecordSchema = SCHEMA, **options: Any) -> BoundInternalRow:
    return InternalRowStrategy().bind(schema, SerdeOptions(**options))


def batch_of(*rows: tuple[Any, ...]) -> pa.RecordBatch:
    columns = zip(*rows, strict=True)
    arrays = [pa.array(c, f.type) for c, f in zip(columns, SCHEMA.batch_schema, strict=True)]
    return pa.record_batch(arrays, schema=SCHEMA.batch_schema)


# key, partition, file id, instant, operation, index?, then the data
WITH_ROW = ("k1", "p", "file", "2024", "U", False, True, "é", Decimal("-1.28"), [1, None, -2])
INDEX = ("k2", "", "file", "", "", True, None, None, None, None)


def frames_of(bound: BoundInternalRow, batch: pa.RecordBatch) -> list[bytes]:
    records = bound.from_arrow(batch)
    found: list[bytes] = bound.encode(records, Bounds.single(len(batch))).frame.to_pylist()
    return found


def by_hand(fingerprint: bytes) -> tuple[bytes, bytes]:
    """The two records as `internal_row/layout.py` describes them, put together here."""
    envelope = b"\xa1\x01" + fingerprint + bytes([1, 4, 4, 0, 1, 0, 2, 0, 0, 0])
    items = b"\x03\0\0\0" + b"\x02" + b"\x01\0" + b"\0\0" + b"\xfe\xff"
    row = b"\0" + b"\x01" + b"\x80\xff\xff\xff" + b"\x02\0\0\0" + bytes([len(items), 0, 0, 0])
    with_row = envelope + row + b"U" + b"2024" + b"file" + b"p" + "é".encode() + items + b"k1"
    index = b"\xa1\x02" + fingerprint + bytes([0, 0, 4, 0, 0, 0, 2, 0, 0, 0]) + b"file" + b"k2"
    return with_row, index


FINGERPRINT = schema_fingerprint(SCHEMA).to_bytes(4, "little")


@pytest.mark.parametrize("execution", ["batch", "row"])
def test_the_bytes_are_those_of_the_description(execution: str) -> None:
    bound = bind(execution=execution)
    batch = batch_of(WITH_ROW, INDEX)
    assert frames_of(bound, batch) == list(by_hand(FINGERPRINT))
    assert bound.decode(pa.array(by_hand(FINGERPRINT))).to_arrow().equals(batch)


@pytest.mark.parametrize("execution", ["batch", "row"])
def test_a_frame_of_several_has_a_table_of_lengths(execution: str) -> None:
    bound = bind(execution=execution, rows_per_frame=0)
    with_row, index = by_hand(FINGERPRINT)
    lengths = b"".join(len(r).to_bytes(4, "little") for r in (with_row, index))
    expected = b"\xa1\x03\0\0" + b"\x02\0\0\0" + lengths + with_row + index
    assert frames_of(bound, batch_of(WITH_ROW, INDEX)) == [expected]
    # a frame of one has none, and both stand in one column
    found = bound.decode(pa.array([index, expected, with_row, expected], pa.binary()))
    keys = ["k2", "k1", "k2", "k1", "k1", "k2"]
    assert found.record_keys().to_pylist() == keys


def test_frames_of_one_record_are_the_records_own_buffer() -> None:
    bound = bind()
    records = bound.from_arrow(batch_of(WITH_ROW, WITH_ROW))
    frames = bound.encode(records, Bounds.each(np.array([3, 1]))).frame
    assert frames.buffers()[2].address == records.rows.buffers()[2].address
    assert bound.decode(frames).rows.buffers()[2].address == frames.buffers()[2].address


@pytest.mark.parametrize(
    ("execution", "block_rows"), [("batch", 1 << 14), ("batch", 2), ("row", 1 << 14)]
)
@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (lambda r: r.replace(b"\xa1\x01", b"\xa1\x04", 1), "not a record of this strategy"),
        (lambda r: r.replace(FINGERPRINT, b"abcd", 1), "not a record of this strategy and schema"),
        (lambda r: r[:16] + b"\x10" + r[17:], "null bits are set after its last field"),
        (lambda r: r[:16] + b"\x01" + r[17:], "a null has bytes that are not zero"),
        (lambda r: r[:16] + b"\x08" + r[17:], "a null has bytes that are not zero"),
        (lambda r: r[:17] + b"\x02" + r[18:], "a boolean is neither 0 nor 1"),
        (lambda r: r[:18] + b"\0\xca\x9a\x3b" + r[22:], "a decimal has more than 9 digits"),
        (lambda r: r.replace("é".encode(), b"\xc3("), "a string of it is not UTF-8"),
        (lambda r: r.replace(b"file", b"\xff\xff\xff\xff"), "a string of it is not UTF-8"),
        (lambda r: r.replace(b"\x03\0\0\0\x02", b"\xff\xff\xff\x7f\x02"), "ends inside its items"),
        (lambda r: r.replace(b"\x03\0\0\0\x02", b"\x03\0\0\0\x0a"), "after its last item"),
        (
            lambda r: r.replace(b"\x03\0\0\0\x02", b"\x03\0\0\0\x01"),
            "a null has bytes that are not zero",
        ),
        (lambda r: r.replace(b"\x03\0\0\0\x02", b"\x02\0\0\0\x02"), "do not fill its bytes"),
        (lambda r: r[:22] + b"\x03" + r[23:], "lengths that it states|ends inside its items"),
    ],
)
def test_damage_is_named_with_its_record(
    execution: str,
    block_rows: int,
    change: Callable[[bytes], bytes],
    problem: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(internal_row_records, "BLOCK_ROWS", block_rows)
    with_row, index = by_hand(FINGERPRINT)
    damaged = change(with_row)
    assert damaged != with_row
    bound = bind(execution=execution)
    for frames in ([index, with_row, damaged, index], [with_row, with_row, damaged]):
        with pytest.raises(DecodeError, match=problem) as caught:
            bound.decode(pa.array(frames, pa.binary())).to_arrow()
        assert (caught.value.strategy, caught.value.record) == ("internal_row", 2)


@pytest.mark.parametrize(
    ("header", "problem"),
    [
        (b"\xa1\x03\0\0\x02\0\0", "ends inside its header"),
        (b"\xa1\x03\0\0\x01\0\0\0\x05\0\0\0abcde", "its header is invalid"),
        (b"\xa1\x03\x01\0\x02\0\0\0" + bytes(8), "its header is invalid"),
        (b"\xa1\x03\0\0\xff\xff\xff\xff" + bytes(8), "ends inside its table of lengths"),
        (b"\xa1\x03\0\0\x02\0\0\0" + b"\xff\xff\xff\xff" * 2, "lengths that it states"),
        (b"\xa1", "less than two bytes"),
    ],
)
def test_damaged_tables_are_named_with_their_frame(header: bytes, problem: str) -> None:
    bound = bind(rows_per_frame=5)
    (whole,) = frames_of(bound, batch_of(WITH_ROW, WITH_ROW))
    with pytest.raises(DecodeError, match=f"frame 1: .*{problem}"):
        bound.decode(pa.array([whole, header, whole], pa.binary()))


def test_only_columns_that_are_read_are_checked() -> None:
    """A hop that only routes pays for no value that it does not look at."""
    damaged = by_hand(FINGERPRINT)[0].replace("é".encode(), b"\xc3(")
    records = bind().decode(pa.array([damaged], pa.binary()))
    assert records.record_keys().to_pylist() == ["k1"]
    assert records.column("price").to_pylist() == [Decimal("-1.28")]
    with pytest.raises(DecodeError, match="not UTF-8"):
        records.column("text")


def test_keys_are_read_once_until_columns_are_forgotten() -> None:
    def place(keys: pa.Array) -> int:
        address: int = keys.buffers()[2].address
        return address

    frames = pa.array(by_hand(FINGERPRINT))
    records = bind().decode(frames)
    keys = records.record_keys()
    assert place(records.to_arrow().column(0)) == place(keys)
    # other columns are read anew
    text = records.column("text")
    assert place(records.column("text")) != place(text)
    records.forget_columns()
    again = records.record_keys()
    assert place(again) != place(keys)
    assert again.equals(keys)


@pytest.mark.parametrize("execution", ["batch", "row"])
def test_data_of_an_index_record_is_refused(execution: str) -> None:
    stray = (*INDEX[:7], "text", None, None)
    with pytest.raises(DataError, match="column 'text' of an index record has a value"):
        bind(execution=execution).from_arrow(batch_of(WITH_ROW, stray))


@pytest.mark.parametrize("execution", ["batch", "row"])
@pytest.mark.parametrize(
    ("place", "most", "name"),
    [
        (1, 65_535, "_hoodie_partition_path"),
        (2, 65_535, "_hoodie_file_id"),
        (3, 255, "_hoodie_instant_time"),
        (4, 255, "_hoodie_operation"),
    ],
)
def test_the_envelope_has_room_for_so_much(
    execution: str, place: int, most: int, name: str
) -> None:
    bound = bind(execution=execution)

    def of(length: int) -> pa.RecordBatch:
        return batch_of(WITH_ROW, (*WITH_ROW[:place], "x" * length, *WITH_ROW[place + 1 :]))

    frames = pa.array(frames_of(bound, of(most)), pa.binary())
    assert bound.decode(frames).column(name).to_pylist()[1] == "x" * most
    with pytest.raises(DataError, match=f"{name} has {most + 1} bytes .* at most {most}"):
        bound.from_arrow(of(most + 1))
