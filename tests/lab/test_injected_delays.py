"""Time that is put into a task on purpose shows where it was put, and nowhere else.

The two tests that look at clocks, by lower bounds alone, since a sleep cannot be shorter than asked for.
"Nowhere else" is asked of sums: phases and `unattributed` make the whole, each moment once. How little
there is of a phase without a delay, a busy machine may say as it likes.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlparse

import pyarrow as pa
import pytest

from serde_lab.lab.cells import cell as cells_module
from serde_lab.lab.cells.bench import Bench
from serde_lab.lab.cells.spark_cells import OnSpark
from serde_lab.lab.cells.table_cells import TableCells
from serde_lab.lab.inputs.prepared import prepare_inputs
from serde_lab.measure.commit import CommitMeasure
from serde_lab.measure.timeline import AttemptReport
from serde_lab.pipeline.exchange.routing import Task
from serde_lab.pipeline.spark import exchange as spark_exchange
from serde_lab.pipeline.spark.worker import SparkTask
from serde_lab.pipeline.topologies import Stage
from tests.lab.small_scenario import rows, scenario, source

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

DELAY_S = 1.0
PARTITIONS = 2


@dataclass
class Measured:
    """What one commit was measured by."""

    slots_s: float = 0.0
    measure: CommitMeasure | None = None
    reports: list[AttemptReport] = field(default_factory=list)

    def wall_s(self, phase: str) -> float:
        """Slot time of a phase, with what was cut of it where the clocks of two processes differed."""
        assert self.measure is not None
        identity = self.measure.identity
        return identity.phases[phase].wall_s + identity.clamped_s

    def quickest_s(self, stage: str) -> dict[str, float]:
        """Each phase of a stage, and what no phase covers, in the task that took least for it."""
        found: dict[str, list[float]] = {}
        for one in self.reports:
            if one.report.stage == stage:
                for name, phase in one.report.phases.items():
                    found.setdefault(name, []).append(phase.wall_ns / 1e9)
                found.setdefault("unattributed", []).append(one.report.unattributed_ns / 1e9)
        return {name: min(times) for name, times in found.items()}


@pytest.fixture(scope="module")
def bench(spark: SparkSession) -> Bench:
    folder = unquote(urlparse(spark.conf.get("spark.eventLog.dir")).path)
    return Bench(spark, Path(folder), spark.sparkContext.defaultParallelism)


@pytest.fixture(scope="module")
def runner(bench: Bench, tmp_path_factory: pytest.TempPathFactory) -> TableCells:
    tmp = tmp_path_factory.mktemp("delays")
    # wide enough that a batch of 1,000 rows fills the buffer between JVM and worker: what comes later
    # is waited for inside the stage, not while the worker starts
    wide = rows(8000).append_column("padding", [[f"{i:0200}" for i in range(8000)]])
    file = source(tmp / "own", wide)
    asked = scenario(file, ["arrow"], exchange="spark", data={"input_partitions": PARTITIONS})
    made = TableCells(asked, prepare_inputs(asked, tmp / "cache"), tmp / "work", OnSpark(bench))
    made.set_up()
    made.sizes = replace(made.sizes, row_bytes=(16 << 20) // 1000)
    return made


@pytest.fixture
def measure(
    bench: Bench, runner: TableCells, monkeypatch: pytest.MonkeyPatch
) -> Callable[[str], Measured]:
    """Runs one cell the way a run does; `measure_commit` is listened to."""
    measured = Measured()
    real = cells_module.measure_commit

    def listening(*args: Any, **kwargs: Any) -> CommitMeasure:
        measured.reports = list(args[3])
        measured.measure = real(*args, **kwargs)
        return measured.measure

    def run(cell: str) -> Measured:
        monkeypatch.setattr(cells_module, "measure_commit", listening)
        result = runner.cell(cell, runner.scenario.arms[0]).measure()
        seconds = [s.value for s in result.samples if s.metric == "seconds" and s.commit == 1]
        measured.slots_s = seconds[0] * bench.slots
        runner.discard(cell)
        return measured

    return run


def of_the_whole(measured: Measured) -> None:
    """Phases and `unattributed` make the whole, so that no time is in two of them."""
    assert measured.measure is not None
    identity = measured.measure.identity
    total = sum(time.wall_s for time in identity.phases.values())
    assert total == pytest.approx(measured.slots_s, rel=1e-6)
    assert identity.whole_s == pytest.approx(measured.slots_s, rel=1e-6)


def test_a_delay_in_our_code_outside_every_timer_is_unattributed(
    measure: Callable[[str], Measured], monkeypatch: pytest.MonkeyPatch
) -> None:
    class SleepsUntimed(SparkTask):  # local: it travels to workers by value
        def _output(
            self, stage: Stage, task: Task, batches: Iterable[pa.RecordBatch]
        ) -> Iterator[pa.RecordBatch]:
            if task.hop is not None:
                time.sleep(DELAY_S)
            yield from super()._output(stage, task, batches)

    monkeypatch.setattr(spark_exchange, "SparkTask", SleepsUntimed)
    measured = measure("untimed")
    of_the_whole(measured)
    assert measured.wall_s("unattributed") >= PARTITIONS * DELAY_S
    quickest = measured.quickest_s("map")
    assert quickest.pop("unattributed") >= DELAY_S
    assert {"input_wait", "from_arrow", "encode", "output_wait"} <= quickest.keys()


def test_a_delay_in_the_jvm_is_a_wait_for_input(
    measure: Callable[[str], Measured], monkeypatch: pytest.MonkeyPatch
) -> None:
    real = spark_exchange.scan_of_files

    def sleeps_in_the_jvm(spark: SparkSession, files: list[Path]) -> DataFrame:
        from pyspark.sql import functions as F  # noqa: N812

        # once a partition, at row 1,500 of it: the lower 33 bits of the id count its rows
        row = f"sleeper & {(1 << 33) - 1}"
        nap = f"reflect('java.lang.Thread', 'sleep', {int(DELAY_S * 1000)}L) IS NOT NULL"
        df = real(spark, files).withColumn("sleeper", F.monotonically_increasing_id())
        return df.where(f"IF({row} = 1500, {nap}, true)").drop("sleeper")

    # Spark reads the rows, not the tasks
    monkeypatch.setattr(spark_exchange, "known_files", lambda *given: None)
    monkeypatch.setattr(spark_exchange, "scan_of_files", sleeps_in_the_jvm)
    measured = measure("jvm")
    of_the_whole(measured)
    # the JVM sleeps while the worker does what it has by then, 1,000 rows, which takes milliseconds
    assert measured.quickest_s("map")["input_wait"] >= DELAY_S / 2
    assert measured.wall_s("map.input_wait") >= PARTITIONS * DELAY_S / 2
