"""The self-test's own bookkeeping, and the committed pool that tests the rule without a clock."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from serde_lab.cli.app import main
from serde_lab.errors import RunError, ScenarioError
from serde_lab.gate.decision import Policy
from serde_lab.gate.pool import Pool, PoolRound, read_pool, record_pool, recorded_so_far, write_pool
from serde_lab.gate.self_test import groups_needed, judge_groups, rounds_needed, self_test
from serde_lab.gate.statistics import AB_LOOKS, AlphaSpending, wilson
from serde_lab.lab.cells import bench, slowdown
from serde_lab.lab.cells.gate_rounds import (
    CONTROL,
    METRICS,
    PLAIN,
    PLAIN_AGAIN,
    SLOWED,
    gate_rounds,
)
from serde_lab.lab.session import run_session
from serde_lab.pipeline.spark.exchange import warm_workers
from serde_lab.scenario.loading import load_scenario, parse_scenario
from serde_lab.serde.arrow.records import BoundArrow
from tests.gate.made_up_sides import log_normal
from tests.lab.small_scenario import SharedSession, content, source

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

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
    assert asleep.let_through.hits == asleep.let_through.trials > 0
    assert asleep.exit_status == 1
    jumpy = Pool("x", 0.1, tuple(PoolRound(1.0 + n % 2 / 50, 1.2, 1.4, 1.0) for n in range(600)))
    wolf = self_test(jumpy, PLAN, effects=())
    assert not wolf.false_alarms_held
    assert wolf.exit_status == 1


def test_any_arm_raises_a_false_alarm_and_only_the_slowed_one_is_detected() -> None:
    quiet, jumpy = pool(200, control=True), pool(200, control=True)
    slower = tuple(
        replace(one, plain_again=1.2 * one.plain, slowed=1.2 * one.plain) for one in jumpy.rounds
    )
    wolf = replace(quiet, beside={"jumpy": replace(jumpy, rounds=slower)})
    result = self_test(wolf, PLAN, effects=())
    assert result.false_alarms.hits == result.false_alarms.trials > 0
    # a quiet arm beside the slowed one takes nothing from it
    calm = self_test(replace(quiet, beside={"other": pool(200, control=True)}), PLAN, effects=())
    assert calm.false_alarms.hits == 0
    assert calm.detections.hits == calm.detections.trials > 0
    # and where nothing is slowed, what is said of another arm is no detection
    still = tuple(replace(one, slowed=one.plain_again) for one in quiet.rounds)
    asleep = self_test(replace(wolf, rounds=still), PLAN, effects=())
    assert asleep.detections.hits == 0


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

    def measure(number: int) -> dict[str, dict[str, PoolRound]]:
        cells = {
            "seconds": PoolRound(float(number), 1.0, 1.1),
            "serde_cpu_s": PoolRound(0.5 * number, 0.5, 0.6),
        }
        return {"slowed": cells, "beside": {name: PoolRound(7.0, 8.0, 8.0) for name in cells}}

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
    assert len(record(empty, 100, 4).rounds) == 4
    more = record(first, 6, 100)
    assert (first.sittings, more.sittings) == ((4,), (4, 2))
    # a file of before, which names no sittings, holds one
    assert record(replace(first, sittings=()), 6, 100).sittings == (4, 2)
    assert (first.spent_s, more.spent_s) == ((4.0,), (4.0, 2.0))
    assert more.minutes_a_round == (1 / 60, True)
    assert replace(more, spent_s=()).minutes_a_round == ((3.5 + 1 + 1.1) / 60, False)
    assert [one.plain for one in more.others["serde_cpu_s"]] == [0.5, 1, 1.5, 2, 2.5, 3]
    assert more.beside["beside"].metrics.keys() == {"seconds", "serde_cpu_s"}
    assert more.beside["beside"].rounds == (PoolRound(7.0, 8.0, 8.0),) * 6
    assert record(more, 6, 100) == more


def test_pools_survive_their_file(tmp_path: Path) -> None:
    for control in (True, False):
        rounds = (PoolRound(1.5, 2, 3, 4 if control else None),) * 3
        cpu = {"serde_cpu_s": (PoolRound(0.5, 0.25, 1, None),) * 3}
        beside = Pool("s", 0.0, (PoolRound(7, 8, 8, rounds[0].control),) * 3, others=cpu)
        kept = Pool("s", 0.1, rounds, "m", {"a": 1}, cpu, (1, 2), {"other": beside}, (None, 2.5))
        write_pool(kept, tmp_path / "p" / "pool.json")
        file = tmp_path / "p" / "pool.json"
        assert read_pool(file) == kept
        begun = Pool("s", 0.1, (), "m", {"a": 1})
        assert recorded_so_far(file, begun) == kept
        for other in ({"injected": 0.2}, {"about": {}}, {"scenario": "t"}, {"machine_class": "n"}):
            with pytest.raises(RunError, match="rounds of another scenario, slowdown or version"):
                recorded_so_far(file, replace(begun, **other))
    assert recorded_so_far(tmp_path / "new.json", begun) == begun
    text = (tmp_path / "p" / "pool.json").read_text()
    (tmp_path / "bad.json").write_text(
        text.replace(
            '"rounds": [', '"rounds": [[1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1],', 1
        )
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
    assert result.let_through.high <= 0.05, result.let_through


def test_the_pool_on_spark_says_that_it_carries_no_bound(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A real pool of two arms. Its rounds are too few so far; whoever adds sittings changes docs/gate.md."""
    file = POOL.with_name("smoke.json")
    recorded = read_pool(file)
    assert (recorded.scenario, recorded.injected) == ("smoke", 0.1)
    assert list(recorded.beside) == ["pickle"]
    assert recorded.sittings == (50,)
    assert main(["gate", "smoke", "--self-test", "--pool", str(file)]) == 1
    told = capsys.readouterr().out
    assert "this pool cannot carry the required bounds" in told
    assert "it takes 381 groups without one: 15,240 rounds" in told
    assert "the rounds are of one sitting" in told


