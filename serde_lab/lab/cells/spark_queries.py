"""Asks TPC-H's queries of an arm's tables, read by `serde_lab.read` as views of Spark."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from serde_lab.errors import LabError
from serde_lab.lab.cells.bench import Bench
from serde_lab.lab.cells.cell import QueryRows
from serde_lab.measure.metrics import Sample
from serde_lab.peers.apache_hudi import root_cause
from serde_lab.pipeline.spark.exchange import SHUFFLE_TASKS, setting
from serde_lab.pipeline.spark.tables import read
from serde_lab.scenario.datasets import OPEN_TABLES, query_metric
from tpch import QUERIES


class SparkQueries:
    """Asks `queries`, names of `tpch.QUERIES`, in the session of `bench`.

    Its samples are the seconds of `OPEN_TABLES` and of each `query_metric`.
    """

    def __init__(self, bench: Bench, queries: Sequence[str]) -> None:
        self.bench, self.queries = bench, queries

    def ask(
        self, cell: str, tables: Mapping[str, Path], answers: dict[str, QueryRows]
    ) -> Iterator[Sample]:
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
        try:
            rows = self.bench.spark.sql(QUERIES[name].sql).collect()
        except (Py4JError, PySparkException) as exc:
            raise LabError(f"Spark cannot answer {name}: {root_cause(str(exc))}") from exc
        answers[name] = tuple(tuple(row) for row in rows)

    def _seconds(self, group: str, call: Callable[[], None]) -> float:
        _, window = self.bench.measured(group, call)
        return window.wall_ns / 1e9
