"""The same code on a cluster whose workers have nothing installed: they run from the environment that
they are sent, and the tables and the bytes that were moved are those of a run without them."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pyspark
import pytest

from serde_lab.cli.app import main
from serde_lab.errors import SetupError, UsageError
from serde_lab.lab.checks.cell_checks import PROCESSES_WORK_IN_PHASES
from serde_lab.lab.runner import RunSettings, run_scenario
from serde_lab.lab.session import worker_environment
from serde_lab.lab.session.session import SessionSettings, spark_conf
from serde_lab.lab.session.worker_environment import environment_archive, shipped_distributions
from serde_lab.runs.directory import load_run
from serde_lab.scenario.loading import load_scenario, parse_scenario
from serde_lab.table.read_plan import plan_snapshot
from serde_lab.table.storage.storage import Storage
from serde_lab.table.table import HoodieTable
from serde_lab.verify.contents import Fingerprint, fingerprint
from tests.lab import where_it_runs
from tests.lab.plugin_folder import install
from tests.lab.small_scenario import content, source, toml
from tests.lab.test_repeated_runs import exact
from tests.spark_cluster import CONF, SparkCluster, spark_cluster

ARM = "where_it_runs"


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the plug-in is installed for this process."""
    module = Path(where_it_runs.__file__)
    monkeypatch.syspath_prepend(install(tmp_path / "site", module, [(ARM, "WhereItRuns")]))
    return tmp_path / "site"


def contents(table: Path) -> Fingerprint:
    return fingerprint(plan_snapshot(HoodieTable.open(Storage.open(table))).read())