def test_a_pool_is_judged_by_the_command(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "pool.json"
    write_pool(replace(pool(900), scenario="gate_smoke"), file)
    assert main(["gate", "--self-test", "--pool", str(file), "--format", "json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["false_alarms_held"]
    assert document["detections_held"]
    assert main(["gate", "--self-test", "--pool", "gone.json"]) == 1
    assert main(["gate", "--self-test", "--pool", str(file), "--format", "junit"]) == 2
    # another scenario's limits do not judge it, its arms are those that were measured, and it has no baseline
    for more in (
        *(["smoke"], ["--arm", "avro"], ["--strict"], ["--minutes", "1"], ["--rounds", "9"]),
        *(["--baseline", "x"], ["--baselines", "x"], ["--host-mismatch", "ratios"]),
        ["--shared-machine"],
    ):
        assert main(["gate", *more, "--self-test", "--pool", str(file)]) == 2


def test_a_slowdown_is_really_injected_and_taken_away_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """CPU time, which no neighbour on the machine can take away: at least what was burnt."""
    burnt: list[float] = []
    burn = slowdown.burn

    def noted(cpu_s: float) -> None:
        burnt.append(cpu_s)
        burn(cpu_s)

    monkeypatch.setattr(slowdown, "burn", noted)
    loaded = parse_scenario(content(source(tmp_path / "own"), ["arrow"]), default_name="small")
    with gate_rounds(loaded, ["arrow"], 20.0, tmp_path / "cache") as rounds:
        before = vars(BoundArrow).get("encode")
        cells = sorted(rounds._took_s)
        assert burnt == []
        measured = rounds.measure(1)["arrow"]
        assert vars(BoundArrow).get("encode") is before
    assert set(measured) == {PLAIN, PLAIN_AGAIN, SLOWED}
    (cpu_s,) = burnt
    # of plain cells so far, those of this round before the slowed one included
    assert 20 * cells[0] <= cpu_s <= 20 * max(rounds._took_s)
    assert measured[SLOWED]["serde_cpu_s"] >= cpu_s


@pytest.mark.spark
def test_on_spark_the_first_arm_is_slowed_and_the_others_are_not(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_session, "RunSession", lambda *_: SharedSession(spark))
    started: list[str] = []

    def start(session: SparkSession, *args: Any) -> Any:
        started.append(session.sparkContext.environment["SERDE_LAB_CELL"])
        return warm_workers(session, *args)

    monkeypatch.setattr(bench, "warm_workers", start)
    whole = content(source(tmp_path / "own"), ["arrow", "pickle"], exchange="spark")
    with gate_rounds(parse_scenario(whole), ["pickle", "arrow"], 3.0, tmp_path / "cache") as rounds:
        work_s = 3 * min(rounds._took_s)
        measured = rounds.measure(1)
    # else Spark would give a cell the workers of an earlier one of its name, which have ended
    assert len(started) == len(set(started)) == 13
    assert list(measured) == ["pickle", "arrow"]
    assert set(measured["pickle"]) == {PLAIN, PLAIN_AGAIN, SLOWED, CONTROL}
    assert set(measured["arrow"]) == {PLAIN, PLAIN_AGAIN, CONTROL}
    assert all(
        set(values) == set(METRICS) for cells in measured.values() for values in cells.values()
    )
    # the work of all slots, in equal parts over the map tasks, is CPU time of `encode`
    assert measured["pickle"][SLOWED]["serde_cpu_s"] >= work_s
    assert all(
        measured["pickle"][cell]["serde_cpu_s"] < work_s for cell in (PLAIN, PLAIN_AGAIN, CONTROL)
    )


def test_a_slowdown_needs_a_strategy_whose_tasks_read_the_source() -> None:
    spark_reads = [{"name": "arrow", "strategy": "arrow", "source_reader": "spark"}]
    whole = content(Path("rows.parquet"), spark_reads, exchange="spark")
    for scenario, arm, words in (
        (load_scenario("smoke"), "spark_native", "no arm 'spark_native' with a strategy"),
        (load_scenario("gate_smoke"), "gone", "no arm 'gone'"),
        (load_scenario("tpch_all"), "arrow", "one table"),
        (load_scenario("stream"), "arrow", "one table"),
        (parse_scenario(whole), "arrow", "Spark reads the source of arm 'arrow'"),
    ):
        with pytest.raises(ScenarioError, match=words), gate_rounds(scenario, [arm], 0.1):
            pass
