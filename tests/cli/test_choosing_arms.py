"""`run --strategy`: which arms a name stands for."""

from __future__ import annotations

from pathlib import Path

import pytest

from serde_lab.cli.app import main
from serde_lab.lab.run_settings import RunSettings
from serde_lab.scenario.model import Scenario
from tests.lab.small_scenario import content, source, toml


@pytest.mark.slow
def test_a_name_is_an_arms_before_it_is_a_strategys(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    arms = [
        {"name": "arrow", "strategy": "arrow"},
        {"name": "arrow_cow", "strategy": "arrow", "table": {"codec": "gzip"}},
        {"name": "one", "strategy": "pickle"},
        {"name": "other", "strategy": "pickle", "table": {"codec": "gzip"}},
    ]
    file = tmp_path / "small.toml"
    file.write_text(toml(content(source(tmp_path), arms)))
    chosen: list[tuple[str, ...]] = []

    def measure(asked: Scenario, settings: RunSettings, *_: object) -> int:
        chosen.append(settings.arms)
        return 0

    monkeypatch.setattr("serde_lab.cli.run._measure", measure)
    assert main(["run", str(file), "--strategy", "arrow", "--strategy", "pickle"]) == 0
    assert chosen == [("arrow", "one", "other")]
