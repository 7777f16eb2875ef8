"""avro keeps the laws of the SerDe interface, by row and by batch, and its bytes are Hudi's and Avro's."""

from __future__ import annotations

import io
from collections import Counter
from collections.abc import Callable
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any

import fastavro
import numpy as np
import pyarrow as pa
import pytest

from serde_lab.errors import DataError, DecodeError, OptionError
from serde_lab.records.keys import KeyGenerator
from serde_lab.records.schema import ENVELOPE, RecordSchema
from serde_lab.serde import registry
from serde_lab.serde.avro.datums import AvroDatums
from serde_lab.serde.conformance import Conformance
from serde_lab.serde.framing import schema_fingerprint
from serde_lab.serde.interface import Bounds, BoundSerde, SerdeOptions

pytestmark = pytest.mark.slow


class TestAvro(Conformance):
    name = "avro"
    golden = Path(__file__).parent / "golden"


DATA = pa.schema(
    [
        ("n", pa.int64()),
        ("price", pa.decimal128(15, 2)),
        ("l-note", pa.list_(pa.struct([("a b", pa.string())]))),
        ("m", pa.map_(pa.string(), pa.int32())),
    ]
)
SCHEMA = RecordSchema(DATA, record_key=("n",))
ROW = {"n": -3, "price": 1, "l-note": [{"a b": "é"}, None], "m": [("k", 64)]}
ENVELOPES = [("n:7", "dt=1", "f0", "U", "+U", False), ("n:8", "", "", "", "I", True)]
EXECUTIONS = ("row", "batch")
WAYS = {
    "row": {"execution": "row"},
    "batch": {"execution": "batch"},
    "one envelope at a time": {"execution": "row", "own": {"envelope": "record"}},
}

# Written by hand from the Avro specification.
PAYLOAD = (
    b"\x02\x05"  # branch 1, -3
    b"\x02\x00\x00\x00\x00\x00\x00\x64"  # branch 1, 1.00 as 100 in 7 bytes
    b"\x02\x04\x02\x02\x04\xc3\xa9\x00\x00"  # branch 1, block of 2: a record of a text; null; end
    b"\x02\x02\x02k\x02\x80\x01\x00"  # branch 1, block of 1: key, branch 1, 64; end
)
RECORDS = [
    b"\x06n:7\x08dt=1\x04f0\x02U\x04+U\x00" + bytes([2 * len(PAYLOAD)]) + PAYLOAD,
    b"\x06n:8\x00\x00\x00\x02I\x01\x00",
]


def batch() -> pa.RecordBatch:
    columns = [
        pa.array(list(v), f.type)
        for v, f in zip(zip(*ENVELOPES, strict=True), ENVELOPE, strict=True)
    ]
    columns += [pa.array([ROW[f.name], None], f.type) for f in DATA]
    return pa.record_batch(columns, schema=SCHEMA.batch_schema)


def bound(**options: object) -> BoundSerde:
    return registry.bind("avro", SCHEMA, SerdeOptions(**options))  # type: ignore[arg-type]


def header(form: int) -> bytes:
    return b"\xa4" + bytes([form]) + schema_fingerprint(SCHEMA).to_bytes(4, "little")


def frames(serde: BoundSerde) -> list[bytes]:
    found: list[bytes] = serde.encode(serde.from_arrow(batch()), Bounds.single(2)).frame.to_pylist()
    return found


@pytest.mark.parametrize("way", WAYS)
def test_frames_are_what_their_description_says(way: str) -> None:
    assert frames(bound(**WAYS[way])) == [header(1) + record for record in RECORDS]
    sizes = b"".join(len(record).to_bytes(4, "little") for record in RECORDS)
    several = header(2) + (2).to_bytes(4, "little") + sizes + b"".join(RECORDS)
    assert frames(bound(**WAYS[way], rows_per_frame=0)) == [several]


def test_a_record_is_an_avro_datum_to_anyone() -> None:
    names = ("recordKey", "partitionPath", "fileId", "instantTime", "operation")
    fields = [{"name": name, "type": "string"} for name in names]
    fields += [{"name": "isIndexRecord", "type": "boolean"}, {"name": "payload", "type": "bytes"}]
    schema = {"type": "record", "name": "HoodieRecord", "fields": fields}
    for frame, envelope in zip(frames(bound()), ENVELOPES, strict=True):
        stream = io.BytesIO(frame[6:])
        found = fastavro.schemaless_reader(stream, schema, None)
        assert stream.read() == b""
        assert tuple(found.values())[:-1] == envelope
        assert found["payload"] == (b"" if envelope[-1] else PAYLOAD)


