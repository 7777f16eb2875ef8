"""Translates a scenario into what a run needs: options of the arms' writes, and cells in their order."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import asdict, dataclass, replace
from itertools import accumulate, groupby
from typing import Any, cast

import pyarrow as pa

from serde_lab.errors import LabError, ScenarioError, SetupError
from serde_lab.lab.cells.peer_arms import check_candidates
from serde_lab.pipeline import topologies
from serde_lab.pipeline.options.topology import (
    BATCH_MB,
    BUFFER_MB,
    SORT_MODE,
    TOPOLOGY,
    SortMode,
    as_written,
)
from serde_lab.pipeline.options.write import OWN_PREFIX, WriteOptions, parse_options
from serde_lab.records.operation import Operation
from serde_lab.records.schema import RecordSchema
from serde_lab.scenario import hudi_options
from serde_lab.scenario.hudi_options import OPERATION, in_scenario_keys, table_options
from serde_lab.scenario.model import Arm, Scenario
from serde_lab.scenario.sweep import SweepPoint
from serde_lab.serde.interface import Fairness, SerdeOptions
from serde_lab.serde.registry import named, strategy
from serde_lab.table.config import TableConfig
from serde_lab.verify.table_rules import TableRules


@dataclass(frozen=True, slots=True)
class CellPlan:
    """One arm in one round; `order` is its position in the round, `last` whether it is the arm's last one."""

    name: str
    arm: str
    round: int
    warmup: bool
    order: int
    last: bool = False


def cells_of(
    scenario: Scenario,
    arms: Sequence[Arm],
    first_round: int = 0,
    warm: bool = False,
) -> list[CellPlan]:
    """Every cell in measuring order: warm-up rounds first; the seed shuffles the arms of a round.

    Rounds are numbered from `first_round`, warm-up rounds included, which are left out in a session that is
    `warm` already.
    """
    # the points of a run have orders of their own, so that no arm is always the first of a session
    shuffled = random.Random(scenario.measure.seed + first_round)
    names = [arm.name for arm in arms]
    cells = []
    all_rounds = scenario.measure.all_rounds
    for place_of_round in range(all_rounds):
        number, warmup = first_round + place_of_round, place_of_round < scenario.measure.warmup
        last = place_of_round == all_rounds - 1
        order = names.copy()
        shuffled.shuffle(order)
        if warmup and warm:
            continue
        cells += [
            CellPlan(f"r{number:02d}-{name}", name, number, warmup, place, last)
            for place, name in enumerate(order)
        ]
    return cells


def cells_of_points(points: Sequence[tuple[SweepPoint, Sequence[Arm]]]) -> list[list[CellPlan]]:
    """The cells of each point with its arms; no two points share the number of a round.

    The points of `[shapes]` share a session, which the first of them warms up.
    """
    rounds = [point.scenario.measure.all_rounds for point, _ in points]
    firsts = accumulate(rounds, initial=0)
    return [
        cells_of(point.scenario, arms, first, warm=point.of_shapes and first > 0)
        for (point, arms), first in zip(points, firsts, strict=False)
    ]


def visits(points: Sequence[tuple[SweepPoint, Sequence[Arm]]]) -> list[tuple[int, list[CellPlan]]]:
    """The points of a run, by their numbers, in measuring order, each with the cells of that visit.

    A point is visited once. But all of `[shapes]` is divided by the first point, the middle: after a visit
    for its warm-up rounds, each of its rounds is a visit, and these are spread evenly over the other points.
    So a session that grows faster, or a machine that grows slower, changes both sides of a ratio. The seed
    shuffles the other points, so that such a drift does not follow the values of a factor.
    """
    plans = cells_of_points(points)
    numbered = list(enumerate(plans))
    if not points[0][0].of_shapes:
        return numbered
    middle, others = plans[0], numbered[1:]
    random.Random(points[0][0].scenario.measure.seed).shuffle(others)
    rounds = [list(one) for _, one in groupby(middle, key=lambda cell: cell.round)]
    warmup = [cell for one in rounds for cell in one if cell.warmup]
    measured = [one for one in rounds if not one[0].warmup]
    before = [(2 * n + 1) * len(others) // (2 * len(measured)) for n in range(len(measured))]
    order = [(0, warmup)]
    for place in range(len(others) + 1):
        order += [(0, one) for one, at in zip(measured, before, strict=True) if at == place]
        order += others[place : place + 1]
    return [(number, cells) for number, cells in order if cells]


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
        own=deepcopy(options.own),  # a strategy may change what it is given
    )


def table_config(scenario: Scenario, arm: Arm | None = None) -> TableConfig:
    """The table that `arm` writes. Raises OptionError for one that cannot be created."""
    # the operation is the one that any table takes
    options = table_options(scenario, arm) | _of_lab(scenario, arm) | {OPERATION: Operation.INSERT}
    return parse_options(options).table


