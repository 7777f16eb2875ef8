"""Makes the cells of a scenario that writes tables: each gets its own clone of the set-up table.

An `Engine` is where cells run: in this process, or in a Spark session (`spark_cells`). It knows the class of
cell for each kind of arm.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Protocol

import pyarrow as pa

from serde_lab.lab.cells.cell import (
    CellJob,
    CellResult,
    InputSizes,
    MeasurableCell,
    WriteCell,
    Written,
    heap_set_aside,
    schema_of,
)
from serde_lab.lab.cells.floor_cells import FloorInProcess
from serde_lab.lab.cells.in_process_reads import StrategyInProcess, read_control
from serde_lab.lab.cells.read_cells import OperationsCell, has_operations
from serde_lab.lab.inputs.prepared import CommitInput, PreparedInputs
from serde_lab.lab.plan import set_up_kind, set_up_options
from serde_lab.measure.commit import measure_in_process
from serde_lab.measure.environment import calibrate
from serde_lab.measure.process_tree import tree_use
from serde_lab.measure.slots import Interval
from serde_lab.measure.timeline import TaskTimeline
from serde_lab.pipeline.exchange.in_process import InProcessExchange, parquet_partitions
from serde_lab.pipeline.write import PreparedWrite
from serde_lab.scenario.model import READ_CONTROLS, UPSERT_CONTROLS, WORK_FLOOR, Arm, Scenario
from serde_lab.table.storage.storage import Storage

DATASETS = "datasets"
"""The folder within a run's own that has one for each dataset."""


class Engine(Protocol):
    """Where cells run."""

    def cell(self, job: CellJob) -> MeasurableCell:
        """The cell for the kind of the job's arm."""
        ...

    def write_set_up(self, prepared: PreparedWrite, commit: CommitInput) -> None:
        """Write one commit of a set-up table, untimed."""

    def tidy(self) -> None:
        """Collect garbage before a cell, if cells leave much of it."""

    def calibrate(self, work: Path) -> Mapping[str, float]:
        """Run one calibration cell in `work`; returns the seconds of each part."""
        ...


class TableCells:
    """The cells of one table, in the folder `work`; `follows` is that of `CellJob`."""

    def __init__(
        self,
        scenario: Scenario,
        inputs: PreparedInputs,
        work: Path,
        engine: Engine,
        follows: bool = False,
    ) -> None:
        self.follows = follows
        self.scenario, self.inputs, self.work, self.engine = scenario, inputs, work, engine
        self.sizes = InputSizes.of(inputs)
        kinds = [set_up_kind(scenario, arm) for arm in (None, *scenario.arms)]
        # arms whose set-up writes differ in any option need a set-up table of their own
        self._setups = {
            kind: work / f"setup-{number}" for number, kind in enumerate(dict.fromkeys(kinds))
        }

    def set_up(self) -> None:
        """Write the set-up commits once, untimed, by columns where possible; cells clone the table."""
        for folder in self._setups.values():
            shutil.rmtree(folder, ignore_errors=True)
        self._set_up(None)

    def _set_up(self, arm: Arm | None) -> None:
        folder = self._setups[set_up_kind(self.scenario, arm)]
        for commit in self.inputs.setups:
            options = set_up_options(self.scenario, arm, self.sizes.write(commit))
            prepared = PreparedWrite.of(Storage.open(folder), schema_of(commit), options)
            self.engine.write_set_up(prepared, commit)

    def cell(self, name: str, arm: Arm) -> MeasurableCell:
        return self.engine.cell(self.job(name, arm))

    def job(self, name: str, arm: Arm) -> CellJob:
        """What a cell measures, on its own clone of the set-up table."""
        self.engine.tidy()
        table = self._clone(name, arm)
        return CellJob(name, arm, self.scenario, self.inputs, self.sizes, table, self.follows)

    def discard(self, name: str) -> None:
        discard_cell(self.work, name)

    def calibrate(self) -> Mapping[str, float]:
        return self.engine.calibrate(self.work)

    def _clone(self, cell: str, arm: Arm) -> Path:
        """Clone the set-up table for this cell: data files are linked, `.hoodie` is copied.

        Arms that write no Hudi table get the path alone.
        """
        table = self.work / "cells" / cell
        shutil.rmtree(table, ignore_errors=True)
        if self.inputs.setups and arm.control not in UPSERT_CONTROLS:
            setup = self._setups[set_up_kind(self.scenario, arm)]
            if not setup.exists():
                # before the clock starts, and only for arms that are measured
                self._set_up(arm)
            shutil.copytree(setup, table, copy_function=_link_data)
        return table


def discard_cell(work: Path, cell: str) -> None:
    """Remove the tables of a cell, of all datasets."""
    for above in (work, *work.glob(f"{DATASETS}/*")):
        for folder in (above / "cells").glob(f"{cell}*"):
            shutil.rmtree(folder, ignore_errors=True)


def _link_data(source: str, target: str) -> str:
    """Link a data file, which never changes, and copy any other file."""
    if f"{os.sep}.hoodie{os.sep}" in source or not source.endswith(".parquet"):
        return str(shutil.copy2(source, target))
    os.link(source, target)
    return target


class InProcess:
    """The engine that runs all tasks in this process, one after another."""

    def cell(self, job: CellJob) -> MeasurableCell:
        # the scenario's consistency check allows no other controls and no peers here
        if job.arm.control in READ_CONTROLS:
            return OperationsCell(job, read_control(job))
        if job.arm.control == WORK_FLOOR:
            return FloorInProcess(job)
        cell = InProcessCell(job)
        return OperationsCell(job, StrategyInProcess(job), cell) if has_operations(job) else cell

    def write_set_up(self, prepared: PreparedWrite, commit: CommitInput) -> None:
        prepared.commit(InProcessExchange(_partitions(commit)))

    def tidy(self) -> None:
        return

    def calibrate(self, work: Path) -> Mapping[str, float]:
        return calibrate(work)


class InProcessCell(WriteCell):
    """A strategy's cell, all of whose tasks run in this process."""

    def measure(self) -> CellResult:
        with heap_set_aside():
            return super().measure()

    def write(self, group: str, prepared: PreparedWrite, commit: CommitInput) -> Written:
        driver, exchange = TaskTimeline("driver"), InProcessExchange(_partitions(commit))
        with prepared.hold(), tree_use() as tree:
            begin_epoch_ns, begin_ns = time.time_ns(), time.perf_counter_ns()
            written = prepared.commit(exchange, timeline=driver)
            wall_ns = time.perf_counter_ns() - begin_ns
        interval = Interval(begin_epoch_ns, begin_epoch_ns + wall_ns)
        measure = measure_in_process(
            interval, exchange.reports, driver=driver.report(), tree=tree.use
        )
        return Written(written, wall_ns, measure)


def _partitions(commit: CommitInput) -> list[Iterator[pa.RecordBatch]]:
    return parquet_partitions(commit.files, schema_of(commit).names)
