"""The self-test's own bookkeeping, and the committed pool that tests the rule without a clock."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from serde_lab.cli.app import main
from serde_lab.errors import RunError, ScenarioError
from serde_lab.gate.decision import Policy
from serde_lab.gate.pool import Pool, PoolRound, read_pool, record_pool, write_pool
from serde_lab.gate.self_test import groups_needed, judge_groups, rounds_needed, self_test
from serde_lab.gate.statistics import AB_LOOKS, AlphaSpending, wilson
from serde_lab.lab.cells import gate_rounds as rounds_module
from serde_lab.lab.cells.gate_rounds import CELLS, gate_rounds
from serde_lab.scenario.loading import load_scenario, parse_scenario
from serde_lab.serde.arrow.records import BoundArrow
from tests.gate.made_up_sides import log_normal
from tests.lab.small_scenario import content, source

pytestmark = pytest.mark.slow

POOL = Path(__file__).parent / "pools" / "busy_loop.json"
POOLS = sorted(POOL.parent.glob("gate_smoke*.json"))
PLAN = AlphaSpending(first=6, step=3, maximum=12)


def pool(rounds: int, sigma: float = 0.02, *, control: bool = False) -> Pool:
    columns = [log_normal(seed, rounds, sigma) for seed in range(4)]
    return Pool(
        "made up",
        0.1,
        tuple(
            PoolRound(a, b, 1.1 * c, d if control else None)
            for a, b, c, d in zip(*columns, strict=True)
        ),
    )


@pytest.mark.parametrize("slowed", [True, False])
def test_groups_are_disjoint_and_each_round_serves_once(slowed: bool) -> None:
    groups = judge_groups(pool(200), PLAN, Policy(), slowed=slowed)
    used = [n for g in groups for n in range(g.first_round, g.first_round + g.rounds)]
    assert used == list(range(1, len(used) + 1))
    assert len(used) <= 200
    assert {group.rounds for group in groups} <= set(PLAN.looks)


def test_a_group_lies_in_one_sitting() -> None:
    whole = pool(200)
    apart = replace(whole, sittings=(20, 80, 100))
    assert [len(part.rounds) for part in apart.by_sitting] == [20, 80, 100]
    groups = judge_groups(apart, PLAN, Policy(), slowed=True)
    ends = {1: 20, 2: 100, 3: 200}
    assert {group.sitting for group in groups} == set(ends)
    for group in groups:
        begun = ends.get(group.sitting - 1, 0)
        last = group.first_round + group.rounds - 1
        assert begun < group.first_round <= last <= ends[group.sitting]


def test_sittings_that_differ_widen_an_interval() -> None:
    """No alarm in three sittings, in the fourth one in each group: far from what Wilson's rule expects."""
    quiet = pool(600, control=True)
    jumpy = tuple(PoolRound(1.0 + n % 2 / 50, 1.2, 1.4, 1.0) for n in range(200))
    rounds = (*quiet.rounds, *jumpy)
    together, apart = (
        self_test(replace(quiet, rounds=rounds, sittings=sittings), PLAN, effects=())
        for sittings in ((), (200, 200, 200, 200))
    )
    assert apart.false_alarms.hits > 10
    assert apart.false_alarms.low < 0.05 < 0.5 < apart.false_alarms.high
    assert apart.false_alarms.high > together.false_alarms.high
    # where no sitting differs, Wilson's interval stays
    even = self_test(replace(quiet, sittings=(300, 300)), PLAN, effects=())
    assert even.false_alarms.high == wilson(0, even.false_alarms.trials).high


def test_rounds_needed_are_those_of_the_worst_sitting() -> None:
    quiet, noisy = pool(300), pool(300, sigma=0.08)
    both = replace(quiet, rounds=(*quiet.rounds, *noisy.rounds), sittings=(300, 300))
    alone = [rounds_needed(one, 0.85) for one in (quiet, noisy)]
    assert alone[0] is not None
    assert alone[1] is not None
    assert alone[0] < alone[1] == rounds_needed(both, 0.85)


def test_an_ab_measurement_that_the_pool_cuts_short_gives_no_verdict() -> None:
    noisy = pool(20, sigma=0.2)
    assert sum(g.rounds for g in judge_groups(noisy, PLAN, Policy(), slowed=False)) <= 20
    assert judge_groups(pool(5), PLAN, Policy(), slowed=False) == ()


@pytest.mark.parametrize("control", [True, False])
def test_the_proof_of_a_quiet_machine(control: bool) -> None:
    result = self_test(pool(900, control=control), PLAN)
    assert result.exit_status == 0
    assert result.false_alarms.hits == 0
    assert result.smallest_effect is not None
    assert 0.05 < result.smallest_effect <= 0.1


def test_a_gate_that_sleeps_or_cries_wolf_is_not_trusted() -> None:
    asleep = self_test(pool(900), PLAN, Policy(relative=0.2), effects=())
    assert not asleep.detections_held
    assert asleep.exit_status == 1
    jumpy = Pool("x", 0.1, tuple(PoolRound(1.0 + n % 2 / 50, 1.2, 1.4, 1.0) for n in range(600)))
    wolf = self_test(jumpy, PLAN, effects=())
    assert not wolf.false_alarms_held
    assert wolf.exit_status == 1


def test_too_small_a_pool_proves_nothing() -> None:
    result = self_test(pool(60), PLAN, effects=())
    assert result.false_alarms.hits == 0
    assert result.exit_status == 1


def test_groups_needed() -> None:
    assert groups_needed() == 73
    assert wilson(0, 73).high <= 0.05 < wilson(0, 72).high


