"""Apache Hudi as arms beside ours: a whole small run, a missing bundle, and what isolating them does."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from serde_lab.analysis.summary import summarise
from serde_lab.cli.app import main
from serde_lab.lab.cells.peer_arms import options_of_peer, plan_peers
from serde_lab.lab.jars import manifest, repository
from serde_lab.lab.jars.manifest import HUDI
from serde_lab.peers.apache_hudi import SESSION_CONF
from serde_lab.peers.likeness import ASPECTS
from serde_lab.runs.directory import load_run
from serde_lab.runs.model import Run
from serde_lab.scenario.hudi_options import MERGERS
from serde_lab.scenario.loading import parse_scenario
from tests.lab.small_scenario import content, shared_session, source, toml

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

REPOSITORY = Path(__file__).parents[2]
PEERS = ("hudi_avro", "hudi_spark", "hudi_one_exchange", "hudi_spark_tuned")
ARMS: list[Any] = ["internal_row", *({"name": name, "peer": name} for name in PEERS)]
COMMITS = [
    {"share": 0.4, "late": 0.1, "updates": 0.8},
    {"share": 0.2, "updates": 0.5, "duplicates": 0.05},
]


def document(folder: Path, arms: list[Any] = ARMS, **table: Any) -> dict[str, Any]:
    made = content(source(folder), arms, exchange="spark", table=table)
    return {**made, "commit": COMMITS, "reference": arms[-1]["name"]}


def run(folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    """The command line, in a process of its own: one process has one Spark session."""
    command = [sys.executable, "-m", "tests.short_runs", "run", "small.toml", *options]
    environ = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
    return subprocess.run(
        command, cwd=folder, env=environ, capture_output=True, text=True, check=False
    )


@pytest.fixture
def no_bundle(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing outside of the test's folder is looked into: whoever runs the tests may have the bundle."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv(HUDI.variable, "")
    monkeypatch.setenv("SERDE_LAB_CACHE", str(tmp_path / "cache"))
    for module in (manifest, repository):
        monkeypatch.setattr(module, "homes", lambda _: [])


def only_run(folder: Path) -> Run:
    (path,) = (folder / "results" / "small").iterdir()
    return load_run(path)


@pytest.fixture(scope="module")
def beside(tmp_path_factory: pytest.TempPathFactory, hudi_bundle: Path) -> Run:
    folder = tmp_path_factory.mktemp("beside")
    table = {"type": "MERGE_ON_READ", "log_blocks": "parquet", "codec_level": 3}
    (folder / "small.toml").write_text(toml(document(folder, **table)))
    done = run(folder, "--require-peers", "--hudi-jar", str(hudi_bundle), "--cache", "cache")
    assert done.returncode == 0, done.stderr
    assert "times faster" in done.stdout
    return only_run(folder)


@pytest.mark.spark
@pytest.mark.hudi
def test_peers_write_the_same_table_beside_our_arms(beside: Run) -> None:
    asked = {"rows_match_oracle", "no_duplicate_keys", "meta_columns", "arms_agree", "files_alike"}
    for arm in ("internal_row", *PEERS):
        checks = {check.name: check.passed for check in beside.checks if check.arm == arm}
        assert asked <= checks.keys()
        assert all(checks.values()), [check for check in beside.checks if not check.passed]


@pytest.mark.spark
@pytest.mark.hudi
def test_the_phases_of_a_peer_make_its_whole_time(beside: Run) -> None:
    for arm in summarise(beside)["arms"]:
        for commit in arm["commits"]:
            found = sum(phase["wall_s"] for phase in commit["phases"].values())
            assert found == pytest.approx(arm["slots"] * commit["seconds"]["median"], rel=1e-6)
        if arm["kind"] == "peer":
            stages = {name.split("/")[0] for name in arm["phases"] if "/" in name}
            assert {"building_workload_profile", "committing_stats"} <= stages
            assert arm["unattributed_share"] == 0
            assert arm["serde_cpu_s"] is None
            assert arm["rows"] == sum(commit["rows"] for commit in arm["commits"])
            assert arm["files"] > 0


@pytest.mark.spark
@pytest.mark.hudi
def test_the_tuned_peer_leaves_an_exchange_out_where_no_key_comes_twice(beside: Run) -> None:
    sent: dict[str, list[float]] = {}
    for cell in beside.cells:
        found = {s.commit: s.value for s in cell.samples if s.metric == "shuffle_records"}
        sent[cell.arm] = [found[1], found[2]]
    rows = beside.header.settings["rows"]
    assert sent["hudi_spark"][0] >= 2 * rows["1"]
    assert sent["hudi_spark_tuned"][0] < 2 * rows["1"]
    assert sent["hudi_spark_tuned"][1] >= rows["2"] * 1.9
    assert sent["internal_row"] == [rows["1"], rows["2"]]


@pytest.mark.spark
@pytest.mark.hudi
def test_what_all_arms_share_is_recorded(beside: Run) -> None:
    header = beside.header
    assert dict(SESSION_CONF).items() <= header.spark_conf.items()
    level = "spark.hadoop.parquet.compression.codec.zstd.level"
    assert header.spark_conf[level] == "3"
    assert "/" not in header.spark_conf["spark.jars"]
    assert [one["name"] for one in header.likeness] == [one.name for one in ASPECTS]
    entries = {entry.arm: entry for entry in header.arms}
    assert entries["hudi_spark"].options["hoodie.metadata.enable"] == "false"
    ours = header.settings["write_options"]["internal_row"]
    own = dict(entries["hudi_spark"].options.items() - ours.items())
    assert own.keys() == {"hoodie.combine.before.upsert", MERGERS}


@pytest.mark.spark
@pytest.mark.usefixtures("no_bundle")
def test_a_missing_bundle_leaves_the_other_arms(
    tmp_path: Path, spark: SparkSession, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = document(tmp_path)
    (tmp_path / "small.toml").write_text(toml(asked))
    with shared_session(spark):
        assert main(["run", "small.toml", "--cache", "cache"]) == 0
    assert "doctor --fetch-hudi" in capsys.readouterr().err
    summary = summarise(only_run(tmp_path))
    assert {arm["arm"]: arm["status"] for arm in summary["arms"]} == {
        "internal_row": "ok",
        **dict.fromkeys(PEERS, "missing"),
    }
    assert all("--hudi-jar" in arm["missing"] for arm in summary["arms"][1:])
    scenario = parse_scenario(asked)
    (plain,) = plan_peers(scenario, scenario.arms).sessions
    assert (plain.jars, dict(plain.conf)) == ((), {})


@pytest.mark.usefixtures("no_bundle")
def test_a_missing_bundle_is_an_error_where_peers_are_required(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "small.toml").write_text(toml(document(tmp_path)))
    assert main(["run", "small.toml", "--require-peers"]) == 1
    assert (
        "hudi_avro, hudi_one_exchange, hudi_spark, hudi_spark_tuned: Apache Hudi's bundle"
        in capsys.readouterr().err
    )
    assert not (tmp_path / "results").exists()
    assert main(["run", "small.toml", "--hudi-jar", "nowhere.jar"]) == 1
    assert "nowhere.jar, which is not a file" in capsys.readouterr().err


def bundle(folder: Path) -> str:
    jar = folder / "hudi.jar"
    jar.write_bytes(b"PK")
    return str(jar)


def test_isolated_peers_get_a_session_of_their_own_and_the_others_none_of_its_settings(
    tmp_path: Path,
) -> None:
    scenario = parse_scenario(document(tmp_path, codec="zstd", codec_level=7))
    jar = bundle(tmp_path)
    plan = plan_peers(scenario, scenario.arms, jar=jar)
    assert plan.note.startswith(f"{jar} (--hudi-jar) is not the published {HUDI.coordinates}")
    (shared,) = plan.sessions
    assert shared.arms == {"internal_row", *PEERS}
    ours, theirs = plan_peers(scenario, scenario.arms, jar=jar, isolated=True).sessions
    assert (ours.arms, ours.jars, dict(ours.conf)) == ({"internal_row"}, (), {})
    assert theirs.arms == set(PEERS)
    assert (theirs.jars, theirs.conf) == (shared.jars, shared.conf)
    assert theirs.conf["spark.hadoop.parquet.compression.codec.zstd.level"] == "7"


@pytest.mark.spark
@pytest.mark.hudi
def test_isolated_arms_are_measured_in_turns_and_checked_against_each_other(
    tmp_path: Path, hudi_bundle: Path
) -> None:
    arms = [*ARMS[:1], ARMS[2]]
    asked = document(tmp_path, arms, type="MERGE_ON_READ", log_blocks="parquet")
    asked["commit"] = COMMITS[:1]
    asked["measure"]["rounds"] = 2
    (tmp_path / "small.toml").write_text(toml(asked))
    asked_for = ("--require-peers", "--isolate-peers", "--hudi-jar", str(hudi_bundle))
    done = run(tmp_path, *asked_for, "--cache", "cache")
    assert done.returncode == 0, done.stderr
    found = only_run(tmp_path)
    header = found.header
    assert dict(SESSION_CONF).items() <= header.peer_spark_conf.items()
    assert "spark.kryo.registrator" not in header.spark_conf
    assert [cell.round for cell in found.cells] == [0, 0, 1, 1]
    assert {(cell.arm, cell.status) for cell in found.cells} == {
        ("internal_row", "ok"),
        ("hudi_spark", "ok"),
    }
    agree = {(c.arm, c.round) for c in found.checks if c.name == "arms_agree" and c.passed}
    assert agree == {(arm, round) for arm in ("internal_row", "hudi_spark") for round in (0, 1)}


def test_a_scenario_without_peers_gets_a_plain_session_though_the_bundle_is_here(
    tmp_path: Path,
) -> None:
    scenario = parse_scenario(content(source(tmp_path)))
    plan = plan_peers(scenario, scenario.arms, jar=bundle(tmp_path), required=True)
    assert [(one.jars, dict(one.conf)) for one in plan.sessions] == [((), {})]
    assert not plan.with_peers


def options(tmp_path: Path, peer: str, commit: int, **table: Any) -> Mapping[str, str]:
    scenario = parse_scenario(document(tmp_path, **table))
    return options_of_peer(scenario, scenario.arm(peer), commit)


def test_duplicates_are_combined_by_every_peer_where_a_batch_may_have_some(tmp_path: Path) -> None:
    combine = "hoodie.combine.before.upsert"
    for commit, fewer in ((1, "false"), (2, "true")):
        assert options(tmp_path, "hudi_spark", commit)[combine] == "true"
        assert options(tmp_path, "hudi_one_exchange", commit)[combine] == fewer
        assert options(tmp_path, "hudi_spark_tuned", commit)[combine] == fewer


def test_one_exchange_fewer_is_all_that_its_arm_changes(tmp_path: Path) -> None:
    usual, fewer = (options(tmp_path, peer, 1) for peer in ("hudi_spark", "hudi_one_exchange"))
    assert dict(usual.items() ^ fewer.items()).keys() == {"hoodie.combine.before.upsert"}


def test_log_blocks_are_those_of_the_table_for_every_peer(tmp_path: Path) -> None:
    blocks = "hoodie.logfile.data.block.format"
    table = {"type": "MERGE_ON_READ", "log_blocks": "parquet"}
    assert {options(tmp_path, peer, 1, **table)[blocks] for peer in PEERS} == {"parquet"}
