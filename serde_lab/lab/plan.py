"""Translates a scenario into what a run needs: options of the arms' writes, and cells in their order."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from typing import Any, cast

import pyarrow as pa

from serde_lab.errors import LabError, ScenarioError, SetupError
from serde_lab.pipeline import topologies
from serde_lab.pipeline.options.topology import (
    SortMode,
    as_written,
    check_topology,
    default_topology,
)
from serde_lab.pipeline.options.write import WriteOptions
from serde_lab.pipeline.plan import MiniBatches, Operation
from serde_lab.records.schema import RecordSchema
from serde_lab.scenario.model import Arm, Files, Scenario, Topology
from serde_lab.scenario.problems import in_scenario_keys
from serde_lab.serde.interface import Fairness, SerdeOptions
from serde_lab.serde.registry import named, strategy
from serde_lab.table.config import TableConfig
from serde_lab.table.config_checks import check_creatable
from serde_lab.table.files.log_file import LogFormat
from serde_lab.verify.rules import TableRules

TABLE_NAME = "lab"


@dataclass(frozen=True, slots=True)
class CellPlan:
    """One arm in one round; `order` is its position in the round."""

    name: str
    arm: str
    round: int
    warmup: bool
    order: int


def cells_of(scenario: Scenario, arms: Sequence[Arm], first_round: int = 0) -> list[CellPlan]:
    """Every cell in measuring order: warm-up rounds first; the seed shuffles the arms of a round.

    Rounds are numbered from `first_round`, warm-up rounds included.
    """
    shuffled = random.Random(scenario.measure.seed)
    names = [arm.name for arm in arms]
    cells = []
    for place_of_round in range(scenario.measure.warmup + scenario.measure.rounds):
        number, warmup = first_round + place_of_round, place_of_round < scenario.measure.warmup
        order = names.copy()
        shuffled.shuffle(order)
        cells += [
            CellPlan(f"r{number:02d}-{name}", name, number, warmup, place)
            for place, name in enumerate(order)
        ]
    return cells


def serde_options(arm: Arm) -> SerdeOptions:
    """The options of a strategy arm, with the strategy's default framing if it gives none."""
    options, default = arm.options, SerdeOptions()
    rows = options.rows_per_frame
    if rows is None:
        rows = strategy(arm.strategy or "arrow").default_rows_per_frame
    return SerdeOptions(
        execution=options.execution or "",
        rows_per_frame=rows,
        max_frame_bytes=options.max_frame_bytes or default.max_frame_bytes,
        integrity=options.integrity or "none",
        own=options.own,
    )


def table_config(scenario: Scenario, arm: Arm | None = None) -> TableConfig:
    """The table that every arm writes, with `arm`'s own merging and files if it has any."""
    table, data = scenario.table_of(arm), scenario.data
    return TableConfig(
        name=TABLE_NAME,
        record_key_fields=data.record_key,
        table_type=table.type,
        version=table.version,
        partition_fields=data.partition,
        ordering_fields=scenario.ordering,
        # rows without keys are never merged, whatever the mode's default is
        merge_mode=None if data.keyless else table.merge_mode,
        hive_style=table.hive_style,
        url_encode=table.url_encode,
        key_generator="TIMESTAMP" if table.time_folders else "",
        extra=table.time_properties,
        index_type="" if data.keyless else table.index,
        bucket_count=None if data.keyless or table.index != "BUCKET" else table.buckets,
        bucket_fields=table.bucket_fields,
        partial_update_mode=table.partial_update,
        unavailable_value=table.unavailable_value,
        delete_field=table.delete_field,
        delete_marker=table.delete_marker,
        merger_classes=table.merger_classes,
    )


def table_rules(scenario: Scenario, schema: RecordSchema, arm: Arm | None = None) -> TableRules:
    """The rules of the same table for the checks."""
    table = scenario.table_of(arm)
    return TableRules(
        schema=schema,
        merge_mode=table.merge_mode,
        partial_update=table.partial_update,
        unavailable=table.unavailable_value,
        delete_field=table.delete_field,
        delete_marker=table.delete_marker,
        table_type=table.type,
        hive_style=table.hive_style,
        url_encode=table.url_encode,
        time=table.time_properties,
        key_is_global=scenario.key_is_global(arm),
        buckets=0 if scenario.data.keyless or table.index != "BUCKET" else table.buckets,
        bucket_fields=table.bucket_fields,
    )


@dataclass(frozen=True, slots=True)
class Write:
    """What one write does, and the size of its rows.

    `partitions` are those of a delete_partition. `row_bytes` limits the Arrow batches between Spark and
    Python, which Spark limits by rows alone. `source_bytes` is the size of all input files, 0 if unknown.
    """

    operation: str = "upsert"
    partitions: tuple[str, ...] = ()
    row_bytes: int = 1
    source_bytes: int = 0


