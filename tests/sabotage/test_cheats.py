"""Every strategy that cheats is caught by a check, by name: exit status 4, and no timing is shown.

One run measures all cheats beside an honest arm, which must come through.
"""

from __future__ import annotations

import importlib
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from serde_lab.analysis.summary import summarise
from serde_lab.cli.run_table import COLUMNS, arm_rows
from serde_lab.lab.cells.verb_times import COME_BACK
from serde_lab.lab.checks import isolation, referee, stand_alone
from serde_lab.lab.checks.referee import REFEREE, WORK_IS_DONE_IN_THE_CELLS
from serde_lab.lab.checks.stand_alone import STAND_ALONE
from serde_lab.lab.runner import RunSettings, run_scenario
from serde_lab.runs.directory import load_run
from serde_lab.runs.model import Run
from serde_lab.scenario.loading import parse_scenario
from tests.lab.plugin_folder import install
from tests.lab.small_scenario import content, rows, scenario, source
from tests.sabotage.cheats import BURN_CPU_S

pytestmark = pytest.mark.slow

CAUGHT_BY = {
    "tickets": "frames_stand_alone",
    "reads_the_input": "frames_stand_alone",
    "kills_the_reader": "frames_stand_alone",
    "sends_tickets": "frames_hold_the_rows",
    "pads_tickets": REFEREE,
    "skips_tickets": REFEREE,
    "deletes_tickets": REFEREE,
    "repeats_a_row": REFEREE,
    "plants_tickets": REFEREE,
    "smuggles_in_options": REFEREE,
    "smuggles_in_the_schema": REFEREE,
    "drops_a_column": "rows_match_oracle",
    "lies_about_order": "rows_match_oracle",
    "lies_about_keys": "no_duplicate_keys",
    "works_in_len": "work_is_inside_timers",
    "works_when_freed": "work_is_inside_timers",
    "works_in_a_thread": "work_is_inside_timers",
    "works_in_a_child": "processes_work_in_phases",
    "encoded_before": WORK_IS_DONE_IN_THE_CELLS,
    "decoded_before": WORK_IS_DONE_IN_THE_CELLS,
    "sends_arrow": "wire_is_the_strategys",
    "wears_arrows_mark": "wire_is_the_strategys",
    "leaves_out_bloom": "files_alike",
    "empties_bloom": "files_alike",
    "invents_a_range": "files_alike",
    "leaves_out_statistics": "files_alike",
}
"""The check that must name it; others may fail besides."""

HONEST = ("honest", "arrow")
COUNTED = "decodes_late"
"""Its answer is right; it puts work off to where only the pipeline's own used to be timed."""


@dataclass(frozen=True)
class Outcome:
    run: Run
    exit_status: int
    summary: dict[str, Any]

    def arm(self, name: str) -> dict[str, Any]:
        return next(arm for arm in self.summary["arms"] if arm["arm"] == name)

    def failed(self, name: str) -> dict[str, str]:
        checks = [c for c in self.run.checks if c.arm == name and c.passed is False]
        return {check.name: check.detail for check in checks}

    def is_caught(self, cheat: str) -> bool:
        """Whether its check can be made here; a check that is not made says why, and passes nobody."""
        not_made = [c for c in self.run.checks if c.arm == cheat and c.passed is None]
        if CAUGHT_BY[cheat] != REFEREE or not not_made:
            return True
        assert [check.name for check in not_made] == [REFEREE]
        assert not_made[0].detail.startswith("not isolated")
        return False


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """The cheats, found by name; gone after the module."""
    folder = tmp_path_factory.mktemp("cheats") / "site"
    here = Path(__file__).with_name("cheats.py")
    from tests.sabotage.cheats import ALL

    install(folder, here, [(name, found.__name__) for name, found in ALL.items()])
    sys.path.insert(0, str(folder))
    yield importlib.import_module("cheats")
    sys.path.remove(str(folder))
    sys.modules.pop("cheats", None)


@pytest.fixture(scope="module")
def outcome(installed: Any, tmp_path_factory: pytest.TempPathFactory) -> Outcome:
    tmp = tmp_path_factory.mktemp("sabotage")
    asked = scenario(source(tmp / "own"), [*CAUGHT_BY, *HONEST, COUNTED])
    settings = RunSettings(results=tmp / "results", cache=tmp / "cache", work=tmp / "work")
    (tmp / "side").mkdir()
    with pytest.MonkeyPatch.context() as patch:
        # a process of its own knows nothing that the cheat keeps in memory
        patch.setattr(stand_alone, "subprocess", subprocess)
        patch.setattr(stand_alone, "isolation", isolation)
        patch.setattr(referee, "isolation", isolation)
        # nor does it take the lab from the folder that it starts in, which may hold another version
        (tmp / "elsewhere" / "serde_lab").mkdir(parents=True)
        (tmp / "elsewhere" / "serde_lab" / "__init__.py").touch()
        patch.chdir(tmp / "elsewhere")
        patch.setenv("CHEAT_SIDE", str(tmp / "side"))
        patch.setenv("CHEAT_WORK", str(tmp / "work" / "serde_lab-*"))
        patch.setenv("CHEAT_INPUT", str(tmp / "cache" / "inputs" / "*" / "commit-1" / "*.parquet"))
        done = run_scenario(asked, settings)
    run = load_run(done.path)
    return Outcome(run, done.exit_status, summarise(run))


