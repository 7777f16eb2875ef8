"""`--fetch-hudi` brings Apache Hudi's bundle, or says what failed and what to fetch by hand; and so do the
options for other jars."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from serde_lab.cli.app import main
from serde_lab.lab import prerequisites
from serde_lab.lab.cells import peer_arms
from serde_lab.lab.jars import manifest as jars
from serde_lab.lab.jars import repository
from serde_lab.scenario.model import Scenario
from tests.lab.jar_server import JAR, JarServer, no_other_home, served
from tests.lab.small_scenario import content, source, toml


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[JarServer]:
    """A machine without the bundle, and a repository that has a small jar in its place."""
    no_other_home(monkeypatch, tmp_path)
    for module in (jars, prerequisites, peer_arms):
        monkeypatch.setattr(module, "HUDI", JAR)
    for module in (jars, prerequisites):
        for version, name in enumerate(("KAFKA_BROKER", "KAFKA_CONNECTOR"), 2):
            monkeypatch.setattr(module, name, (replace(JAR, version=f"{version}", variable=""),))
        formats = {
            control: (replace(JAR, title=control, version=f"{version}", variable=""),)
            for version, control in enumerate(jars.FORMATS, 4)
        }
        monkeypatch.setattr(module, "FORMATS", formats)
    monkeypatch.setattr(repository, "_PAUSE_S", 0)
    monkeypatch.setenv("SERDE_LAB_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    with served() as one:
        monkeypatch.setenv("SERDE_LAB_MAVEN_REPOSITORY", one.url)
        yield one


def test_the_bundle_is_fetched_with_progress_and_found(
    server: JarServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    jar = tmp_path / "cache" / "jars" / JAR.file_name
    assert main(["doctor", "--format", "json"]) == 0
    said = {row["prerequisite"]: row for row in json.loads(capsys.readouterr().out)}
    assert said["Apache Hudi"]["found"] == f"{JAR.file_name} is not on this machine"
    advice = f"download {server.url}/{JAR.repository_path} to {jar}, or name the file in "
    assert advice + JAR.variable in said["Apache Hudi"]["what to do"]
    assert server.asked == []
    assert main(["doctor", "--fetch-hudi", "--format", "json"]) == 0
    captured = capsys.readouterr()
    found = {row["prerequisite"]: row["found"] for row in json.loads(captured.out)}
    assert found["Apache Hudi"] == f"{jar} (the cache)"
    lines = captured.err.splitlines()
    assert lines[-1] == "fetching small-bundle_2.12 1.0: 4 of 4 MB"
    assert len(lines) <= 10


def test_on_a_terminal_progress_is_one_live_line(
    server: JarServer, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for console in ("serde_lab.cli.console.stderr", "serde_lab.cli.console.stderr"):
        monkeypatch.setattr(console, Console(stderr=True, force_terminal=True, width=100))
    assert main(["doctor", "--fetch-hudi", "--format", "json"]) == 0
    said = capsys.readouterr().err
    assert "fetching small-bundle_2.12 1.0" in said
    assert "4.1/4.1 MB" in said


def test_the_doctor_names_the_file_of_the_variable_and_what_differs(
    server: JarServer,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "own.jar").write_bytes(b"PK")
    monkeypatch.setenv(JAR.variable, "own.jar")
    assert main(["doctor", "--fetch-hudi", "--format", "json"]) == 0
    said = {row["prerequisite"]: row for row in json.loads(capsys.readouterr().out)}
    assert said["Apache Hudi"]["found"] == f"{tmp_path}/own.jar ({JAR.variable})"
    assert "is not the published org.example.small" in said["Apache Hudi"]["what to do"]
    assert server.asked == []


def test_kafka_s_jars_are_fetched_only_when_they_are_asked_for(
    server: JarServer, capsys: pytest.CaptureFixture[str]
) -> None:
    said = doctor(capsys)["Apache Kafka"]
    assert said["found"] == "2 of 2 jars of broker and connector are not on this machine"
    assert "run `serde-lab doctor --fetch-kafka` (8 MB)" in said["what to do"]
    assert server.asked == []
    said = doctor(capsys, "--fetch-kafka")["Apache Kafka"]
    assert said["found"].startswith("2 jars in ")
    assert said["what to do"] == ""
    assert len(server.asked) == 2


def test_the_jars_of_delta_lake_and_iceberg_are_fetched_only_when_they_are_asked_for(
    server: JarServer, capsys: pytest.CaptureFixture[str]
) -> None:
    said = doctor(capsys)
    for control in jars.FORMATS:
        assert said[control]["found"] == "1 of 1 jars are not on this machine"
        advice = f"needed by the control {control} only: run `serde-lab doctor --fetch-formats`"
        listed = "or by hand what serde_lab/lab/jars/jars.toml lists, such as: download "
        assert said[control]["what to do"].startswith(f"{advice} (4 MB), {listed}")
    assert server.asked == []
    said = doctor(capsys, "--fetch-formats")
    for control, (jar,) in jars.FORMATS.items():
        assert said[control]["found"].endswith(jar.file_name)
        assert said[control]["what to do"] == ""
    assert len(server.asked) == 2


def doctor(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, dict[str, str]]:
    assert main(["doctor", *arguments, "--format", "json"]) == 0
    return {row["prerequisite"]: row for row in json.loads(capsys.readouterr().out)}


def test_what_failed_is_one_sentence(server: JarServer, capsys: pytest.CaptureFixture[str]) -> None:
    server.status = 404
    assert main(["doctor", "--fetch-hudi"]) == 1
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert "a small jar cannot be fetched from" in said
    assert "the server answers 404" in said


def scenario(folder: Path, *peers: str) -> str:
    arms = ["arrow", *({"name": name, "peer": name} for name in peers)]
    file = folder / "small.toml"
    file.write_text(toml(content(source(folder), arms, exchange="spark")))
    return str(file)


def test_a_run_without_the_bundle_is_an_error_only_where_peers_are_required(
    server: JarServer,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    server.status = 404
    measured: list[str] = []

    def measure(asked: Scenario, *_: object) -> int:
        measured.append(asked.name)
        return 0

    monkeypatch.setattr("serde_lab.cli.run._measure", measure)
    file = scenario(tmp_path, "hudi_spark")
    assert main(["run", file, "--fetch-hudi", "--require-peers"]) == 1
    assert "the server answers 404" in capsys.readouterr().err
    assert measured == []
    assert main(["run", file, "--fetch-hudi"]) == 0
    assert "the server answers 404" in capsys.readouterr().err
    assert measured == ["small"]


def test_nothing_is_fetched_for_a_scenario_without_peers(
    server: JarServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("serde_lab.cli.run._measure", lambda *_: 0)
    assert main(["run", scenario(tmp_path), "--fetch-hudi"]) == 0
    assert server.asked == []
    assert main(["run", scenario(tmp_path, "hudi_avro"), "--fetch-hudi"]) == 0
    assert len(server.asked) == 1
