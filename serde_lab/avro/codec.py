"""Encodes Arrow batches as Avro datums and decodes them, and reads and writes Avro's container files.

`AvroCodec` is bound to one schema and works by column with numpy and pyarrow (`encoder.py`, `decoder.py`),
without a loop over records. Its bytes equal those of a record-by-record writer. Hudi's Avro log blocks and
the `avro` strategy use it. The caller provides the Avro schema (`schema.py` makes Hudi's).

A container file has one record, as Hudi stores commit metadata and plans; their schemas are in `hudi/`.
Containers have the form that Hudi's own writers give them: no codec, and the schema, word for word, as the
only metadata. A library's writer would normalise the schema and draw a random sync marker, so that equal
commits would have different bytes.
"""

from __future__ import annotations

import hashlib
import io
import json
from collections.abc import Mapping
from importlib.resources import files
from typing import Any, cast

import fastavro
import numpy as np
import pyarrow as pa
import pyarrow.types as pat
from fastavro.schema import SchemaParseException

from serde_lab.avro import decoder, encoder
from serde_lab.avro.source import DamagedError, Source
from serde_lab.avro.tree import fit, parse
from serde_lab.avro.varint import Positions
from serde_lab.errors import DataError, DecodeError, TableError
from serde_lab.records.buffers import lengths_of, spans_of
from serde_lab.records.plain_form import from_plain_batch, to_plain
from serde_lab.records.schema import is_list, plain_schema


class AvroCodec:
    """Encodes and decodes batches of one Avro record type. Picklable.

    `avro` is the schema of the datums, as JSON text or parsed. `schema` is the Arrow schema of the
    batches, by default the result of `schema.avro_to_arrow`. Columns and fields must have the same names
    in the same order. Raises SchemaError naming the column.
    """

    def __init__(self, avro: Any, schema: pa.Schema | None = None) -> None:
        root = parse(avro)
        self.schema: pa.Schema = pa.schema(root.arrow_fields()) if schema is None else schema
        self._root = fit(root, plain_schema(self.schema))

    def encode(self, batch: pa.RecordBatch) -> pa.BinaryArray:
        """One datum per row of `batch`, which has the columns of `schema`.

        The bytes are those of fastavro's schemaless_writer and of Java's GenericDatumWriter. Raises
        DataError if a value is null where its Avro type has no null, or if the datums reach 2 GiB.
        """
        rows = to_plain(pa.StructArray.from_arrays(batch.columns, fields=list(self.schema)))
        return encoder.encode(self._root, rows)

    def decode(self, datums: pa.BinaryArray, name: str = "avro") -> pa.RecordBatch:
        """One row per datum. Raises DecodeError naming `name` and the row."""
        if datums.null_count:
            null = int(datums.is_null().to_numpy(zero_copy_only=False).argmax())
            raise DecodeError(name, null, "it is null")
        data, ends = spans_of(datums)
        return self.decode_spans(data, ends[:-1], ends[1:], name)

    def decode_spans(
        self, data: pa.Buffer | bytes, starts: Positions, ends: Positions, name: str = "avro"
    ) -> pa.RecordBatch:
        """The rows of `data`: row i is in bytes starts[i] to ends[i]. Rows rise and do not overlap.

        Raises DecodeError naming `name` and the row.
        """
        at = starts.copy()
        try:
            rows = decoder.decode(self._root, Source(data), at, ends)
        except DamagedError as exc:
            raise DecodeError(name, exc.index, exc.problem) from None
        if (at != ends).any():
            row = int((at != ends).argmax())
            raise DecodeError(name, row, f"{ends[row] - at[row]} bytes follow its last field")
        batch = pa.record_batch(rows.flatten(), schema=pa.schema(self._root.arrow_fields()))
        return from_plain_batch(batch, self.schema)


_MAGIC = b"Obj\x01"


def hudi_schema(name: str) -> dict[str, Any]:
    """Hudi's record schema of this name, as its writers use it: `hudi/<name>.avsc`."""
    text = (files("serde_lab.avro") / "hudi" / f"{name}.avsc").read_text(encoding="utf-8")
    return cast(dict[str, Any], json.loads(text))


def write_single(schema: Mapping[str, Any], record: Mapping[str, Any]) -> bytes:
    """A container that holds `record`. Source: Avro 1.11 specification, object container files."""
    text = json.dumps(schema, separators=(",", ":")).encode()
    sync = hashlib.md5(text, usedforsecurity=False).digest()
    datum = io.BytesIO()
    fastavro.schemaless_writer(datum, fastavro.parse_schema(dict(schema)), record)
    body = datum.getvalue()
    return b"".join(
        (
            _MAGIC,
            long_bytes(1) + _bytes(b"avro.schema") + _bytes(text) + long_bytes(0),
            sync,
            long_bytes(1) + _bytes(body),  # the number of records, then the block's size and bytes
            sync,
        )
    )


def read_single(content: bytes, where: str) -> dict[str, Any]:
    """The record of a one-record container. Raises TableError naming `where` if `content` is not one."""
    try:
        records = list(fastavro.reader(io.BytesIO(content)))
    except (ValueError, EOFError, KeyError, IndexError, TypeError, SchemaParseException) as exc:
        raise TableError(
            f"{where}: is not a readable Avro file: {exc or type(exc).__name__}"
        ) from exc
    if len(records) != 1:
        raise TableError(f"{where}: holds {len(records)} Avro records; one was expected")
    return cast(dict[str, Any], records[0])


def _bytes(data: bytes) -> bytes:
    return long_bytes(len(data)) + data


def long_bytes(number: int) -> bytes:
    """A non-negative number as Avro's zigzag varint."""
    number <<= 1
    out = bytearray()
    while number >= 0x80:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def check_maps(path: str, array: pa.Array) -> None:
    """Raise DataError naming the column if a map of the plain `array` has a key twice, as no Java map has."""
    t = array.type
    if pat.is_map(t):
        keys = array.keys.dictionary_encode()
        map_of = np.repeat(np.arange(len(array)), lengths_of(array))
        pairs = map_of * len(keys.dictionary) + keys.indices.to_numpy()
        if len(np.unique(pairs)) < len(pairs):
            raise DataError(
                f"column {path!r} has a map with a key twice, which Avro's maps cannot have"
            )
        check_maps(f"{path}.value", array.items)
    elif is_list(t):
        check_maps(f"{path}.element", array.values)
    elif pat.is_struct(t):
        for index, field in enumerate(t):
            check_maps(f"{path}.{field.name}", array.field(index))
