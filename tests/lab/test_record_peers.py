"""Apache Hudi's record classes in a codec run: beside strategies, and missing without the bundle."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from serde_lab.analysis.summary import summarise
from serde_lab.cli.app import main
from serde_lab.lab.cells.verb_times import COME_BACK, VERBS
from serde_lab.report.render import render_run
from serde_lab.runs.directory import load_run
from serde_lab.scenario.model import RECORD_PEERS
from tests.lab.small_scenario import content, source, toml
from tests.lab.test_beside_peers import no_bundle, run  # noqa: F401 (a fixture)

ARMS: list[Any] = ["internal_row", *({"name": name, "peer": name} for name in RECORD_PEERS)]


def written(folder: Path) -> None:
    made = content(source(folder), ARMS, exchange="none", rounds=1)
    # an upsert of all 2,000 rows
    made |= {"setup": [], "commit": [{"share": 1.0}]}
    made["codec"] = {"batch_rows": [1000], "types": [], "widths": []}
    (folder / "small.toml").write_text(toml(made))


def only_run_path(folder: Path) -> Path:
    (path,) = (folder / "results" / "small").iterdir()
    return path


@pytest.mark.spark
@pytest.mark.hudi
def test_record_classes_are_measured_and_checked_beside_strategies(
    tmp_path: Path, hudi_bundle: Path
) -> None:
    written(tmp_path)
    done = run(tmp_path, "--require-peers", "--hudi-jar", str(hudi_bundle), "--cache", "cache")
    assert done.returncode == 0, done.stderr
    found = load_run(only_run_path(tmp_path))
    passed = {(check.arm, check.name) for check in found.checks if check.passed}
    assert passed >= {(arm, COME_BACK) for arm in ("internal_row", *RECORD_PEERS)}
    costs = summarise(found)["codec"]
    assert [(cost["arm"], cost["rows"]) for cost in costs] == [
        (arm, 1000) for arm in ("internal_row", *RECORD_PEERS)
    ]
    for cost in costs:
        assert cost["both_us"] > 0
        assert set(cost["verbs_us"]) == set(VERBS)
        assert cost["bytes"] > 20
    assert not found.header.likeness
    page = tmp_path / "page.md"
    render_run(found.path, page, "md")
    assert "Apache Hudi's own record classes in the JVM" in page.read_text()


@pytest.mark.slow
@pytest.mark.usefixtures("no_bundle")
def test_without_the_bundle_they_are_missing_with_a_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    written(tmp_path)
    assert main(["run", "small.toml", "--cache", "cache"]) == 0
    assert "hudi_spark_record is missing: Apache Hudi's bundle" in capsys.readouterr().err
    found = summarise(load_run(only_run_path(tmp_path)))
    assert {arm["arm"]: arm["status"] for arm in found["arms"]} == {
        "internal_row": "ok",
        **dict.fromkeys(RECORD_PEERS, "missing"),
    }
    assert all("doctor --fetch-hudi" in arm["missing"] for arm in found["arms"][1:])
    assert {cost["arm"] for cost in found["codec"]} == {"internal_row"}
    page = tmp_path / "page.md"
    render_run(only_run_path(tmp_path), page, "md")
    assert "`hudi_avro_record` is missing" in page.read_text()
