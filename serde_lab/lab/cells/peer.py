"""Measures one cell of a peer: Apache Hudi writes the scenario's commits to its own table.

Scenario keys become options of Apache Hudi, and its Spark stages become phases. The clock covers the
whole call of `save`. The time before the instant is requested, and after it is completed, is stored too.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, cast

from serde_lab.errors import LabError
from serde_lab.lab.cells.result import CellResult, CellSample, table_bytes
from serde_lab.lab.inputs.prepared import CommitInput, PreparedInputs
from serde_lab.lab.plan import TABLE_NAME
from serde_lab.measure.commit import measure_commit
from serde_lab.measure.slots import Interval
from serde_lab.measure.spark_tasks import SparkHistory
from serde_lab.peers.apache_hudi import root_cause
from serde_lab.peers.hudi_arms import ARMS
from serde_lab.peers.hudi_options import HudiTable, Operation, write_options
from serde_lab.scenario.model import Arm, Scenario
from serde_lab.table.storage.storage import Storage
from serde_lab.table.table import HoodieTable
from serde_lab.table.timeline.timeline import Instant, parse_instant_time

if TYPE_CHECKING:
    from serde_lab.lab.cells.bench import Bench, Window

_JOB_DESCRIPTION = "spark.job.description"


def hudi_options(scenario: Scenario, arm: Arm, number: int) -> dict[str, str]:
    """All options of Apache Hudi for timed commit `number` (from 1) of `arm`."""
    table, commit = scenario.table_of(arm), scenario.commits[number - 1]
    peer = ARMS[arm.peer or ""]
    hudi = HudiTable(
        name=TABLE_NAME,
        record_key=scenario.data.record_key,
        ordering=scenario.ordering,
        partition=scenario.data.partition,
        table_type=table.type,
        hive_style=table.hive_style,
        url_encode=table.url_encode,
        time=table.time_properties,
        merge_mode=table.merge_mode,
        index=table.index,
        buckets=table.buckets,
        bucket_fields=table.bucket_fields,
        version=table.version,
    )
    write = peer.write(
        # the scenario's consistency check allows no other operations beside peers
        cast(Operation, commit.operation),
        parallelism=table.buckets,
        codec=table.codec,
        log_blocks=table.log_blocks or "avro",
        # unknown for the user's own files
        unique=commit.path is None and commit.duplicates == 0,
    )
    return write_options(hudi, write)


def session_conf(scenario: Scenario) -> dict[str, str]:
    """What the Spark session needs for peers beyond Apache Hudi's own settings.

    Apache Hudi reads the zstd level from Hadoop's configuration when the session starts. As an option of
    a write, or when set later, it has no effect (tried).
    """
    tables = [scenario.table_of(arm) for arm in scenario.arms if arm.peer]
    level = next((table.level for table in tables if table.codec == "zstd"), None)
    if level is None:
        return {}
    # the scenario's consistency check makes sure that all peers have the same level
    return {"spark.hadoop.parquet.compression.codec.zstd.level": str(level)}


def run_peer(
    bench: Bench, scenario: Scenario, inputs: PreparedInputs, table: Path, cell: str, arm: Arm
) -> CellResult:
    """Measure `arm` on each timed commit. Raises LabError with the innermost cause from Java."""
    bench.end_workers()
    samples: list[CellSample] = []
    total_s = 0.0
    for number, commit in enumerate(inputs.commits, start=1):
        options = hudi_options(scenario, arm, number)
        window = _write(bench, commit, table, f"{cell}#{number}", options)
        samples += _samples(bench, commit, table, number, window)
        total_s += window.wall_ns / 1e9
    samples += [CellSample("seconds", total_s), CellSample("slots", bench.slots)]
    return CellResult(tuple(samples), table)


def _write(
    bench: Bench, commit: CommitInput, table: Path, group: str, options: Mapping[str, str]
) -> Window:
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    writer = bench.source(commit.files).write.format("hudi").options(**options).mode("append")
    try:
        # Hudi's jobs leave the job group, so every job that ran meanwhile belongs to the cell
        _, window = bench.measured(group, lambda: writer.save(str(table)), own_jobs_only=False)
    except (Py4JError, PySparkException) as exc:
        raise LabError(f"Apache Hudi cannot write: {root_cause(str(exc))}") from exc
    return window


def _samples(
    bench: Bench, commit: CommitInput, table: Path, number: int, window: Window
) -> list[CellSample]:
    labels = stage_labels(window.history)
    measure = measure_commit(window.interval, bench.slots, window.history, [], labels=labels)
    samples = [
        CellSample("seconds", window.wall_ns / 1e9, number),
        CellSample("rows", commit.rows, number),
    ]
    samples += [CellSample(v.metric, v.value, number, v.phase) for v in measure.values()]
    written = HoodieTable.open(Storage.open(table))
    instant = written.timeline().completed()[-1]
    stats = written.commit_metadata(instant).write_stats
    samples += [
        CellSample(f"driver.{name}", seconds, number)
        for name, seconds in outside_instants(instant, window.interval).items()
    ]
    samples.append(CellSample("files", len(stats), number))
    samples.append(CellSample("table_bytes", table_bytes(written), number))
    return samples


def outside_instants(instant: Instant, clock: Interval) -> dict[str, float]:
    """Seconds of `clock` before `instant` was requested, and after it was completed.

    Instants are named by the JVM's time of day, in milliseconds; the lab's sessions use UTC.
    """
    begun_ns = _epoch_ns(instant.time)
    found = {"before_requested_s": max(0, begun_ns - clock.begin_ns) / 1e9}
    # table version 6 stores no completion times
    if instant.completion_time not in (None, instant.time):
        ended_ns = _epoch_ns(instant.completion_time or "")
        found["after_completed_s"] = max(0, clock.end_ns - ended_ns) / 1e9
    return found


def _epoch_ns(time: str) -> int:
    return round(parse_instant_time(time).timestamp() * 1000) * 1_000_000


def stage_labels(history: SparkHistory) -> dict[int, str]:
    """Names for a peer's stages: the purpose that it gives for the job, and Spark's name of the stage.

    "SparkUpsertCommitActionExecutor:Building workload profile:lab" with the stage "countByKey at
    HoodieJavaPairRDD.java:115" gives "building_workload_profile/countByKey".
    """
    names = {stage.stage_id: stage.name.split(" at ")[0] for stage in history.stages}
    labels: dict[int, str] = {}
    for job in sorted(history.jobs, key=lambda job: job.job_id):
        purpose = _purpose(job.properties.get(_JOB_DESCRIPTION, ""))
        for stage_id in job.stage_ids & names.keys():
            labels.setdefault(stage_id, f"{purpose}/{names[stage_id]}")
    return labels


def _purpose(description: str) -> str:
    parts = description.split(":")
    said = parts[1] if len(parts) > 1 else parts[0]
    return re.sub(r"\W+", "_", said.strip().lower()).strip("_") or "job"