def test_records_of_row_execution_are_fastavros_datums() -> None:
    first, second = bound().from_arrow(batch()).datums  # type: ignore[attr-defined]
    note = [{"_0_a_b": "é"}, None]
    assert first == {"n": -3, "price": b"\0\0\0\0\0\0\x64", "_2_l_note": note, "m": {"k": 64}}
    assert second is None


@pytest.mark.parametrize("execution", EXECUTIONS)
def test_a_map_with_a_key_twice_is_refused_by_column(execution: str) -> None:
    inner = pa.struct([("m", pa.map_(pa.string(), pa.int8()))])
    schema = RecordSchema(pa.schema([("c", pa.list_(inner))]), record_key=("c",))
    serde = registry.bind("avro", schema, SerdeOptions(execution=execution))  # type: ignore[arg-type]
    envelope = [pa.array([value] * 2) for value in ENVELOPES[0]]

    def sent(*keys: str) -> pa.RecordBatch:
        maps = [[{"m": [("k", 1)]}, {"m": [("k", 1)]}], [{"m": [(key, 1) for key in keys]}]]
        return pa.record_batch(
            [*envelope, pa.array(maps, schema.data.field(0).type)], schema=schema.batch_schema
        )

    assert len(serde.from_arrow(sent("k", "l"))) == 2
    with pytest.raises(DataError, match=r"'c\.element\.m' has a map with a key twice"):
        serde.from_arrow(sent("k", "l", "k"))


@pytest.mark.parametrize("way", WAYS)
def test_an_index_record_with_a_row_is_refused(way: str) -> None:
    columns = dict(zip(SCHEMA.batch_schema.names, batch().columns, strict=True))
    columns["n"] = pa.array([7, 8])
    with pytest.raises(DataError, match="'n' of an index record"):
        bound(**WAYS[way]).from_arrow(
            pa.record_batch(list(columns.values()), schema=SCHEMA.batch_schema)
        )


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    "damaged",
    [
        header(3) + RECORDS[0],
        header(1) + RECORDS[1].replace(b"\x01\x00", b"\x00\x00"),  # a record without payload
        header(1) + RECORDS[0].replace(b"+U\x00", b"+U\x01"),  # an index record with one
        header(1)
        + RECORDS[0].replace(b"\x00" + RECORDS[0][-len(PAYLOAD) - 1 :], b"\x00\x04\x02\x05"),
        header(2),
        header(2) + b"\x01\0\0\0" + bytes([len(RECORDS[1]), 0, 0, 0]) + RECORDS[1],
        header(2) + b"\xff\xff\xff\xff" + RECORDS[0],
        header(2) + b"\x02\0\0\0" + b"\xff\xff\xff\xff" * 2 + RECORDS[1] * 2,
        header(2) + b"\x02\0\0\0" + bytes([len(RECORDS[1]), 0, 0, 0, 1, 0, 0, 0]) + RECORDS[1],
    ],
)
def test_frames_that_contradict_themselves_are_refused(way: str, damaged: bytes) -> None:
    with pytest.raises(DecodeError) as found:
        bound(**WAYS[way]).decode(pa.array([header(1) + RECORDS[1], damaged], pa.binary()))
    assert found.value.record == 1


@pytest.mark.parametrize("way", WAYS)
def test_damage_in_a_payload_names_the_record_among_index_records(way: str) -> None:
    whole = [header(1) + RECORDS[1], header(1) + RECORDS[0], header(1) + RECORDS[1]]
    broken = header(1) + RECORDS[0].replace(b"\x02\x05", b"\x08\x05")
    with pytest.raises(DecodeError) as found:
        bound(**WAYS[way]).decode(pa.array([*whole, broken, *whole], pa.binary()))
    assert found.value.record == 3


@pytest.mark.parametrize("way", WAYS)
def test_frames_in_the_middle_of_a_column_are_read(way: str) -> None:
    serde = bound(**WAYS[way])
    column = pa.array([b"junk", *frames(serde), b"junk"], pa.binary()).slice(1, 2)
    assert serde.decode(column).to_arrow().equals(batch())
    mixed = pa.array([*frames(bound(rows_per_frame=0)), *frames(serde)], pa.binary())
    twice = serde.decode(mixed).to_arrow()
    assert twice.slice(0, 2).equals(batch())
    assert twice.slice(2).equals(batch())
    taken = serde.decode(column).take(np.array([1, 0, 0])).to_arrow()
    assert taken.slice(1, 1).equals(batch().slice(0, 1))