def write_options(scenario: Scenario, arm: Arm | None, write: Write) -> WriteOptions:
    """The options of a write of `arm`, or of the set-up if `arm` is None."""
    table, topology = table_config(scenario, arm), scenario.topology_of(arm)
    files = scenario.table_of(arm)
    wanted = Operation(write.operation)
    if arm is not None and topology.name == "bulk":
        wanted = Operation.BULK_INSERT  # the bulk topology runs inserts as bulk_insert
    bulk_set_up = arm is None and wanted is Operation.BULK_INSERT
    name = default_topology(wanted, table) if bulk_set_up else topology.name
    subject = arm.strategy if arm is not None and arm.strategy else "arrow"
    return WriteOptions(
        table=table,
        operation=wanted,
        topology=as_written(name, wanted, "NONE" if arm is None else _sorts(topology)),
        strategy=subject,
        serde=serde_options(arm) if arm is not None and arm.strategy else SerdeOptions(),
        parallelism=0 if name == "bucket" else topology.tasks,
        mini_batches=_mini_batches(topology),
        partitions_to_delete=write.partitions,
        codec=_codec(files),
        codec_level=files.level,
        worker_memory_mb=scenario.measure.worker_memory_mb,
        log_format=LogFormat(blocks=files.log_blocks or "avro"),
        max_records_per_batch=batch_rows(write.row_bytes),
        source_bytes=write.source_bytes,
        seed=scenario.data.seed,
    )


def set_up_options(scenario: Scenario, arm: Arm | None, write: Write) -> WriteOptions:
    """The options of an untimed write of `arm`'s set-up table: by columns where possible."""
    table = table_config(scenario, arm)
    options, files = write_options(scenario, None, write), scenario.table_of(arm)
    name = default_topology(options.operation, table)
    return replace(
        options,
        table=table,
        codec=_codec(files),
        codec_level=files.level,
        topology=as_written(name, options.operation),
        parallelism=0,
        mini_batches=None,
    )


def _codec(files: Files) -> str:
    return "none" if files.codec == "uncompressed" else files.codec


def _mini_batches(topology: Topology) -> MiniBatches | None:
    if topology.name != "step3":
        return None
    return MiniBatches(int(topology.batch_mb * (1 << 20)), int(topology.buffer_mb * (1 << 20)))


def _sorts(topology: Topology) -> SortMode:
    return cast(SortMode, _SORTS[topology.sort] if topology.name == "bulk" else "NONE")


_SORTS = {"none": "NONE", "partition": "PARTITION_SORT", "global": "GLOBAL_SORT"}


def hops_of(scenario: Scenario, arm: Arm) -> int:
    """How many exchanges a record of `arm` passes."""
    return len(_topology_of(scenario, arm).hops)


def topologies_of(scenario: Scenario, arms: Sequence[Arm]) -> dict[str, topologies.Topology]:
    """The topologies of `arms` by name, each once."""
    found = [_topology_of(scenario, arm) for arm in arms if arm.strategy is not None]
    return {topology.name: topology for topology in found}


def _topology_of(scenario: Scenario, arm: Arm) -> topologies.Topology:
    """The topology of an upsert, which has all steps; some operations need fewer."""
    asked = scenario.topology_of(arm)
    return topologies.TOPOLOGIES[as_written(asked.name, Operation.UPSERT, _sorts(asked))]()


def diagrams(scenario: Scenario, arms: Sequence[Arm]) -> list[str]:
    """The topologies of `arms` as text diagrams."""
    return [topology.diagram() for topology in topologies_of(scenario, arms).values()]


_BATCH_BYTES = 16 << 20


def batch_rows(row_bytes: int) -> int:
    """Rows of an Arrow batch below 16 MiB, at most Spark's own limit of 10,000."""
    return max(1, min(10_000, _BATCH_BYTES // max(1, row_bytes)))


@contextmanager
def in_words_of_scenarios() -> Iterator[None]:
    """Translate option names in errors of a write into the scenario's keys."""
    try:
        yield
    except LabError as exc:
        whole = in_scenario_keys(str(exc))
        if whole == str(exc):
            raise
        hint = None if exc.hint is None else in_scenario_keys(exc.hint)
        translated = LabError(in_scenario_keys(exc.message), hint)
        translated.exit_status = exc.exit_status
        raise translated from exc


def check_scenario(scenario: Scenario) -> None:
    """Raise ScenarioError, before anything runs, for what only strategies and the pipeline can refuse."""
    try:
        for arm in (None, *scenario.arms):
            check_creatable(table_config(scenario, arm))
        for batch in scenario.batches:
            Operation(batch.operation)
    except ValueError as exc:
        raise ScenarioError(f"{scenario.name}: {exc}") from exc
    except LabError as exc:
        raise ScenarioError(f"{scenario.name}: table: {in_scenario_keys(str(exc))}") from exc
    # only the options are checked here; types are checked against the data
    anything = RecordSchema(pa.schema([pa.field("k", pa.string())]), ("k",))
    for arm in scenario.arms:
        if arm.strategy is None:
            continue
        try:
            with named(f"arm {arm.name!r}"):
                strategy(arm.strategy).bind(anything, serde_options(arm))
                strategy(arm.strategy).fairness()
                for batch in scenario.commits:
                    options = write_options(scenario, arm, Write(batch.operation, batch.partitions))
                    asked = scenario.topology_of(arm).name
                    check_topology(asked, options.operation, options.table)
        except SetupError:  # a plug-in that raises, or is not installed correctly
            raise
        except LabError as exc:
            raise ScenarioError(f"{scenario.name}: {in_scenario_keys(str(exc))}") from exc


def fairness_of(arm: Arm) -> dict[str, Any] | None:
    """The advantages that the arm's strategy declares (fairness card); None for controls and peers."""
    if arm.strategy is None:
        return None
    with named(f"arm {arm.name!r}"):
        card: Fairness = strategy(arm.strategy).fairness()
        return asdict(card)
