"""A scenario small enough to run in a test: the user's own parquet, a set-up and an upsert."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlparse

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from serde_lab.lab import runner
from serde_lab.lab.run_settings import RunSettings
from serde_lab.lab.runner import run_scenario
from serde_lab.runs.directory import load_run
from serde_lab.runs.model import Run
from serde_lab.scenario.loading import parse_scenario
from serde_lab.scenario.model import Scenario

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NAME = "small"


def rows(count: int = 2000) -> pa.Table:
    """Rows with the unique key `id`; `name` and `amount` hold nulls."""
    return pa.table(
        {
            "id": pa.array(range(count), pa.int64()),
            "name": [None if i % 7 == 0 else f"name {i % 97}" for i in range(count)],
            "amount": pa.array([None if i % 11 == 0 else i / 8 for i in range(count)]),
            "flag": [i % 3 == 0 for i in range(count)],
        }
    )


def source(folder: Path, table: pa.Table | None = None) -> Path:
    """A parquet file of `table`, by default of `rows()`; made once a folder."""
    file = folder / "rows.parquet"
    if not file.exists():
        folder.mkdir(parents=True, exist_ok=True)
        pq.write_table(rows() if table is None else table, file)
    return file


def content(
    file: Path,
    arms: Iterable[str | Mapping[str, Any]] = ("arrow",),
    *,
    exchange: str = "inprocess",
    data: Mapping[str, Any] | None = None,
    table: Mapping[str, Any] | None = None,
    **measure: Any,
) -> dict[str, Any]:
    """The document of a scenario over `file`; an arm may be the name of its strategy alone."""
    return {
        "name": NAME,
        "title": "small",
        "question": "does it work",
        "data": {
            "source": "parquet",
            "path": str(file),
            "key": "id",
            "input_partitions": 2,
            **(data or {}),
        },
        "setup": [{"operation": "bulk_insert", "share": 0.5}],
        "commit": [
            {"share": 0.5, "updates": 0.5, "duplicates": 0.05, "late": 0.1},
        ],
        "table": {"buckets": 2, **(table or {})},
        "arm": [
            {"name": arm, "strategy": arm} if isinstance(arm, str) else dict(arm) for arm in arms
        ],
        "measure": {
            "rounds": 1,
            "warmup": 0,
            "exchange": exchange,
            "driver_memory_mb": 1024,
            **measure,
        },
    }


def scenario(file: Path, *args: Any, **kwargs: Any) -> Scenario:
    """`content`, parsed."""
    return parse_scenario(content(file, *args, **kwargs))


def toml(value: Mapping[str, Any], prefix: str = "") -> str:
    """A document as TOML text: values, then tables, then arrays of tables."""
    lines, below = [], []
    for key, entry in value.items():
        if isinstance(entry, Mapping):
            below.append(f"[{prefix}{key}]\n{toml(entry, f'{prefix}{key}.')}")
        elif isinstance(entry, list) and entry and isinstance(entry[0], Mapping):
            below += [f"[[{prefix}{key}]]\n{toml(one, f'{prefix}{key}.')}" for one in entry]
        else:
            lines.append(f"{key} = {_literal(entry)}\n")
    return "".join([*lines, *below])


def _literal(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_literal, value))}]"
    return str(value)


class SharedSession(AbstractContextManager["SharedSession"]):
    """Takes the place of a run's own session, `RunSession`: the tests' session and a bench on it."""

    def __init__(self, spark: SparkSession) -> None:
        from serde_lab.lab.cells.bench import Bench

        logs = unquote(urlparse(spark.conf.get("spark.eventLog.dir")).path)
        self.bench = Bench(spark, Path(logs), spark.sparkContext.defaultParallelism)
        self._environment = spark.sparkContext.environment
        self._before = dict(self._environment)

    def __exit__(self, *args: object) -> None:
        self.bench.end_workers()
        # Spark takes no worker that has just ended
        self._environment.clear()
        self._environment.update(self._before)


@contextmanager
def shared_session(spark: SparkSession) -> Iterator[None]:
    """Runs on Spark take place in the tests' session: no JVM and no process are started for them."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(runner, "RunSession", lambda *_: SharedSession(spark))
        yield


def run_in_session(spark: SparkSession, whole: Mapping[str, Any], folder: Path) -> Run:
    """The run of a scenario in the tests' session."""
    settings = RunSettings(folder / "results", folder / "cache", folder / "work")
    with shared_session(spark):
        outcome = run_scenario(parse_scenario(dict(whole), "small.toml"), settings)
    run = load_run(outcome.path)
    assert outcome.exit_status == 0, [cell.error for cell in run.cells] + list(run.checks)
    return run


def run_in_a_process(whole: Mapping[str, Any], folder: Path) -> Run:
    """The run of a scenario, in a process of its own: one process has one Spark session."""
    (folder / "small.toml").write_text(toml(whole))
    command = [sys.executable, "-m", "tests.short_runs", "run", "small.toml"]
    command += ["--cache", "cache"]
    environ = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    done = subprocess.run(
        command, cwd=folder, env=environ, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    (path,) = (folder / "results" / NAME).iterdir()
    return load_run(path)
