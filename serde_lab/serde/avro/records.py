"""Strategy `avro`: Hudi's Avro HoodieRecord, an envelope around an Avro payload.

`execution = "row"` (default): `Records` holds fastavro's datums, a dict a row, and the envelope's six
columns. Values are physical, as in Hudi's GenericRecords: days, microseconds, a decimal as the bytes of
its `fixed` (`python_values.py`). The Avro schema is used without logical types, which do not change the
bytes. Converting builds dicts, in blocks that stay in the CPU's caches; serialising is one call of
fastavro's schemaless_writer or schemaless_reader a record. Python's garbage collector rests meanwhile.

fastavro finds the branch of a union by trying one after the other, which takes a third of the time of
writing. It has nothing to try in a schema where each column is two fields, the branch as an int and the
value: these give the same bytes (`AvroColumnNames.without_unions`). fastavro's tuple notation, which names
the branch beside every value, gains half as much, and the tuples have to be made.

`execution = "batch"`: `Records` holds the columns, in plain form. Converting costs next to nothing, and
`serde_lab/avro/codec.py` reads and writes the same bytes a column at a time. Both executions have the same
format, so the difference in time is the cost of a loop over records.

Both write the envelope and the frames (`avro/frames.py`) by columns: fastavro would write them one
by one, though they are not part of the payload.

`envelope = "record"` (with `execution = "row"` only) is Hudi's Flink writer before RFC-84, which says: "the
first step is row data conversion into Avro record, which is used for key generation, and passed to the
following operators as part of HoodieRecord". `from_arrow` makes the datums and then draws each record's key
from its datum; `encode` and `decode` handle one envelope after another, each by one call of fastavro. The
bytes are those of `envelope = "columns"`. The pipeline has made the same key already, by which it routes the
record, so the drawn key is dropped; a test compares the two.

Names that Avro does not allow are replaced by allowed ones (`with_avro_names` in
`serde_lab/avro/schema.py`); the bytes hold no names. A table with such names is refused elsewhere. A map
that has a key twice is refused, since neither Java's nor Python's maps can hold it.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any

import pyarrow as pa

from serde_lab.avro.codec import check_maps
from serde_lab.errors import OptionError
from serde_lab.records.plain_form import to_plain_batch
from serde_lab.records.schema import RecordSchema, check_supported, plain_schema
from serde_lab.serde.avro.column_names import AvroColumnNames
from serde_lab.serde.avro.datums import AvroColumns, AvroDatums, AvroRecords
from serde_lab.serde.avro.frames import MARK, AvroFrames
from serde_lab.serde.framing import without_collector
from serde_lab.serde.interface import (
    Bounds,
    BoundSerde,
    Fairness,
    Frames,
    Records,
    SerdeOptions,
    Strategy,
)
from serde_lab.serde.projection.plan import Projection
from serde_lab.serde.record_verbs import MetadataValues
from serde_lab.serde.registry import resolve

_DECODE_BYTES = 4 << 20


class BoundAvro(BoundSerde):
    name = "avro"
    mark = MARK

    @cached_property
    def _columns(self) -> AvroColumnNames:
        return AvroColumnNames(self.schema)

    @cached_property
    def _frames(self) -> AvroFrames:
        return AvroFrames.of(self.schema, self.options)

    @property
    def decode_bytes(self) -> int | None:
        # the codec reads intermediate results again, which is faster while they are in the CPU's caches
        return None if self.options.execution == "row" else _DECODE_BYTES

    @property
    def _draws_keys(self) -> bool:
        """Whether each record's key is drawn from its datum; a table without keys has none to draw."""
        return self.options.own.get("envelope") == "record" and bool(self.schema.record_key)

    @property
    def _records(self) -> type[AvroDatums] | type[AvroColumns]:
        return AvroDatums if self.options.execution == "row" else AvroColumns

    @without_collector()
    def from_arrow(self, batch: pa.RecordBatch) -> AvroRecords:
        plain = to_plain_batch(batch)
        for name, column in zip(plain.schema.names, plain.columns, strict=True):
            check_maps(name, column)
        plain = pa.record_batch(plain.columns, schema=plain_schema(self.schema.batch_schema))
        records = self._records.of_batch(self._columns, plain)
        if isinstance(records, AvroDatums) and self._draws_keys:
            records.drawn_keys()
        return records

    @without_collector()
    def encode(self, records: Records, bounds: Bounds) -> Frames:
        assert isinstance(records, AvroRecords)
        return self._frames.join(records.envelope, records.payload(), bounds)

    @without_collector()
    def decode(self, frames: pa.BinaryArray) -> AvroRecords:
        envelope, payload = self._frames.split(frames)
        return self._records.of_payload(self._columns, envelope, payload)

    def project(self, projection: Projection, sides: Sequence[Records]) -> AvroRecords:
        found: list[Any] = []
        for side in sides:
            assert isinstance(side, self._records)
            found.append(side)
        return self._records.of_projection(self._columns, projection, found)

    def update_metadata(self, records: Records, values: MetadataValues) -> AvroRecords:
        assert isinstance(records, AvroRecords)
        return records.with_metadata(values)


class AvroStrategy(Strategy):
    """Hudi's Avro records; see the module's docstring."""

    name = "avro"
    executions = ("row", "batch")
    default_rows_per_frame = 1

    def bind(self, schema: RecordSchema, options: SerdeOptions) -> BoundAvro:
        check_supported(schema.data)
        own = resolve(self, options, {"envelope": ("columns", "record")})
        if own.own["envelope"] == "record" and own.execution != "row":
            raise OptionError(
                f"{self.name}: envelope = 'record' is for execution = 'row', but execution is"
                f" {own.execution!r}"
            )
        return BoundAvro(schema, own)

    def fairness(self) -> Fairness:
        return Fairness(
            schema_known="both sides know the schema; a frame carries 4 bytes of its fingerprint, "
            "not the schema as an Avro file does",
            copies="row: every value becomes a Python object in a dict, its bytes are copied into the "
            "payload, then into the frame; batch: columns are copied into datums, then into the frame",
            batching="row: payloads are written one call of fastavro a record into one buffer; batch: "
            "a column at a time; frames are built by columns in both, and so are envelopes unless"
            " envelope = 'record', which writes them one by one as Hudi's writer did before RFC-84",
            trust="bytes are checked as they are read; row: fastavro accepts a union's branch of -1 "
            "as the last, and an invalid value raises when it is converted out",
            notes="values are physical (days, microseconds, a decimal as its fixed), as in Hudi's own "
            "Avro records; fastavro tries the branches of a union only inside nested columns",
        )
