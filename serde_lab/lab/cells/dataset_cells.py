"""Makes and measures the cells of a scenario that writes several tables: an arm writes them in turn.

A cell has one cell of `table_cells` for each table. Its commits are numbered over all tables, in the order in
which they are written. Queries come last, outside the clock of the writes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from serde_lab.lab.cells.cell import CellResult, MeasurableCell, QueryRows
from serde_lab.lab.cells.table_cells import DATASETS, Engine, TableCells, discard_cell
from serde_lab.lab.inputs.prepared import PreparedTable
from serde_lab.measure.metrics import OPEN_TABLES, Sample, metric, query_metric
from serde_lab.peers.apache_hudi import java_errors
from serde_lab.scenario.model import Arm
from tpch import QUERIES

if TYPE_CHECKING:
    from serde_lab.lab.cells.bench import Bench


class SparkQueries:
    """Asks TPC-H's queries of an arm's tables, read by `serde_lab.read` as views in the session of `bench`.

    `queries` are names of `tpch.QUERIES`. Its samples are the seconds of `OPEN_TABLES` and of each
    `query_metric`.
    """

    def __init__(self, bench: Bench, queries: Sequence[str]) -> None:
        self.bench, self.queries = bench, queries

    def ask(
        self, cell: str, tables: Mapping[str, Path], answers: dict[str, QueryRows]
    ) -> Iterator[Sample]:
        """Ask each query about `tables`, paths by name; adds to `answers`, and yields what this measured."""
        # a scenario without Spark has no queries
        from serde_lab.pipeline.spark.exchange import SHUFFLE_TASKS, setting
        from serde_lab.pipeline.spark.tables import read

        if not self.queries:
            return
        spark = self.bench.spark

        def open_tables() -> None:
            for name, path in tables.items():
                read(spark, str(path)).createOrReplaceTempView(name)

        try:
            yield Sample(OPEN_TABLES, self._seconds(f"{cell}#open", open_tables))
            # as many tasks after a shuffle as there are slots: Spark's default of 200 is for clusters
            with setting(spark, SHUFFLE_TASKS, self.bench.slots):
                for name in self.queries:
                    seconds = self._seconds(f"{cell}#{name}", partial(self._ask, name, answers))
                    yield Sample(query_metric(name), seconds)
        finally:
            for name in tables:
                spark.catalog.dropTempView(name)

    def _ask(self, name: str, answers: dict[str, QueryRows]) -> None:
        with java_errors(f"Spark cannot answer {name}"):
            rows = self.bench.spark.sql(QUERIES[name].sql).collect()
        answers[name] = tuple(tuple(row) for row in rows)

    def _seconds(self, group: str, call: Callable[[], None]) -> float:
        _, window = self.bench.measured(group, call)
        return window.wall_ns / 1e9


class DatasetCells:
    """The cells of all `tables`, in the folder `work`."""

    def __init__(
        self,
        tables: Sequence[PreparedTable],
        work: Path,
        engine: Engine,
        queries: SparkQueries | None = None,
    ) -> None:
        self.work, self.engine, self.queries = work, engine, queries
        self._tables: dict[str, TableCells] = {}
        for one in tables:
            folder = work / DATASETS / one.name
            folder.mkdir(parents=True, exist_ok=True)
            follows = bool(self._tables)
            self._tables[one.name] = TableCells(one.scenario, one.inputs, folder, engine, follows)

    def set_up(self) -> None:
        for cells in self._tables.values():
            cells.set_up()

    def cell(self, name: str, arm: Arm) -> MeasurableCell:
        cells = {table: cells.cell(name, arm) for table, cells in self._tables.items()}
        return DatasetCell(name, cells, self.queries)

    def discard(self, name: str) -> None:
        discard_cell(self.work, name)

    def calibrate(self) -> Mapping[str, float]:
        return self.engine.calibrate(self.work)


@dataclass
class DatasetCell(MeasurableCell):
    """One arm in one round: its cell of each table, by name, and then the queries."""

    name: str
    cells: Mapping[str, MeasurableCell]
    queries: SparkQueries | None = None
    _parts: dict[str, CellResult] = field(default_factory=dict)

    def measure(self) -> CellResult:
        for table, cell in self.cells.items():
            self._parts[table] = cell.measure()
        parts = self._parts
        samples, answers = list(as_one_cell(list(parts.values()))), dict[str, QueryRows]()
        if self.queries is not None:
            tables = {name: part.table for name, part in parts.items() if part.table is not None}
            samples += self.queries.ask(self.name, tables, answers)
        first = next(iter(parts.values()))
        return CellResult(
            tuple(samples),
            first.table,
            sniffed=sum(part.sniffed for part in parts.values()),
            foreign=sum(part.foreign for part in parts.values()),
            rows=sum(part.rows for part in parts.values()),
            threads_left=sum(part.threads_left for part in parts.values()),
            frames=first.frames,
            parts=parts,
            answers=answers,
        )


def as_one_cell(parts: Sequence[CellResult]) -> Iterator[Sample]:
    """The samples of all parts as those of one cell.

    Commits are numbered on. `table_bytes` counts the tables that earlier parts wrote. `hops` are those of
    the first part, since a record passes only its own table's.
    """
    whole: dict[str, list[float]] = {}
    before, earlier_bytes = 0, 0.0
    for place, part in enumerate(parts):
        commits, own_bytes = 0, 0.0
        for sample in part.samples:
            if sample.commit is None:
                whole.setdefault(sample.metric, []).append(sample.value)
                continue
            commits = max(commits, sample.commit)
            if sample.metric == "hops" and place:
                continue
            value = sample.value
            if sample.metric == "table_bytes":
                own_bytes, value = value, value + earlier_bytes
            yield replace(sample, value=value, commit=sample.commit + before)
        before, earlier_bytes = before + commits, earlier_bytes + own_bytes
    for name, values in whole.items():
        # of a whole cell: seconds and the start of workers add up; slots and the session are the same
        summed = metric(name).over_commits == "sum"
        yield Sample(name, sum(values) if summed else max(values))