def test_any_pattern_of_nulls_gives_the_bytes_of_the_batch_execution() -> None:
    names = ["c", "branch_of_c", *(f"c{i}" for i in range(8))]
    schema = RecordSchema(pa.schema([pa.field(name, pa.int32()) for name in names]), ("c",))
    # more patterns than schemas are kept
    patterns = np.arange(256)
    columns = [pa.repeat(7, 256).cast(pa.int32())] * 2
    columns += [
        pa.array(np.full(256, i), pa.int32(), mask=patterns >> i & 1 == 1) for i in range(8)
    ]
    envelope = [pa.repeat(value, 256) for value in ENVELOPES[0]]
    sent = pa.record_batch([*envelope, *columns], schema=schema.batch_schema)
    by_row, by_column = (
        registry.bind("avro", schema, SerdeOptions(execution=execution))  # type: ignore[arg-type]
        for execution in EXECUTIONS
    )
    frames = [
        serde.encode(serde.from_arrow(sent), Bounds.single(256)).frame
        for serde in (by_row, by_column)
    ]
    assert frames[0].equals(frames[1])
    assert by_row.decode(frames[0]).to_arrow().equals(sent)


def test_an_envelope_of_its_own_gives_the_same_bytes_and_needs_rows() -> None:
    own = {"envelope": "record"}
    for rows in (0, 1):
        one, all_at_once = bound(own=own, rows_per_frame=rows), bound(rows_per_frame=rows)
        assert frames(one) == frames(all_at_once)
    with pytest.raises(OptionError, match="envelope = 'record' is for execution = 'row'"):
        bound(own=own, execution="batch")
    with pytest.raises(OptionError, match="envelope = 'both', expected 'columns' or 'record'"):
        bound(own={"envelope": "both"})


def test_keys_drawn_from_avro_records_are_those_of_the_key_generator() -> None:
    data = pa.schema(
        [("a", pa.int64()), ("day", pa.date32()), ("p", pa.decimal128(9, 2)), ("x", pa.string())]
    )
    schema = RecordSchema(data, record_key=("a", "day", "p"))
    rows = pa.record_batch(
        [
            pa.array([1, None, -3]),
            pa.array([0, 19_000, None], pa.date32()),
            pa.array([Decimal("1.50"), None, Decimal("-0.01")], pa.decimal128(9, 2)),
            pa.array(["u", "v", None]),
        ],
        schema=data,
    )
    sent = KeyGenerator(schema).envelop(rows)
    serde = registry.bind("avro", schema, SerdeOptions(own={"envelope": "record"}))
    records = serde.from_arrow(sent)
    assert isinstance(records, AvroDatums)
    assert records.drawn_keys().equals(records.record_keys())
    assert records.drawn_keys()[0].as_py() == "a:1,day:1970-01-01,p:1.50"
    index = serde.index_records(*(pa.array([text] * 2) for text in ("k", "", "f")))
    assert index.drawn_keys().to_pylist() == [None, None]  # type: ignore[attr-defined]


def test_drawing_keys_and_envelopes_of_their_own_take_their_own_calls(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    calls: list[str] = []
    for name in ("schemaless_writer", "schemaless_reader"):
        real = getattr(fastavro, name)
        counted = partial(_counted, calls, name, real)
        monkeypatch.setattr(fastavro, name, counted)
    drawn = AvroDatums.drawn_keys
    monkeypatch.setattr(AvroDatums, "drawn_keys", lambda self: calls.append("key") or drawn(self))
    serde = bound(own={"envelope": "record"})
    sent = frames(serde)
    serde.decode(pa.array(sent, pa.binary()))
    # two records, one of which has no row
    assert Counter(calls) == {"key": 1, "schemaless_writer": 3, "schemaless_reader": 3}
    calls.clear()
    bound().decode(pa.array(frames(bound()), pa.binary()))
    assert Counter(calls) == {"schemaless_writer": 1, "schemaless_reader": 1}


def _counted(calls: list[str], name: str, real: Callable[..., Any], *arguments: Any) -> Any:
    calls.append(name)
    return real(*arguments)
