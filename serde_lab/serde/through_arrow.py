"""The way round through Arrow: the one place where a verb leaves a strategy's representation.

What a strategy does not do on its own representation is done here: records are converted out, changed as
columns, and converted in. That is always right and seldom fast; `detours` says which verbs of a bound
SerDe take this way. Must not know any strategy, nor what else a bound SerDe does.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from serde_lab.errors import DataError
from serde_lab.records.plain_form import from_plain, to_plain, to_plain_batch
from serde_lab.records.schema import ENVELOPE, IS_INDEX_RECORD
from serde_lab.serde.projection.columns import projected
from serde_lab.serde.projection.plan import Projection
from serde_lab.serde.record_verbs import MetadataValues

if TYPE_CHECKING:
    from serde_lab.serde.interface import BoundSerde, Records


def project(bound: BoundSerde, projection: Projection, sides: Sequence[Records]) -> Records:
    """The projection of these records as records of `bound`."""
    batches = [to_plain_batch(records.to_arrow()) for records in sides]
    first = batches[0]
    is_index = first.column(IS_INDEX_RECORD)
    present = None
    if pc.any(is_index).as_py():
        present = ~is_index.to_numpy(zero_copy_only=False)
    data = projected(
        projection,
        lambda side, number: batches[side].column(len(ENVELOPE) + number),
        len(first),
        present,
    )
    schema = bound.schema.batch_schema
    columns = [*first.columns[: len(ENVELOPE)], *data]
    arrays = [from_plain(to_plain(a), f.type) for a, f in zip(columns, schema, strict=True)]
    return bound.from_arrow(pa.record_batch(arrays, schema=schema))


def update_metadata(bound: BoundSerde, records: Records, values: MetadataValues) -> Records:
    """The same records with other metadata."""
    batch = records.to_arrow()
    for name, column in values.arrays(len(records)).items():
        batch = batch.set_column(ENVELOPE.get_field_index(name), ENVELOPE.field(name), column)
    return bound.from_arrow(batch)


def check_sides(left: Records, right: Records) -> None:
    """Raise DataError unless records can be joined one to one."""
    if len(left) != len(right):
        raise DataError(f"{len(left)} records cannot be joined with {len(right)}, one to one")


def index_batch(
    schema: pa.Schema,
    keys: pa.StringArray,
    partition_paths: pa.StringArray,
    file_ids: pa.StringArray,
    instant_time: str,
) -> pa.RecordBatch:
    """Index records: where keys are, and no row."""
    rows = len(keys)
    nothing = pa.repeat("", rows)
    instants = pa.repeat(instant_time, rows)
    envelope = [keys, partition_paths, file_ids, instants, nothing, pa.array(np.ones(rows, bool))]
    data = [pa.nulls(rows, field.type) for field in list(schema)[len(ENVELOPE) :]]
    return pa.record_batch([*envelope, *data], schema=schema)