def test_the_run_ends_and_says_that_answers_are_wrong(outcome: Outcome) -> None:
    assert outcome.run.header.state == "complete"
    assert outcome.exit_status == 4
    assert [cell.error for cell in outcome.run.cells if cell.status == "failed"] == []


@pytest.mark.parametrize(("cheat", "check"), CAUGHT_BY.items())
def test_a_cheat_is_caught_by_name(cheat: str, check: str, outcome: Outcome) -> None:
    if not outcome.is_caught(cheat):
        pytest.skip("this machine has no namespaces, and the check says so")
    assert check in outcome.failed(cheat)
    assert outcome.arm(cheat)["wrong"] is True


@pytest.mark.parametrize("cheat", CAUGHT_BY)
def test_no_timing_of_a_cheat_is_shown(cheat: str, outcome: Outcome) -> None:
    if not outcome.is_caught(cheat):
        pytest.skip("this machine has no namespaces, and the check says so")
    arm = outcome.arm(cheat)
    assert arm["seconds"] is None
    assert not arm.get("phases")
    assert arm.get("serde_cpu_s") is None
    row = next(row for row in arm_rows(outcome.summary) if row.figures["arm"] == cheat)
    times = {"seconds", "rows/s", "SerDe CPU", "ratio", "CPU ratio"}
    assert times < set(COLUMNS)
    shown = dict(zip(COLUMNS, map(str, row.cells()), strict=True))
    assert not [shown[name] for name in times if any(c.isdigit() for c in shown[name])]
    assert row.remark
    assert {row.figures[name] for name in ("seconds", "seconds_min", "serde_cpu_s")} == {None}
    assert row.to_reference is row.cpu_to_reference is None


@pytest.mark.parametrize("arm", HONEST)
def test_an_honest_arm_beside_them_is_measured(arm: str, outcome: Outcome) -> None:
    assert outcome.failed(arm) == {}
    assert outcome.arm(arm)["seconds"]["median"] > 0


def test_what_a_codec_run_gives_again_and_again_is_made_each_time(
    installed: Any, tmp_path: Path
) -> None:
    cheat, codec = "keeps_its_batch", {"batch_rows": [10_000], "types": [], "widths": []}
    file = source(tmp_path / "own", rows(20_000))
    asked = parse_scenario(content(file, [cheat, *HONEST], exchange="none") | {"codec": codec})
    settings = RunSettings(tmp_path / "results", tmp_path / "cache", tmp_path / "work")
    done = run_scenario(asked, settings)
    found = {(check.arm, check.name): check.passed for check in load_run(done.path).checks}
    assert found == {
        (arm, name): arm != cheat or name != WORK_IS_DONE_IN_THE_CELLS
        for arm in (cheat, *HONEST)
        for name in (STAND_ALONE, COME_BACK, WORK_IS_DONE_IN_THE_CELLS)
    }
    assert done.exit_status == 4


def test_work_put_off_to_the_reading_of_a_column_counts_as_serde(outcome: Outcome) -> None:
    assert outcome.failed(COUNTED) == {}
    late, honest = outcome.arm(COUNTED), outcome.arm("honest")
    assert late["phases"]["reduce.read_columns"]["cpu_s"] > BURN_CPU_S
    assert late["serde_cpu_s"] > honest["serde_cpu_s"] + BURN_CPU_S
    for phase in ("reduce.group", "reduce.precombine", "reduce.merge"):
        assert late["phases"][phase]["cpu_s"] < BURN_CPU_S


def test_the_sentences_say_what_is_wrong(outcome: Outcome) -> None:
    assert (
        "a separate process cannot decode the frames"
        in outcome.failed("tickets")["frames_stand_alone"]
    )
    detail = outcome.failed("kills_the_reader")["frames_stand_alone"]
    assert "the process ended with status 3" in detail
    detail = outcome.failed("reads_the_input")["frames_stand_alone"]
    assert detail.startswith("a separate process decodes other rows: column 'name'")
    assert "amount" in outcome.failed("drops_a_column")["rows_match_oracle"]
    assert "sends_arrow" in outcome.failed("sends_arrow")["wire_is_the_strategys"]
    assert "arrow" in outcome.failed("wears_arrows_mark")["wire_is_the_strategys"]
    assert "thread" in outcome.failed("works_in_a_thread")["work_is_inside_timers"]
    detail = outcome.failed("leaves_out_bloom")["files_alike"]
    assert detail.startswith("2 of 2 base files have no Bloom filter")
    detail = outcome.failed("leaves_out_statistics")["files_alike"]
    assert detail.startswith("2 of 2 row groups lack statistics of a column")
