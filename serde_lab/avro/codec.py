"""Encodes Arrow batches as Avro datums and decodes them, without a loop over records.

The bytes equal those of a record-by-record writer. Hudi's Avro log blocks and the `avro` strategy use
`AvroCodec`, which is bound to one schema. It works by column with numpy and pyarrow (`encoder.py`,
`decoder.py`). The caller provides the Avro schema (`schema.py` makes Hudi's).
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from serde_lab.avro import decoder, encoder
from serde_lab.avro.source import DamagedError, Source
from serde_lab.avro.tree import fit, parse
from serde_lab.avro.varint import Positions
from serde_lab.errors import DecodeError
from serde_lab.records.buffers import spans_of
from serde_lab.records.plain_form import from_plain_batch, to_plain
from serde_lab.records.schema import plain_schema


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