@pytest.mark.spark
def test_workers_run_from_what_they_are_sent(
    tmp_path: Path, site: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scenario = tmp_path / "small.toml"
    scenario.write_text(toml(content(source(tmp_path), [ARM], cores=2)))
    here = RunSettings(tmp_path / "here", tmp_path / "cache", keep_tables=tmp_path / "kept-here")
    done = run_scenario(load_scenario(str(scenario)), here)
    assert done.exit_status == 0

    notes = tmp_path / "notes"
    notes.mkdir()
    # what a shipped byte costs is nothing here, and what packing it costs is seconds
    monkeypatch.setattr(worker_environment, "_COMPRESS_LEVEL", 0)
    archive = environment_archive(tmp_path / "cache")
    command = [sys.executable, "-m", "serde_lab", "run", str(scenario), "--cache", "cache"]
    command += ["--results", "there", "--keep-tables", "kept-there"]
    command += ["--set", "measure.exchange=spark", "--ship-environment"]
    conf = CONF | {f"spark.executorEnv.{where_it_runs.FOLDER}": str(notes)}
    command += [word for pair in conf.items() for word in ("--conf", "=".join(pair))]
    path = [str(site), *filter(None, [os.environ.get("PYTHONPATH")])]
    with spark_cluster(tmp_path / "cluster") as cluster:
        process = subprocess.run(
            [*command, "--master", cluster.url],
            cwd=tmp_path,
            env=os.environ | {"PYTHONPATH": os.pathsep.join(path)},
            capture_output=True,
            text=True,
            check=False,
        )
    assert process.returncode == 0, process.stderr
    # all that the workers said was read by their end; one whose executor was lost launches another
    for worker in cluster.workers:
        assert any("Asked to launch executor" in line for line in worker.lines)

    (folder,) = (tmp_path / "there" / "small").iterdir()
    there = load_run(folder)
    # processes on other machines are in no tree of this one
    assert {c.name for c in there.checks if c.passed is None} == {PROCESSES_WORK_IN_PHASES}
    assert {c.passed for c in there.checks if c.name != PROCESSES_WORK_IN_PHASES} == {True}
    assert exact(there) == exact(load_run(done.path))
    assert contents(tmp_path / "kept-there" / ARM) == contents(tmp_path / "kept-here" / ARM)
    (slots,) = {s.value for c in there.cells for s in c.samples if s.metric == "slots"}
    assert slots == 2

    # packed once: the run found it
    assert [file for file in archive.parent.iterdir() if file.name != ".lock"] == [archive]
    assert "packing" not in process.stderr
    said = there.header.spark_conf
    assert said["spark.master"] == cluster.url
    assert said["spark.archives"] == f"{archive.name}#environment"
    check_notes(notes, cluster)
    # hundreds of megabytes, which pytest would keep
    shutil.rmtree(tmp_path)


def check_notes(notes: Path, cluster: SparkCluster) -> None:
    """Both workers ran Python from the archive, with serde_lab and the plug-in from it; all else that
    they imported is of their Python's own library, or of the Spark that they are."""
    spark = Path(pyspark.__file__).parent
    unpacked = set()
    for note in [json.loads(file.read_text()) for file in notes.iterdir()]:
        assert [p for p in note["pythonpath"] if not Path(p).is_relative_to(spark)] == []
        prefix = Path(note["prefix"])
        unpacked.add(prefix.parent)
        files = [Path(file) for file in note["files"]]
        packages = {file.relative_to(prefix).parts[3] for file in files if _is_in(prefix, file)}
        assert {"serde_lab", f"{ARM}.py", "pyarrow", "numpy", "fastavro", "obstore"} <= packages
        known = (prefix, Path(note["base"]), spark / "python" / "lib")
        assert [file for file in files if not any(_is_in(place, file) for place in known)] == []
    assert {folder.parents[1] for folder in unpacked} == {
        cluster.folder / f"worker-{n}" for n in range(2)
    }


def _is_in(place: Path, file: Path) -> bool:
    return file.is_relative_to(place)


def test_what_is_shipped_is_what_tasks_need_and_plug_ins(site: Path) -> None:
    names = {one.name.lower() for one in shipped_distributions()}
    assert {"serde-lab", "pyarrow", "numpy", "fastavro", "cloudpickle", ARM} <= names
    assert names & {"pyspark", "py4j", "scipy", "duckdb", "pandas", "matplotlib", "pytest"} == set()


def test_a_plug_in_whose_files_cannot_be_told_is_refused(tmp_path: Path, site: Path) -> None:
    (info,) = site.glob("*.dist-info")
    (info / "RECORD").unlink()
    with pytest.raises(SetupError, match=f"{ARM} has no RECORD"):
        environment_archive(tmp_path)
    (info / "direct_url.json").write_text('{"url": "file:///x", "dir_info": {"editable": true}}')
    with pytest.raises(SetupError, match=f"{ARM} is an editable installation"):
        environment_archive(tmp_path)


def test_what_cannot_be_shipped_is_refused_before_anything_runs(tmp_path: Path) -> None:
    asked = parse_scenario(content(source(tmp_path)))
    settings = RunSettings(tmp_path / "results", ship_environment=True)
    with pytest.raises(UsageError, match="needs the --master of a cluster"):
        run_scenario(asked, settings)
    with pytest.raises(UsageError, match="absolute"):
        environment_archive(tmp_path, "python3")
    assert not (tmp_path / "results").exists()


def test_a_property_without_a_value_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "smoke", "--conf", "spark.executor.memory"]) == 2
    assert "expected KEY=VALUE" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("master", "expected"),
    [
        ("spark://host:7077", {"spark.cores.max": "3", "spark.archives": "a.tar.gz#environment"}),
        ("yarn", {"spark.executor.instances": "3", "spark.yarn.dist.archives": "a.tar.gz#environment"}),
        (
            "k8s://https://host:443",
            {"spark.executor.instances": "3", "spark.archives": "a.tar.gz#environment"},
        ),
    ],
)  # fmt: skip
def test_a_cluster_is_asked_for_the_slots(master: str, expected: dict[str, str]) -> None:
    conf = spark_conf(SessionSettings(cores=3, master=master, archive="a.tar.gz"))
    named = ("spark.cores.max", "spark.executor.instances", "spark.archives")
    found = {k: v for k, v in conf.items() if k in (*named, "spark.yarn.dist.archives")}
    assert found == expected
    assert conf["spark.scheduler.minRegisteredResourcesRatio"] == "1.0"
    own = SessionSettings(cores=3, master=master, conf={"spark.executor.instances": "7"})
    assert spark_conf(own)["spark.executor.instances"] == "7"
