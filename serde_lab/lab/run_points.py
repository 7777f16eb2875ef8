"""Prepares the points of a run: one for each value of its sweep or shapes, or a single one.

`planned` checks a point before there is data; `prepared` makes its input and checks the point against it.
"""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow.parquet as pq

from serde_lab.errors import UsageError
from serde_lab.lab.cells.codec_cases import check_rows
from serde_lab.lab.cells.peer_arms import PeerPlan, plan_peers
from serde_lab.lab.checks.source_check import check_arms, check_data, check_own_rows, check_types
from serde_lab.lab.inputs.prepared import (
    PreparedInputs,
    PreparedTable,
    are_prepared,
    prepare_inputs,
)
from serde_lab.lab.plan import Write, check_scenario, set_up_options
from serde_lab.lab.run_settings import Progress, RunSettings
from serde_lab.pipeline.source.schema import record_schema
from serde_lab.records.schema import RecordSchema
from serde_lab.scenario.hudi_options import candidate_arms
from serde_lab.scenario.model import WORK_FLOOR, Arm, Scenario
from serde_lab.scenario.sweep import SweepPoint, tables_of


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
    arms = (*arms, *candidate_arms(point.scenario, arms))
    for table in tables_of(point.scenario).values():
        check_scenario(table)
        check_data(table, arms)
        made = are_prepared(table, settings.cache)
        check_own_rows(table, made)
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
        schema = _stored_records(scenario, inputs)
        check_arms(point.arms, schema)
        tables.append(PreparedTable(name, scenario, inputs, schema))
    if point.scenario.codec_only:
        check_rows(point.scenario, tables[0].inputs)
    return PreparedPoint(point.at, point.arms, point.peers, tuple(tables))


def _stored_records(scenario: Scenario, inputs: PreparedInputs) -> RecordSchema:
    """The schema of the records that every arm sends."""
    source = pq.read_schema(inputs.commits[0].files[0]).remove_metadata()
    return record_schema(source, set_up_options(scenario, None, Write()))
