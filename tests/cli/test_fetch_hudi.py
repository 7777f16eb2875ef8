"""`--fetch-hudi`: the Maven client brings Apache Hudi's bundle, or its own words say why not."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from serde_lab.cli.app import main
from serde_lab.peers.apache_hudi import ARTIFACT, JAR_VARIABLE, VERSION
from serde_lab.scenario.model import Scenario
from tests.lab.small_scenario import content, source, toml

FOLDER = f".m2/repository/org/apache/hudi/{ARTIFACT}/{VERSION}"


def maven(home: Path, script: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A home without the bundle, and a Maven client that runs `script`."""
    client = home / "bin" / "mvn"
    client.parent.mkdir()
    client.write_text(f"#!/bin/sh\n{script}\n")
    client.chmod(0o755)
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("PATH", f"{client.parent}:{os.environ['PATH']}")
    monkeypatch.delenv(JAR_VARIABLE, raising=False)
    monkeypatch.chdir(home)


def test_the_bundle_is_fetched_and_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    jar = tmp_path / FOLDER / f"{ARTIFACT}-{VERSION}.jar"
    maven(tmp_path, f"mkdir -p {jar.parent}; echo PK > {jar}", monkeypatch)
    assert main(["doctor", "--format", "json"]) == 0
    assert not jar.exists()
    assert "doctor --fetch-hudi" in capsys.readouterr().out
    assert main(["doctor", "--fetch-hudi", "--format", "json"]) == 0
    found = {row["prerequisite"]: row["found"] for row in json.loads(capsys.readouterr().out)}
    assert found["Apache Hudi"] == str(jar)


def test_what_the_client_says_is_the_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    maven(tmp_path, "echo no route; exit 1", monkeypatch)
    assert main(["doctor", "--fetch-hudi"]) == 1
    said = " ".join(capsys.readouterr().err.split())
    assert said.endswith("it said: no route")


def scenario(folder: Path, *peers: str) -> str:
    arms = ["arrow", *({"name": name, "peer": name} for name in peers)]
    file = folder / "small.toml"
    file.write_text(toml(content(source(folder), arms, exchange="spark")))
    return str(file)


def test_a_run_without_the_bundle_is_an_error_only_where_peers_are_required(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    maven(tmp_path, "echo no route; exit 1", monkeypatch)
    measured: list[str] = []

    def measure(asked: Scenario, *_: object) -> int:
        measured.append(asked.name)
        return 0

    monkeypatch.setattr("serde_lab.cli.run._measure", measure)
    file = scenario(tmp_path, "hudi_spark")
    assert main(["run", file, "--fetch-hudi", "--require-peers"]) == 1
    assert "it said: no route" in " ".join(capsys.readouterr().err.split())
    assert measured == []
    assert main(["run", file, "--fetch-hudi"]) == 0
    assert "it said: no route" in " ".join(capsys.readouterr().err.split())
    assert measured == ["small"]


def test_nothing_is_fetched_for_a_scenario_without_peers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    maven(tmp_path, "touch asked", monkeypatch)
    monkeypatch.setattr("serde_lab.cli.run._measure", lambda *_: 0)
    assert main(["run", scenario(tmp_path), "--fetch-hudi"]) == 0
    assert not (tmp_path / "asked").exists()
    main(["run", scenario(tmp_path, "hudi_avro"), "--fetch-hudi"])
    assert (tmp_path / "asked").exists()