def table_rules(scenario: Scenario, schema: RecordSchema, arm: Arm | None = None) -> TableRules:
    """The rules of the same table for the checks, which read its options by code of their own."""
    return TableRules.of_options(table_options(scenario, arm), schema)


@dataclass(frozen=True, slots=True)
class Write:
    """What one write does, and the size of its rows.

    `partitions` are those of a delete_partition. `row_bytes` limits the Arrow batches between Spark and
    Python, which Spark limits by rows alone. `source_bytes` is the size of all input files, 0 if unknown.
    """

    operation: str = Operation.INSERT
    partitions: tuple[str, ...] = ()
    row_bytes: int = 1
    source_bytes: int = 0


def options_of(scenario: Scenario, arm: Arm, write: Write) -> dict[str, Any]:
    """All options of a timed write of `arm` by the lab.

    Apache Hudi gets the same options, except those of the strategy and the topology.
    """
    topology = scenario.topology_of(arm)
    # the bulk topology runs inserts as bulk_insert
    bulk = topology.name == "bulk"
    operation = Operation.BULK_INSERT if bulk else Operation(write.operation)
    options: dict[str, Any] = {
        **hudi_options.write_options(scenario, arm, operation, write.partitions),
        **_of_lab(scenario, arm),
        TOPOLOGY: topology.name,
    }
    if bulk:
        options[SORT_MODE] = _SORTS[topology.sort]
    if topology.name == "step3":
        options |= {BATCH_MB: topology.batch_mb, BUFFER_MB: topology.buffer_mb}
    if arm.strategy is not None:
        bound = serde_options(arm)
        options |= arm.write_settings
        options |= {
            "serde_lab.strategy": arm.strategy,
            "serde_lab.execution": bound.execution,
            "serde_lab.rows_per_frame": bound.rows_per_frame,
            "serde_lab.max_frame_bytes": bound.max_frame_bytes,
            "serde_lab.integrity": bound.integrity,
            **{f"{OWN_PREFIX}{key}": value for key, value in bound.own.items()},
        }
        if arm.source_reader != "auto":
            options["serde_lab.source_reader"] = arm.source_reader
        if arm.shuffle != "dataframe":
            options["serde_lab.shuffle"] = arm.shuffle
    return options


def timed_options(scenario: Scenario, arm: Arm, write: Write) -> WriteOptions:
    """The options of a timed write of `arm`. Raises OptionError for options that do not fit together."""
    return _parsed(options_of(scenario, arm, write), write)


def set_up_options(scenario: Scenario, arm: Arm | None, write: Write) -> WriteOptions:
    """The options of an untimed write of `arm`'s set-up table: by columns where possible."""
    return _parsed(_set_up(scenario, arm, write), write)


def set_up_kind(scenario: Scenario, arm: Arm | None) -> tuple[tuple[str, Any], ...]:
    """Arms of equal kind can share a set-up table, since its writes have the same options."""
    return tuple(_set_up(scenario, arm, Write()).items())


def _set_up(scenario: Scenario, arm: Arm | None, write: Write) -> dict[str, Any]:
    operation = Operation(write.operation)
    shared = hudi_options.write_options(scenario, arm, operation, write.partitions, set_up=True)
    return shared | _of_lab(scenario, arm)


def _parsed(options: Mapping[str, Any], write: Write) -> WriteOptions:
    limited = {**options, "serde_lab.max_records_per_batch": batch_rows(write.row_bytes)}
    return replace(parse_options(limited), source_bytes=write.source_bytes)


def _of_lab(scenario: Scenario, arm: Arm | None) -> dict[str, Any]:
    """The lab's own options, which every write of the table has in addition."""
    table = scenario.table_of(arm)
    options: dict[str, Any] = {
        "serde_lab.worker_memory_mb": scenario.measure.worker_memory_mb,
        "serde_lab.seed": scenario.data.seed,
    }
    if table.level is not None:
        options["serde_lab.codec_level"] = table.level
    if table.merger_classes:
        options[hudi_options.MERGERS] = ",".join(table.merger_classes)
    return options


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
    topology = scenario.topology_of(arm)
    sorts = cast(SortMode, _SORTS[topology.sort] if topology.name == "bulk" else "NONE")
    return topologies.TOPOLOGIES[as_written(topology.name, Operation.UPSERT, sorts)]


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
            table_config(scenario, arm)
    except LabError as exc:
        raise ScenarioError(f"{scenario.name}: table: {in_scenario_keys(str(exc))}") from exc
    check_candidates(scenario)
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
                    timed_options(scenario, arm, Write(batch.write_operation, batch.partitions))
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
