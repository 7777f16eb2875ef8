"""What a scenario means for a run: the arms with their write options, and the cells in their order.

Owns the step from the scenario's words to options of a write. Must not know Spark or clocks.
"""

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
    """One arm in one round; `order` is its place in the round."""

    name: str
    arm: str
    round: int
    warmup: bool
    order: int


def cells_of(scenario: Scenario, arms: Sequence[Arm], first_round: int = 0) -> list[CellPlan]:
    """Every cell in the order of measuring: warm-up rounds first, the arms of a round shuffled by seed.

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
    """The options of a strategy arm, with the strategy's default framing where it gives none."""
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
    """The table that every arm writes, or `arm` if it is to merge in its own way."""
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
    """The same table as the checks see it."""
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
    """What one write does, and how large its rows are.

    `partitions` are those of a delete_partition. `row_bytes` bounds the Arrow batches between Spark and
    Python, which Spark bounds by rows alone. `source_bytes`: of all input files, 0 where unknown.
    """

    operation: str = "upsert"
    partitions: tuple[str, ...] = ()
    row_bytes: int = 1
    source_bytes: int = 0


def write_options(scenario: Scenario, arm: Arm | None, write: Write) -> WriteOptions:
    """The options of a write of `arm`, or of the set-up where `arm` is None."""
    table, topology = table_config(scenario, arm), scenario.topology_of(arm)
    files = scenario.table_of(arm)
    wanted = Operation(write.operation)
    if arm is not None and topology.name == "bulk":
        wanted = Operation.BULK_INSERT  # an insert by another name
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
    """One untimed write of the table that `arm` begins with: by columns wherever that can be."""
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
    """How often a record of `arm` crosses."""
    return len(_topology_of(scenario, arm).hops)


def topologies_of(scenario: Scenario, arms: Sequence[Arm]) -> dict[str, topologies.Topology]:
    """The topologies of `arms` by name, each once."""
    found = [_topology_of(scenario, arm) for arm in arms if arm.strategy is not None]
    return {topology.name: topology for topology in found}


def _topology_of(scenario: Scenario, arm: Arm) -> topologies.Topology:
    """The whole chain, of which some operations need less."""
    asked = scenario.topology_of(arm)
    return topologies.TOPOLOGIES[as_written(asked.name, Operation.UPSERT, _sorts(asked))]()


def diagrams(scenario: Scenario, arms: Sequence[Arm]) -> list[str]:
    """The same as text."""
    return [topology.diagram() for topology in topologies_of(scenario, arms).values()]


_BATCH_BYTES = 16 << 20


def batch_rows(row_bytes: int) -> int:
    """Rows of an Arrow batch, at most Spark's own 10,000, so that the batch stays below 16 MiB."""
    return max(1, min(10_000, _BATCH_BYTES // max(1, row_bytes)))


@contextmanager
def in_words_of_scenarios() -> Iterator[None]:
    """Errors that name options of a write name the scenario's keys instead."""
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
    """Raise ScenarioError for what only strategies and the pipeline can refuse, before anything runs."""
    try:
        for arm in (None, *scenario.arms):
            check_creatable(table_config(scenario, arm))
        for batch in scenario.batches:
            Operation(batch.operation)
    except ValueError as exc:
        raise ScenarioError(f"{scenario.name}: {exc}") from exc
    except LabError as exc:
        raise ScenarioError(f"{scenario.name}: table: {in_scenario_keys(str(exc))}") from exc
    # types are checked against the data; here only the options are
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
        except SetupError:  # an arm that raises, or that is not installed as it should be
            raise
        except LabError as exc:
            raise ScenarioError(f"{scenario.name}: {in_scenario_keys(str(exc))}") from exc


def fairness_of(arm: Arm) -> dict[str, Any] | None:
    """What the arm's strategy says it gets for free; None for controls and peers."""
    if arm.strategy is None:
        return None
    with named(f"arm {arm.name!r}"):
        card: Fairness = strategy(arm.strategy).fairness()
        return asdict(card)
