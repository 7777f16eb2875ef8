"""What a fresh worker does before its first task: everything that tasks do, and nothing that stays."""

from __future__ import annotations

from pathlib import Path

import pytest

from serde_lab.pipeline import warm_up
from tests.pipeline.lab_table import STRATEGIES


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_table_is_written_twice_and_goes_again(
    strategy: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written: list[int] = []
    once = warm_up._write_twice

    def counted(name: str, rows: int, folder: str) -> None:
        once(name, rows, folder)
        written.append(rows)

    monkeypatch.setattr(warm_up, "_write_twice", counted)
    warm_up.exercise(strategy, 240, str(tmp_path))
    assert written
    assert set(written) == {120}
    assert list(tmp_path.iterdir()) == []


def test_many_rows_are_come_to_by_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[int] = []
    monkeypatch.setattr(warm_up, "_write_twice", lambda name, rows, folder: written.append(rows))
    warm_up.exercise("arrow", 1_000_000, "nowhere")
    assert written == [2_000, 2_000, 20_000, 150_000]
    written.clear()
    warm_up.exercise("arrow", 0, "nowhere")
    assert written == []
