"""Whether data can become a table: all that a write or a strategy would refuse, before anything runs.

Owns the order of these checks; `own_files` knows files, the pipeline knows what a write takes. Reads no
row.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import pyarrow as pa

from serde_lab.errors import SchemaError
from serde_lab.lab.inputs import own_files
from serde_lab.lab.plan import TABLE_NAME, Write, serde_options, write_options
from serde_lab.pipeline.write_schema import avro_schema, record_schema
from serde_lab.records.schema import RecordSchema
from serde_lab.scenario.model import Arm, ParquetData, Scenario
from serde_lab.serde.registry import strategy


def check_data(scenario: Scenario, arms: Sequence[Arm] | None = None) -> None:
    """Raise DataError or SchemaError, naming file and column, for the user's own files.

    `arms`: those that are to be measured, by default all. Does nothing for data of TPC-H, which is not
    there before it is generated.
    """
    own_files.check_sources(scenario)
    if not isinstance(scenario.data, ParquetData):
        return
    schema = own_files.open_source(scenario.data).schema.remove_metadata()
    for name in scenario.ordering:
        if name not in schema.names:  # event_ts, which derived batches add
            schema = schema.append(pa.field(name, pa.int64()))
    try:
        records = record_schema(schema, write_options(scenario, None, Write()))
        avro_schema(records.data, TABLE_NAME)
    except SchemaError as exc:
        raise SchemaError(f"{scenario.data.path}: {exc.message}", exc.hint) from exc
    check_arms(scenario.arms if arms is None else arms, records)


def check_arms(arms: Iterable[Arm], schema: RecordSchema) -> None:
    """Raise SchemaError, naming arm and column, unless every strategy takes records of `schema`."""
    for arm in arms:
        if arm.strategy is None:
            continue
        try:
            strategy(arm.strategy).bind(schema, serde_options(arm))
        except SchemaError as exc:
            raise SchemaError(f"arm {arm.name!r}: {exc.message}", exc.hint) from exc
