"""Opens and closes a Spark session of a run, and records its settings."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING

from serde_lab.lab.cells.peer_arms import SessionPlan, recorded_jars
from serde_lab.lab.run_settings import RunSettings
from serde_lab.lab.session.session import SessionSettings, spark_conf, start_session, stop_session
from serde_lab.lab.session.worker_environment import WORKER_PYTHON
from serde_lab.measure.calibration import calibrate
from serde_lab.scenario.model import Scenario

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class RunSession(AbstractContextManager["RunSession"]):
    """A Spark session and its bench; stopped on exit, whatever happens."""

    def __init__(
        self, scenario: Scenario, settings: RunSettings, work: Path, plan: SessionPlan
    ) -> None:
        from serde_lab.lab.cells.bench import Bench

        logs, local = work / "event-log", work / "spark"
        for folder in (logs, local):
            folder.mkdir(parents=True, exist_ok=True)
        self.spark = start_session(
            session_settings(scenario, settings, plan, str(logs), str(local))
        )
        try:
            self.bench = Bench(self.spark, logs, self.spark.sparkContext.defaultParallelism)
        except BaseException:
            stop_session(self.spark)
            raise

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        from py4j.protocol import Py4JError
        from pyspark.errors import PySparkException

        from serde_lab.pipeline.spark.exchange import on_purpose

        try:
            if isinstance(error, PySparkException | Py4JError):
                # the error's text is available only while the JVM lives
                on_purpose().__exit__(kind, error, trace)
        finally:
            self.bench.end_workers()
            stop_session(self.spark)


def session_settings(
    scenario: Scenario, settings: RunSettings, plan: SessionPlan, logs: str, local: str
) -> SessionSettings:
    """The start settings of a run's session; `logs` and `local` are folders for event log and shuffles."""
    return SessionSettings(
        cores=scenario.measure.cores,
        master=settings.master,
        driver_memory=f"{scenario.measure.driver_memory_mb}m",
        event_log_folder=logs,
        local_folder=local,
        worker_python=settings.worker_python if settings.archive is None else WORKER_PYTHON,
        archive="" if settings.archive is None else str(settings.archive),
        conf={**plan.conf, **settings.conf},
        jars=plan.jars,
    )


def recorded_conf(
    scenario: Scenario, settings: RunSettings, plan: SessionPlan
) -> Mapping[str, str]:
    """The settings of a session as run.json stores them."""
    bare = replace(plan, jars=recorded_jars(plan))
    asked = session_settings(scenario, settings, bare, "event-log", "spark")
    return spark_conf(replace(asked, archive=Path(asked.archive).name))


def calibration(work: Path, spark: SparkSession | None) -> Callable[[], Mapping[str, float]]:
    """A function that runs one calibration cell: numpy, disk, and a sum inside the JVM if there is one."""
    others: dict[str, Callable[[], object]] = {}
    if spark is not None:
        summed = spark.range(4_000_000).selectExpr("sum(hash(id)) AS s")
        others["jvm"] = lambda: summed.collect()
    return lambda: calibrate(work, others)
