"""The verbs of the record API: the values that they take and return, and how they run on Arrow batches.

The values are record locations, and metadata to set. Their rules are arithmetic on envelope columns, which
every strategy can provide. `interface.py` has the verbs, `merging/rules.py` the rules of deletes.

The functions are for strategies that have no implementation of their own: the caller converts records out, a
function changes the batch, and the caller converts it in. That is always right and seldom fast;
`interface.verbs_through_arrow` names the verbs of a bound SerDe that do so.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pat

from serde_lab.errors import DataError
from serde_lab.records.plain_form import from_plain, to_plain, to_plain_batch
from serde_lab.records.schema import (
    DELETE,
    ENVELOPE,
    FILE_ID,
    INSERT,
    INSTANT_TIME,
    IS_INDEX_RECORD,
    OPERATION,
    UPDATE_AFTER,
    UPDATE_BEFORE,
    RecordSchema,
)
from serde_lab.serde.projection.columns import projected
from serde_lab.serde.projection.plan import Projection

OPERATIONS = (INSERT, UPDATE_BEFORE, UPDATE_AFTER, DELETE)
"""The names of org.apache.hudi.common.model.HoodieOperation; a record without an operation yet has ""."""

NEW_FILE_GROUP = "I"
"""The instant time of a record that opens a file group: RFC-84's bucket type, in place of a time."""

STORED_FILE_GROUP = "U"
"""The instant time of a record that goes to an existing file group."""

ColumnOf = Callable[[str], pa.Array]
"""The column of this name, in the type of the batch schema."""


@dataclass(frozen=True, slots=True)
class Locations:
    """Locations of records: one value a record in both arrays, null for a record without a location."""

    instant_time: pa.StringArray
    file_id: pa.StringArray

    @classmethod
    def current(cls, column: ColumnOf) -> Locations:
        """Where records are stored now: null unless they have the file id of an existing file group."""
        file_id, instant = column(FILE_ID), column(INSTANT_TIME)
        nowhere = pc.or_(pc.equal(file_id, ""), pc.equal(instant, NEW_FILE_GROUP))
        return cls(*(pc.if_else(nowhere, _NO_TEXT, column) for column in (instant, file_id)))

    @classmethod
    def new(cls, column: ColumnOf, instant_time: str) -> Locations:
        """Where a write of this instant puts records: null unless they have a file id."""
        file_id = column(FILE_ID)
        nowhere = pc.equal(file_id, "")
        instant = pc.if_else(nowhere, _NO_TEXT, pa.scalar(instant_time))
        return cls(instant, pc.if_else(nowhere, _NO_TEXT, file_id))


_NO_TEXT = pa.scalar(None, pa.string())


def as_filed(whole: pa.RecordBatch, keys: pa.StringArray, rows: pa.RecordBatch) -> pa.RecordBatch:
    """Records converted out as a whole, with the keys and rows that a file gets (`Records.to_rows`) in place
    of their own; equal to `whole` if a strategy is right.
    """
    columns = [keys, *whole.columns[1 : len(ENVELOPE)], *rows.columns]
    return pa.RecordBatch.from_arrays(columns, schema=whole.schema)


@dataclass(frozen=True, slots=True)
class MetadataValues:
    """New metadata: one text for all records, or one each; None keeps the old values.

    Record key, partition path and whether a record is an index record are final (RFC-84), so they
    cannot be set.
    """

    file_id: str | pa.StringArray | None = None
    instant_time: str | pa.StringArray | None = None
    operation: str | pa.StringArray | None = None

    def columns(self, rows: int) -> Mapping[str, str | pa.StringArray]:
        """The values to set, by name of the envelope column.

        Raises DataError, naming the column, for values that are null, too few or too many, and for an
        operation that Hudi does not have.
        """
        given = {
            FILE_ID: self.file_id,
            INSTANT_TIME: self.instant_time,
            OPERATION: self.operation,
        }
        found = {name: value for name, value in given.items() if value is not None}
        for name, value in found.items():
            if isinstance(value, str):
                continue
            if not pat.is_string(value.type) or value.null_count or len(value) != rows:
                raise DataError(
                    f"{name} is set by {len(value)} values of type {value.type}, "
                    f"{value.null_count} of them null, expected {rows} strings"
                )
        if OPERATION in found:
            _check_operations(found[OPERATION])
        return MappingProxyType(found)

    def arrays(self, rows: int) -> Mapping[str, pa.StringArray]:
        """The same as `columns`, with one value a record. Raises DataError as `columns` does."""
        return {
            name: pa.repeat(value, rows) if isinstance(value, str) else value
            for name, value in self.columns(rows).items()
        }


def _check_operations(value: str | pa.StringArray) -> None:
    used = {value} if isinstance(value, str) else set(pc.unique(value).to_pylist())
    unknown = sorted(used - {*OPERATIONS, ""})
    if unknown:
        raise DataError(
            f"{OPERATION} is set to {unknown[0]!r}, expected one of {', '.join(OPERATIONS)}"
        )


def project_batches(
    target: RecordSchema, projection: Projection, sides: Sequence[pa.RecordBatch]
) -> pa.RecordBatch:
    """The projection of these records as a batch of `target`."""
    batches = [to_plain_batch(side) for side in sides]
    first = batches[0]
    data = projected(
        projection,
        lambda side, number: batches[side].column(len(ENVELOPE) + number),
        first.column(IS_INDEX_RECORD),
    )
    schema = target.batch_schema
    columns = [*first.columns[: len(ENVELOPE)], *data]
    arrays = [from_plain(to_plain(a), f.type) for a, f in zip(columns, schema, strict=True)]
    return pa.record_batch(arrays, schema=schema)


def update_batch(batch: pa.RecordBatch, values: MetadataValues) -> pa.RecordBatch:
    """The same records with other metadata."""
    for name, column in values.arrays(len(batch)).items():
        batch = batch.set_column(ENVELOPE.get_field_index(name), ENVELOPE.field(name), column)
    return batch


def index_batch(
    schema: pa.Schema,
    keys: pa.StringArray,
    partition_paths: pa.StringArray,
    file_ids: pa.StringArray,
    instant_time: str,
) -> pa.RecordBatch:
    """Index records: the location of each key, and no row."""
    rows = len(keys)
    nothing = pa.repeat("", rows)
    instants = pa.repeat(instant_time, rows)
    envelope = [keys, partition_paths, file_ids, instants, nothing, pa.array(np.ones(rows, bool))]
    data = [pa.nulls(rows, field.type) for field in list(schema)[len(ENVELOPE) :]]
    return pa.record_batch([*envelope, *data], schema=schema)
