"""What a fresh worker does before its first task: everything that tasks do, and nothing that stays."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from serde_lab.pipeline import warm_up
from serde_lab.pipeline.warm_up import Carry
from serde_lab.serde.interface import SerdeOptions
from tests.pipeline.lab_table import STRATEGIES


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_table_is_written_twice_and_goes_again(
    strategy: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written: list[int] = []
    once = warm_up._write_twice

    def counted(name: str, serde: SerdeOptions, rows: int, folder: str, carry: Carry) -> None:
        once(name, serde, rows, folder, carry)
        written.append(rows)

    monkeypatch.setattr(warm_up, "_write_twice", counted)
    warm_up.exercise(strategy, warm_up.DEFAULT_FRAMING, 240, str(tmp_path))
    assert written
    assert set(written) == {120}
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("us_a_row", "rows", "steps"),
    [
        (10, 1_000_000, [2_000, 2_000, 20_000, 150_000]),
        (50, 1_000_000, [2_000, 2_000, 20_000]),  # 7.5 s of CPU would be too many
        (2_000, 1_000_000, [2_000]),
        (10, 0, []),
    ],
)
def test_many_rows_are_come_to_by_steps_as_long_as_there_is_time(
    us_a_row: int, rows: int, steps: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    written: list[int] = []

    def spent_s() -> float:
        return sum(written) * us_a_row / 1e6

    monkeypatch.setattr(warm_up, "time", SimpleNamespace(process_time=spent_s))
    monkeypatch.setattr(warm_up, "_write_twice", lambda *asked: written.append(asked[2]))
    warm_up.exercise("arrow", warm_up.DEFAULT_FRAMING, rows, "nowhere")
    assert written == steps