def test_recording_stops_at_the_budget_or_the_number_and_goes_on_later() -> None:
    ticks = iter(range(1000))
    kept: list[int] = []

    def measure(number: int) -> dict[str, PoolRound]:
        return {
            "seconds": PoolRound(float(number), 1.0, 1.1),
            "serde_cpu_s": PoolRound(0.5 * number, 0.5, 0.6),
        }

    def record(begun_with: Pool, rounds: int, budget_s: float) -> Pool:
        return record_pool(
            measure,
            begun_with,
            rounds=rounds,
            budget_s=budget_s,
            clock=lambda: float(next(ticks)),
            kept=lambda pool: kept.append(len(pool.rounds)),
        )

    empty = Pool("s", 0.1, ())
    first = record(empty, 4, 100)
    assert [one.plain for one in first.rounds] == [1, 2, 3, 4]
    assert kept == [1, 2, 3, 4]
    assert len(record(empty, 100, 5).rounds) == 4
    more = record(first, 6, 100)
    assert (first.sittings, more.sittings) == ((4,), (4, 2))
    # a file of before, which names no sittings, holds one
    assert record(replace(first, sittings=()), 6, 100).sittings == (4, 2)
    assert [one.plain for one in more.others["serde_cpu_s"]] == [0.5, 1, 1.5, 2, 2.5, 3]
    assert record(more, 6, 100) == more


def test_pools_survive_their_file(tmp_path: Path) -> None:
    for control in (True, False):
        rounds = (PoolRound(1.5, 2, 3, 4 if control else None),) * 3
        cpu = {"serde_cpu_s": (PoolRound(0.5, 0.25, 1, None),) * 3}
        kept = Pool("s", 0.1, rounds, "m", {"a": 1}, cpu, (1, 2))
        write_pool(kept, tmp_path / "p" / "pool.json")
        assert read_pool(tmp_path / "p" / "pool.json") == kept
    text = (tmp_path / "p" / "pool.json").read_text()
    (tmp_path / "bad.json").write_text(
        text.replace('"rounds": [', '"rounds": [[1, 1, 1, 1, 1, 1, 1, 1],', 1)
    )
    with pytest.raises(RunError, match="other numbers of rounds than its sittings say"):
        read_pool(tmp_path / "bad.json")
    for text in ("{", '{"format_version": 2}', '{"format_version": 1, "rounds": [[1]]}'):
        (tmp_path / "bad.json").write_text(text)
        with pytest.raises(RunError, match=r"bad\.json"):
            read_pool(tmp_path / "bad.json")


def test_the_committed_pool_holds_both_bounds() -> None:
    """Real rounds of a real machine with a real busy loop; only the decision rule runs here."""
    recorded = read_pool(POOL)
    assert recorded.injected == 0.1
    # Its cells last 17 ms of CPU time, so that a limit in whole hundredths of a second says nothing.
    policy = Policy(absolute=0.0)
    result = self_test(recorded, policy=policy, effects=())
    assert result.false_alarms_held, result.false_alarms
    assert result.detections_held, result.detections


@pytest.mark.parametrize("file", POOLS, ids=lambda file: file.stem)
def test_pools_of_gate_smoke_hold_both_bounds_as_the_command_judges_them(file: Path) -> None:
    recorded = read_pool(file)
    assert (recorded.scenario, recorded.injected) == ("gate_smoke", 0.1)
    assert list(recorded.metrics) == ["seconds", "serde_cpu_s"]
    policy = Policy.from_table(load_scenario("gate_smoke").to_json()["gate"])
    result = self_test(recorded, AB_LOOKS, policy, effects=())
    assert result.false_alarms_held, result.false_alarms
    assert result.detections_held, result.detections


def test_a_pool_is_judged_by_the_command(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "pool.json"
    write_pool(pool(900), file)
    assert main(["gate", "--self-test", "--pool", str(file), "--format", "json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["false_alarms_held"]
    assert document["detections_held"]
    assert main(["gate", "--self-test", "--pool", "gone.json"]) == 1
    assert main(["gate", "--self-test", "--pool", str(file), "--format", "junit"]) == 2


def test_a_slowdown_is_really_injected_and_taken_away_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """CPU time, which no neighbour on the machine can take away: at least what was burnt."""
    burnt: list[float] = []
    burn = rounds_module.burn

    def noted(cpu_s: float) -> None:
        burnt.append(cpu_s)
        burn(cpu_s)

    monkeypatch.setattr(rounds_module, "burn", noted)
    loaded = parse_scenario(content(source(tmp_path / "own"), ["arrow"]), default_name="small")
    with gate_rounds(loaded, "arrow", 20.0, tmp_path / "cache") as rounds:
        before = vars(BoundArrow).get("encode")
        cells = sorted(rounds._cpu_s)
        assert burnt == []
        measured = rounds.measure(1)
        assert vars(BoundArrow).get("encode") is before
    assert set(measured) == set(CELLS)
    (cpu_s,) = burnt
    # of plain cells so far, those of this round before the slowed one included
    assert 20 * cells[0] <= cpu_s <= 20 * max(rounds._cpu_s)
    assert measured["slowed"]["serde_cpu_s"] >= cpu_s


def test_a_slowdown_needs_a_strategy_in_this_process(tmp_path: Path) -> None:
    for name, arm, words in (
        ("smoke", "avro", "inprocess"),
        ("gate_smoke", "gone", "no arm 'gone'"),
    ):
        with pytest.raises(ScenarioError, match=words), gate_rounds(load_scenario(name), arm, 0.1):
            pass
