"""Prepares the points of a run, one for each value of its sweep or shapes, and checks data and arms before.

`planned` checks a point before there is data; `prepared` makes its input and checks the point against it.
Data must be such that they can be written, and the arms' strategies must take them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.parquet as pq

from serde_lab.errors import LabError, SchemaError, UsageError
from serde_lab.inputs.parquet_rows import ParquetRows
from serde_lab.inputs.shaped_rows import shaped_rows
from serde_lab.lab.cells.codec_cases import check_codec_rows
from serde_lab.lab.cells.peer_arms import PeerPlan, plan_peers
from serde_lab.lab.inputs import user_files
from serde_lab.lab.inputs.batches import check_batches
from serde_lab.lab.inputs.prepared import (
    PreparedInputs,
    PreparedTable,
    are_prepared,
    prepare_inputs,
)
from serde_lab.lab.plan import Write, check_scenario, serde_options, set_up_options
from serde_lab.lab.run_settings import Progress, RunSettings, work_folder
from serde_lab.pipeline.plan import key_generator
from serde_lab.pipeline.source.schema import avro_schema, record_schema
from serde_lab.pipeline.stages import stored_form
from serde_lab.records.keys import NOWHERE
from serde_lab.records.schema import RecordSchema, storage_schema
from serde_lab.scenario.hudi_options import TABLE_NAME, candidate_arms
from serde_lab.scenario.model import WORK_FLOOR, Arm, ParquetData, Scenario
from serde_lab.scenario.sections import ShapesData
from serde_lab.scenario.sweep import SweepPoint, tables_of
from serde_lab.serde.interface import Bounds
from serde_lab.serde.registry import BUILT_IN, named, strategy
from tpch import generate

_ROWS_AT_A_TIME, _FEW_ROWS = 1 << 20, 1000
_SMALL_FACTOR = 0.001


def check_data(scenario: Scenario, arms: Sequence[Arm] | None = None) -> None:
    """Raise DataError or SchemaError, naming file and column, if the user's own files cannot be written.

    `arms` are the arms to be measured, by default all. Reads no row. Does nothing for data
    that do not exist before they are generated.
    """
    user_files.check_sources(scenario)
    if isinstance(scenario.data, ParquetData):
        records = _records(scenario, user_files.open_source(scenario.data).schema)
        check_arms(scenario.arms if arms is None else arms, records)


def check_user_rows(scenario: Scenario, made: bool = False) -> None:
    """Raise DataError for rows that cannot be written: null or repeated keys, or invalid partition values.

    Reads the key, partition and ordering columns of the user's own files, and writes nothing. If the
    batches are `made` already, nulls and repeated keys were checked at that time.
    """
    data = scenario.data
    if not isinstance(data, ParquetData):
        return
    if not made:
        check_batches(scenario)
    source = user_files.open_source(data)
    _check_names("data.path", data.path, source, scenario)
    for key, batch in scenario.named_batches:
        if batch.path is not None:
            rows = user_files.open_batch(key, batch, source, scenario)
            _check_names(f"{key}.path", batch.path, rows, scenario)


def _check_names(key: str, path: str, rows: ParquetRows, scenario: Scenario) -> None:
    """Compute record keys and partition paths of all rows, as a write does, so that errors show up."""
    columns = user_files.role_columns(scenario)
    schema = pa.schema([rows.schema.field(name) for name in columns if name in rows.schema.names])
    data = scenario.data
    records = RecordSchema(storage_schema(schema), data.record_key, data.partition)
    try:
        keys = key_generator(records, set_up_options(scenario, None, Write()))
        for table in rows.batches(_ROWS_AT_A_TIME, schema.names):
            for batch in table.combine_chunks().to_batches():
                stored = stored_form(batch, records.data)
                if records.record_key:
                    keys.record_keys(stored)
                keys.partition_paths(stored)
    except LabError as exc:
        raise type(exc)(f"{key}: {path}: {exc.message}", exc.hint) from exc


def check_types(scenario: Scenario, arms: Sequence[Arm]) -> None:
    """Raise what plug-ins among `arms` raise for the types of rows that are generated, before they are."""
    plug_ins = [arm for arm in arms if arm.strategy is not None and arm.strategy not in BUILT_IN]
    if plug_ins and not isinstance(scenario.data, ParquetData):
        check_arms(plug_ins, _records(scenario, _first_rows(scenario).schema))


def try_arms(scenario: Scenario) -> None:
    """Have each arm's strategy encode and decode a few rows of the data. Raises what a strategy raises.

    For data of TPC-H it generates rows at a thousandth of scale factor 1 and removes them again; of
    made-up rows it makes the first thousand.
    """
    few = _first_rows(scenario)
    records = _records(scenario, few.schema)
    check_arms(scenario.arms, records)
    keys = key_generator(records, set_up_options(scenario, None, Write()))
    few = stored_form(few, records.data)
    for name in scenario.ordering:
        if few.column(name).null_count == len(few):  # event_ts: derived batches fill it
            at = few.schema.get_field_index(name)
            few = few.set_column(at, few.schema.field(at), pa.array(range(len(few)), pa.int64()))
    batch = keys.envelop(few, NOWHERE)
    for arm in scenario.arms:
        if arm.strategy is not None:
            with named(f"arm {arm.name!r}"):
                bound = strategy(arm.strategy).bind(records, serde_options(arm))
                frames = bound.encode(bound.from_arrow(batch), Bounds.single(len(batch)))
                bound.decode(frames.frame).to_arrow()


def _first_rows(scenario: Scenario) -> pa.RecordBatch:
    data = scenario.data
    if isinstance(data, ShapesData):
        return next(shaped_rows(data.shape, min(data.rows, _FEW_ROWS)))
    if isinstance(data, ParquetData):
        return _few(user_files.open_source(data))
    # the next run removes what a kill leaves of such a folder
    with work_folder() as folder:
        made = generate(data.table, _SMALL_FACTOR, folder)
        return _few(ParquetRows(made.manifest.files(made.folder)))


def _few(rows: ParquetRows) -> pa.RecordBatch:
    few = rows.read(0, min(rows.rows, _FEW_ROWS))
    return few.combine_chunks().to_batches()[0]


def _records(scenario: Scenario, source: pa.Schema) -> RecordSchema:
    """The schema of the records made from rows of `source`. Raises SchemaError."""
    schema = source.remove_metadata()
    for name in scenario.ordering:
        if name not in schema.names:  # event_ts: derived batches add it
            schema = schema.append(pa.field(name, pa.int64()))
    try:
        records = record_schema(schema, set_up_options(scenario, None, Write()))
        avro_schema(records.data, TABLE_NAME)
    except SchemaError as exc:
        where = scenario.data.path if isinstance(scenario.data, ParquetData) else "data"
        raise SchemaError(f"{where}: {exc.message}", exc.hint) from exc
    return records


def check_arms(arms: Iterable[Arm], schema: RecordSchema) -> None:
    """Raise SchemaError, naming arm and column, unless every strategy takes records of `schema`."""
    for arm in arms:
        if arm.strategy is None:
            continue
        with named(f"arm {arm.name!r}"):
            strategy(arm.strategy).bind(schema, serde_options(arm))


@dataclass(frozen=True, slots=True)
class PlannedPoint:
    """A point that is checked, but has no data yet.

    `at` is its place among the points; `arms` have the names that they have there.
    """

    at: SweepPoint
    arms: tuple[Arm, ...]
    peers: PeerPlan

    @property
    def scenario(self) -> Scenario:
        return self.at.scenario


@dataclass(frozen=True, slots=True)
class PreparedPoint(PlannedPoint):
    """A point with its input on disk. `tables` are all that it writes, that of `[data]` first."""

    tables: tuple[PreparedTable, ...]

    @property
    def inputs(self) -> PreparedInputs:
        """The input of the table of `[data]`."""
        return self.tables[0].inputs

    @property
    def schema(self) -> RecordSchema:
        """The schema of the records of the table of `[data]`."""
        return self.tables[0].schema

    @property
    def here(self) -> list[Arm]:
        """The arms that can be measured here."""
        return [arm for arm in self.arms if arm.name not in self.peers.missing]


def planned(
    point: SweepPoint, arms: tuple[Arm, ...], settings: RunSettings, isolated: bool
) -> PlannedPoint:
    """Check a point as far as possible before there is any data."""
    _check_floor(arms, settings.master)
    check_settings(point.scenario, settings)
    arms = (*arms, *candidate_arms(point.scenario, arms))
    for table in tables_of(point.scenario).values():
        check_scenario(table)
        check_data(table, arms)
        made = are_prepared(table, settings.cache)
        check_user_rows(table, made)
        if not made:
            check_types(table, arms)
    peers = plan_peers(
        point.scenario,
        arms,
        jar=settings.hudi_jar,
        required=settings.require_peers,
        isolated=isolated,
    )
    return PlannedPoint(point, arms, peers)


def check_settings(scenario: Scenario, settings: RunSettings) -> None:
    """Raise UsageError for settings of Spark in a run without it, which would record them as its own."""
    if scenario.measure.exchange == "spark" or any(arm.peer for arm in scenario.arms):
        return
    of_spark = {
        "--master": settings.master,
        "--conf": settings.conf,
        "--worker-python": settings.worker_python,
    }
    for option, value in of_spark.items():
        if value:
            raise UsageError(
                f"{option} is for Spark, and {scenario.name} runs without it: its measure.exchange is"
                f" {scenario.measure.exchange!r}"
            )


def _check_floor(arms: tuple[Arm, ...], master: str) -> None:
    """Raise UsageError for a floor whose processes would not be where the tasks of Spark are."""
    if master and not master.startswith("local"):
        for arm in arms:
            if arm.control == WORK_FLOOR:
                raise UsageError(
                    f"arm {arm.name!r}: {WORK_FLOOR} works in processes of this machine, but --master is"
                    f" {master}; choose other arms"
                )


def prepared(point: PlannedPoint, settings: RunSettings, progress: Progress) -> PreparedPoint:
    """The point with its input made or found in the cache. Raises LabError if the data do not fit."""
    tables = []
    for name, scenario in tables_of(point.scenario).items():
        inputs = prepare_inputs(scenario, settings.cache, progress.message)
        # the records that every arm sends
        source = pq.read_schema(inputs.commits[0].files[0]).remove_metadata()
        schema = record_schema(source, set_up_options(scenario, None, Write()))
        check_arms(point.arms, schema)
        tables.append(PreparedTable(name, scenario, inputs, schema))
    if point.scenario.codec_only:
        check_codec_rows(point.scenario, tables[0].inputs)
    return PreparedPoint(point.at, point.arms, point.peers, tuple(tables))
