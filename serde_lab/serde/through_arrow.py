"""Runs verbs of the record API on Arrow batches, for strategies that have no implementation of their own.

The caller converts records out, a function here changes the batch, and the caller converts it in. That is
always right and seldom fast; `interface.verbs_through_arrow` names the verbs of a bound SerDe that do so.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from serde_lab.records.plain_form import from_plain, to_plain, to_plain_batch
from serde_lab.records.schema import ENVELOPE, IS_INDEX_RECORD, RecordSchema
from serde_lab.serde.projection.columns import projected
from serde_lab.serde.projection.plan import Projection
from serde_lab.serde.record_verbs import MetadataValues


def project(
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


def update_metadata(batch: pa.RecordBatch, values: MetadataValues) -> pa.RecordBatch:
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
