"""The same code on a real cluster: `run --master spark://…` writes the tables that a run without it does."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from serde_lab.lab.runner import RunSettings, run_scenario
from serde_lab.runs.directory import load_run
from serde_lab.scenario.loading import load_scenario
from serde_lab.table.read_plan import plan_snapshot
from serde_lab.table.storage import Storage
from serde_lab.table.table import HoodieTable
from serde_lab.verify.contents import Fingerprint, fingerprint
from tests.lab.small_scenario import content, source, toml
from tests.lab.test_repeated_runs import exact
from tests.spark_cluster import HOST, spark_cluster

pytestmark = pytest.mark.spark
ARMS = ("arrow",)


def contents(table: Path) -> Fingerprint:
    return fingerprint(plan_snapshot(HoodieTable.open(Storage.open(table))).read())


def test_a_run_on_a_cluster_writes_the_same_tables(tmp_path: Path) -> None:
    scenario = tmp_path / "small.toml"
    scenario.write_text(toml(content(source(tmp_path), ARMS, cores=2)))
    here = RunSettings(tmp_path / "here", tmp_path / "cache", keep_tables=tmp_path / "kept-here")
    done = run_scenario(load_scenario(str(scenario)), here)
    assert done.exit_status == 0

    command = [sys.executable, "-m", "serde_lab", "run", str(scenario), "--cache", "cache"]
    command += ["--results", "there", "--keep-tables", "kept-there"]
    command += ["--set", "measure.exchange=spark"]
    with spark_cluster(tmp_path / "cluster") as cluster:
        process = subprocess.run(
            [*command, "--master", cluster.url],
            cwd=tmp_path,
            env=os.environ | {"SPARK_LOCAL_IP": HOST},
            capture_output=True,
            text=True,
            check=False,
        )
        executors = [
            sum("Asked to launch executor" in line for line in worker.lines)
            for worker in cluster.workers
        ]
    assert process.returncode == 0, process.stderr
    assert executors == [1, 1]
    (folder,) = (tmp_path / "there" / "small").iterdir()
    there = load_run(folder)
    assert there.header.spark_conf["spark.master"] == cluster.url
    assert {check.passed for check in there.checks} == {True}
    assert exact(there) == exact(load_run(done.path))
    (slots,) = {s.value for c in there.cells for s in c.samples if s.metric == "slots"}
    assert slots == 2
    for arm in ARMS:
        assert contents(tmp_path / "kept-there" / arm) == contents(tmp_path / "kept-here" / arm)
