"""Estimates how many bytes each column takes in a strategy's frames, by leaving it out.

Some rows of the input are encoded whole, and again without each column. The difference is the column's
size. The rest belongs to the record: envelope and framing. Nothing here is timed.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from serde_lab.lab.inputs.prepared import PreparedInputs
from serde_lab.lab.plan import serde_options
from serde_lab.pipeline.stages import stored_form
from serde_lab.records.keys import NOWHERE, KeyGenerator
from serde_lab.records.schema import ENVELOPE, RecordSchema
from serde_lab.scenario.model import Arm, Scenario
from serde_lab.serde.interface import Bounds, SerdeOptions
from serde_lab.serde.registry import strategy

ENVELOPE_AND_FRAMING = "envelope and framing"
_LEAST_ROWS = 1000


def columns_of_arms(
    scenario: Scenario, arms: Sequence[Arm], inputs: PreparedInputs, schema: RecordSchema
) -> dict[str, dict[str, float]]:
    """Bytes per record by column for each strategy among `arms`, from the first rows of the first batch."""
    table = scenario.table
    keys = KeyGenerator(schema, table.hive_style, table.url_encode, time=table.time_rule)
    found = {}
    for arm in arms:
        if arm.strategy is None:
            continue
        options = serde_options(arm)
        rows = _first_rows(inputs, schema, max(_LEAST_ROWS, options.rows_per_frame))
        taken = column_bytes(arm.strategy, options, schema, keys, rows)
        if taken is not None:
            found[arm.name] = taken
    return found


def _first_rows(inputs: PreparedInputs, schema: RecordSchema, rows: int) -> pa.RecordBatch:
    file = pq.ParquetFile(inputs.commits[0].files[0])
    batch = next(file.iter_batches(rows), None)
    if batch is None:
        return pa.RecordBatch.from_pylist([], schema=schema.data)
    return stored_form(batch, schema.data)


def column_bytes(
    subject: str,
    options: SerdeOptions,
    schema: RecordSchema,
    keys: KeyGenerator,
    rows: pa.RecordBatch,
) -> dict[str, float] | None:
    """Bytes per record by column, in the schema's order, then the bytes of envelope and framing.

    `rows` has the schema's data columns. None if no column can be left out: without rows, with one
    column only, or if the strategy refuses the rows.
    """
    if not len(rows) or len(schema.data) < 2:
        return None
    enveloped = keys.envelop(rows, NOWHERE)
    try:
        whole = _frame_bytes(subject, options, schema, enveloped)
        taken = {
            field.name: (whole - _frame_bytes(subject, options, _without(schema, i), enveloped))
            / len(rows)
            for i, field in enumerate(schema.data)
        }
    except Exception:  # a plug-in may raise anything; the check of its frames reports it
        return None
    return {**taken, ENVELOPE_AND_FRAMING: whole / len(rows) - sum(taken.values())}


def _without(schema: RecordSchema, column: int) -> RecordSchema:
    """The schema without a column. Its first column is the key, since strategies do not look at keys."""
    data = schema.data.remove(column)
    return RecordSchema(data, record_key=(data[0].name,))


def _frame_bytes(
    subject: str, options: SerdeOptions, schema: RecordSchema, enveloped: pa.RecordBatch
) -> int:
    bound = strategy(subject).bind(schema, options)
    batch = enveloped.select([*ENVELOPE.names, *schema.data.names])
    frames = bound.encode(bound.from_arrow(batch), Bounds.single(len(batch))).frame
    return int(pc.sum(pc.binary_length(frames), min_count=0).as_py())
