"""The bridge from mergers to payload classes: RFC-46's HoodieAvroRecordMerger, with its detour.

Owns that detour, which is what it is there to show: rows become Avro bytes, a payload object each, a
decoded datum each, merged in Python, and Avro bytes and columns again. Its time is the phase `payload`.
Must not know files.
"""

from __future__ import annotations

import io
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import fastavro
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from serde_lab.avro.codec import AvroCodec
from serde_lab.avro.schema import arrow_to_avro
from serde_lab.merging.merger import PAYLOAD_STRATEGY, Merged, RecordMerger
from serde_lab.merging.payloads import Datum, RecordPayload, comparable, load_payload
from serde_lab.records.fields import values_at
from serde_lab.records.schema import RecordSchema


class AvroRecordMerger(RecordMerger):
    """Merges by the table's payload class, whatever a record is made of."""

    strategy_id = PAYLOAD_STRATEGY
    phase = "payload"

    def merge(
        self,
        older: pa.RecordBatch,
        newer: pa.RecordBatch,
        schema: RecordSchema,
        properties: Mapping[str, str],
    ) -> Merged:
        """By `combineAndGetUpdateValue` of the newer record."""
        bridge = _Bridge(newer.schema, schema.ordering)
        payload_class = load_payload(properties["hoodie.compaction.payload.class"])
        results: list[Datum | None] = []
        stands = np.zeros(newer.num_rows, np.bool_)
        current_avro = bridge.encoded(older)
        for row, payload in enumerate(bridge.payloads(newer, payload_class)):
            current = bridge.decode(current_avro[row])
            result = payload.combine_and_get_update_value(current, properties)
            stands[row] = result is current
            results.append(result)
        return bridge.merged(results, newer, stands)

    def pre_combine(
        self,
        older: pa.RecordBatch,
        newer: pa.RecordBatch,
        schema: RecordSchema,
        properties: Mapping[str, str],
    ) -> Merged:
        """By `preCombine`, as records of one batch are."""
        bridge = _Bridge(newer.schema, schema.ordering)
        payload_class = load_payload(properties["hoodie.compaction.payload.class"])
        before = bridge.payloads(older, payload_class)
        after = bridge.payloads(newer, payload_class)
        results: list[Datum | None] = []
        stands = np.zeros(newer.num_rows, np.bool_)
        for row, (old, new) in enumerate(zip(before, after, strict=True)):
            kept = new.pre_combine(old, properties)
            stands[row] = kept is old
            # the record stays whole here: whether it is a delete is asked when it meets what is stored
            results.append(kept.decode(kept.avro))
        return bridge.merged(results, newer, stands)


class _Bridge:
    """Rows of one schema as datums and back."""

    def __init__(self, schema: pa.Schema, ordering: tuple[str, ...]) -> None:
        self._schema, self._ordering = schema, ordering
        self._codec, self._avro = _codec(schema)

    def encoded(self, rows: pa.RecordBatch) -> list[bytes]:
        found: list[bytes] = self._codec.encode(rows).to_pylist()
        return found

    def decode(self, datum: bytes) -> Datum:
        found: Any = fastavro.schemaless_reader(io.BytesIO(datum), self._avro, None)
        return found

    def payloads(
        self, rows: pa.RecordBatch, payload_class: type[RecordPayload]
    ) -> list[RecordPayload]:
        columns = [values_at(rows, name).to_pylist() for name in self._ordering]
        values = [tuple(map(comparable, each)) for each in zip(*columns, strict=True)]
        if not columns:
            values = [()] * rows.num_rows
        return [
            payload_class(datum, value, self.decode)
            for datum, value in zip(self.encoded(rows), values, strict=True)
        ]

    def merged(
        self, results: list[Datum | None], like: pa.RecordBatch, stands: npt.NDArray[np.bool_]
    ) -> Merged:
        deleted = np.array([result is None for result in results], np.bool_)
        datums = [self._encoded_datum(result) for result in results if result is not None]
        rows = self._codec.decode(pa.array(datums, pa.binary()), "payload")
        number = np.cumsum(~deleted) - 1
        if deleted.any():
            rows = rows.take(pa.array(number, mask=deleted))
        columns = [rows.column(field.name).cast(field.type) for field in like.schema]
        made = pa.RecordBatch.from_arrays(columns, schema=like.schema)
        return Merged(made, deleted if deleted.any() else None, stands)

    def _encoded_datum(self, datum: Datum) -> bytes:
        out = io.BytesIO()
        fastavro.schemaless_writer(out, self._avro, datum)
        return out.getvalue()


@lru_cache(maxsize=16)
def _codec(schema: pa.Schema) -> tuple[AvroCodec, Any]:
    # a row that deletes says nothing: every column may be null here
    plain = pa.schema([pa.field(f.name, f.type) for f in schema])
    avro = arrow_to_avro(plain, "record", "hoodie.payload")
    return AvroCodec(avro, plain), fastavro.parse_schema(avro)
