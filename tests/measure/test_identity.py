from dataclasses import dataclass, replace
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from serde_lab.errors import LabError
from serde_lab.measure.commit import measure_in_process
from serde_lab.measure.event_log import SparkHistory, StageAttempt, TaskAttempt
from serde_lab.measure.identity import Identity, JoinedTask, join_reports, split_time
from serde_lab.measure.slots import Interval
from serde_lab.measure.timeline import AttemptReport, PhaseTime, TaskReport

MS = 1_000_000
T0 = 1_800_000_000_000 * MS


def report(stage: str, begin_ns: int, wall_ns: int, **phases_ns: int) -> TaskReport:
    return TaskReport(
        stage=stage,
        started_epoch_ns=begin_ns,
        ended_epoch_ns=begin_ns + wall_ns,
        wall_ns=wall_ns,
        cpu_ns=wall_ns // 2,
        phases={name: PhaseTime(ns, ns // 2, 1) for name, ns in phases_ns.items()},
        counters={},
        peak_rss_bytes=1,
        pid=1,
    )


def attempt(
    task_id: int, launch_ns: int, finish_ns: int, *, stage: int = 0, **fields: object
) -> TaskAttempt:
    plain = TaskAttempt(
        stage_id=stage,
        stage_attempt=0,
        partition=task_id,
        task_id=task_id,
        attempt=0,
        launch_ms=launch_ns // MS,
        finish_ms=finish_ns // MS,
        successful=True,
    )
    return replace(plain, **fields)  # type: ignore[arg-type]


def stage(stage_id: int, submitted_ns: int, tasks: int = 1) -> StageAttempt:
    return StageAttempt(stage_id, 0, "", tasks, submitted_ns // MS, None, True)


def walls_ms(identity: Identity) -> dict[str, float]:
    return {
        name: round(time.wall_s * 1e3, 6) for name, time in identity.phases.items() if time.wall_s
    }


def total_s(identity: Identity) -> float:
    return sum(time.wall_s for time in identity.phases.values())


def test_one_task_is_split_along_its_workers_spine() -> None:
    task = JoinedTask(
        attempt(0, T0 + 10 * MS, T0 + 90 * MS),
        report("map", T0 + 30 * MS, 50 * MS, input_wait=10 * MS, encode=35 * MS),
        counts=True,
    )
    identity = split_time(Interval(T0, T0 + 100 * MS), 1, [task], [stage(0, T0 + 4 * MS)])
    assert walls_ms(identity) == {
        "map.jvm_before": 20,
        "map.input_wait": 10,
        "map.encode": 35,
        "unattributed": 5,
        "map.jvm_after": 10,
        "idle.scheduler": 6,
        "idle.driver": 14,
    }
    assert identity.phases["map.encode"].cpu_s == pytest.approx(0.0175)
    assert identity.unattributed_share == pytest.approx(0.05)


def test_time_outside_every_timer_is_unattributed_and_nothing_else() -> None:
    """200 ms a task, in our own code and in no phase."""
    plain, injected = [], []
    for n in range(4):
        begin = T0 + n * 400 * MS
        plain.append(
            JoinedTask(
                attempt(n, begin, begin + 400 * MS),
                report("map", begin + 10 * MS, 380 * MS, encode=380 * MS),
                True,
            )
        )
        injected.append(
            JoinedTask(
                attempt(n, begin, begin + 400 * MS),
                report("map", begin + 10 * MS, 380 * MS, encode=180 * MS),
                True,
            )
        )
    cell = Interval(T0, T0 + 1600 * MS)
    before, after = (walls_ms(split_time(cell, 1, tasks)) for tasks in (plain, injected))
    assert "unattributed" not in before
    assert after["unattributed"] == pytest.approx(800)
    assert before["map.encode"] - after["map.encode"] == pytest.approx(800)
    for name in ("map.jvm_before", "map.jvm_after"):
        assert before[name] == after[name]


def test_idle_slots_are_the_drivers_the_tails_or_the_schedulers() -> None:
    """Two slots: a stage of three tasks, one of them long; then a stage of one that waits."""
    tasks = [
        JoinedTask(attempt(0, T0 + 10 * MS, T0 + 20 * MS), None, True),
        JoinedTask(attempt(1, T0 + 10 * MS, T0 + 60 * MS), None, True),
        JoinedTask(attempt(2, T0 + 25 * MS, T0 + 40 * MS), None, True),
        JoinedTask(attempt(3, T0 + 75 * MS, T0 + 80 * MS, stage=1), None, True),
    ]
    stages = [stage(0, T0 + 10 * MS, 3), stage(1, T0 + 70 * MS, 1)]
    identity = split_time(Interval(T0, T0 + 100 * MS), 2, tasks, stages)
    assert walls_ms(identity) == {
        "reduce.jvm": 10 + 50 + 15 + 5,
        # task 2 waits from 20 to 25 while a slot is empty, task 3 from 70 to 75
        "idle.scheduler": 5 + 5,
        # one slot from 40 to 60; beside task 3 while it waits and while it runs
        "idle.stage_tail": 20 + 5 + 5,
        # both slots: 0 to 10, 60 to 70, 80 to 100
        "idle.driver": 20 + 20 + 40,
    }


def test_a_failed_attempt_is_lost_and_its_partition_waits_for_the_next() -> None:
    failed = attempt(0, T0, T0 + 30 * MS, successful=False)
    again = attempt(5, T0 + 40 * MS, T0 + 70 * MS, partition=0, attempt=1)
    history = SparkHistory((), (replace(stage(0, T0), python=False),), (failed, again))
    identity = split_time(Interval(T0, T0 + 70 * MS), 1, join_reports(history, []), history.stages)
    assert walls_ms(identity) == {"lost_attempts": 30, "reduce.jvm": 30, "idle.scheduler": 10}


def test_a_speculative_attempt_that_loses_is_lost_even_if_both_succeed() -> None:
    slow = attempt(0, T0, T0 + 80 * MS)
    quick = attempt(1, T0 + 20 * MS, T0 + 50 * MS, partition=0, attempt=1, speculative=True)
    killed = replace(slow, successful=False)
    history = SparkHistory((), (stage(0, T0),), (killed, quick))
    reports = [AttemptReport(0, 0, 1, 1, report("map", T0 + 21 * MS, 28 * MS, encode=28 * MS))]
    identity = split_time(
        Interval(T0, T0 + 80 * MS), 2, join_reports(history, reports), history.stages
    )
    assert walls_ms(identity) == {
        "lost_attempts": 80,
        "map.jvm_before": 1,
        "map.encode": 28,
        "map.jvm_after": 1,
        "idle.stage_tail": 50,
    }


def test_of_two_stage_attempts_the_later_one_counts() -> None:
    first = attempt(0, T0, T0 + 10 * MS, partition=3)
    second = attempt(9, T0 + 20 * MS, T0 + 30 * MS, partition=3, stage_attempt=1)
    history = SparkHistory((), (stage(0, T0),), (second, first))
    reports = [
        AttemptReport(0, 3, task_id, 0, report("map", T0 + at * MS, 10 * MS, encode=10 * MS))
        for task_id, at in ((0, 0), (9, 20))
    ]
    joined = join_reports(history, reports)
    assert [(task.attempt.task_id, task.counts, task.report is not None) for task in joined] == [
        (0, False, False),
        (9, True, True),
    ]


def test_an_attempt_that_outlives_the_cell_takes_no_more_than_the_cell() -> None:
    zombie = attempt(0, T0 - 50 * MS, T0, successful=False, finish_ms=None)
    identity = split_time(Interval(T0, T0 + 40 * MS), 2, [JoinedTask(zombie, None, False)])
    assert walls_ms(identity) == {"lost_attempts": 40, "idle.stage_tail": 40}


def test_a_task_of_another_cell_takes_nothing() -> None:
    other = JoinedTask(
        attempt(0, T0 - 90 * MS, T0 - 10 * MS),
        report("map", T0 - 80 * MS, 60 * MS, encode=60 * MS),
        True,
    )
    identity = split_time(Interval(T0, T0 + 40 * MS), 1, [other])
    assert walls_ms(identity) == {"idle.driver": 40}
    assert sum(time.cpu_s for time in identity.phases.values()) == 0


@pytest.mark.parametrize("worker", [True, False])
def test_too_few_slots_are_noticed(worker: bool) -> None:
    tasks = [
        JoinedTask(
            attempt(n, T0, T0 + 1000 * MS),
            report("map", T0 + MS, 998 * MS, encode=998 * MS) if worker else None,
            True,
        )
        for n in range(2)
    ]
    cell = Interval(T0, T0 + 1000 * MS)
    assert total_s(split_time(cell, 2, tasks)) == pytest.approx(2.0)
    with pytest.raises(LabError, match=r"held 1\.000 s more than 1 slots have"):
        split_time(cell, 1, tasks)


def test_phases_longer_than_their_task_are_an_internal_error() -> None:
    task = JoinedTask(attempt(0, T0, T0 + MS), report("map", T0, MS, encode=2 * MS), True)
    with pytest.raises(LabError, match="internal error"):
        split_time(Interval(T0, T0 + MS), 1, [task])


def test_an_in_process_commit_has_one_slot_and_the_drivers_time_is_idle() -> None:
    reports = [
        report("map", T0 + 1_234_567, 20 * MS, encode=15 * MS),
        report("reduce", T0 + 31_234_568, 10 * MS, decode=10 * MS),
    ]
    driver = report("driver", T0, 50 * MS, execute=42 * MS, commit=5 * MS)
    measured = measure_in_process(Interval(T0, T0 + 50 * MS), reports, driver=driver)
    assert walls_ms(measured.identity) == {
        "map.encode": 15,
        "reduce.decode": 10,
        "unattributed": 5,
        "idle.driver": 20,
    }
    # 21 + 2.5 ms of CPU in the driver's phases, of which the tasks had 15
    assert measured.identity.phases["idle.driver"].cpu_s == pytest.approx(0.0085)
    assert measured.driver == {"driver.execute_s": 0.042, "driver.commit_s": 0.005}
    assert measured.peak_worker_rss_bytes is None


@dataclass
class Schedule:
    """A cell as a scheduler of our own runs it, in whole nanoseconds; Spark's view of it is coarser."""

    cell: Interval
    slots: int
    history: SparkHistory
    reports: list[AttemptReport]
    spine_ns: dict[str, int]
    outside_ns: int


def random_schedule(random: Random) -> Schedule:
    slots = random.randint(1, 5)
    now = T0 + random.randrange(50 * MS)
    attempts: list[TaskAttempt] = []
    stages: list[StageAttempt] = []
    reports: list[AttemptReport] = []
    spine_ns: dict[str, int] = {}
    outside_ns = 0
    for stage_id in range(random.randint(0, 3)):
        python = random.random() < 0.7
        partitions = random.randint(1, 12)
        stages.append(replace(stage(stage_id, now, partitions), python=python))
        free_at = [now + random.randrange(4 * MS) for _ in range(slots)]
        queue = [(partition, 0) for partition in range(partitions)]
        while queue:
            partition, number = queue.pop(0)
            slot = min(range(slots), key=free_at.__getitem__)
            launch = free_at[slot] + random.randrange(3 * MS)
            start = launch + random.randrange(20 * MS)
            wall = random.randrange(60 * MS)
            end = start + wall + random.randrange(5 * MS)
            # the slot is free again before Spark notes the finish
            free_at[slot] = end + random.randrange(1 * MS)
            finish = free_at[slot] + random.randrange(6 * MS)
            task_id = len(attempts)
            success = number == 3 or random.random() < 0.85
            attempts.append(
                attempt(
                    task_id,
                    launch,
                    finish,
                    stage=stage_id,
                    partition=partition,
                    attempt=number,
                    successful=success,
                )
            )
            if not success:
                queue.append((partition, number + 1))
            elif python:
                cuts = sorted(random.randrange(wall + 1) for _ in range(3))
                phases = {
                    "input_wait": cuts[0],
                    "encode": cuts[1] - cuts[0],
                    "output_wait": cuts[2] - cuts[1],
                }
                outside_ns += wall - cuts[2]
                for name, ns in phases.items():
                    spine_ns[name] = spine_ns.get(name, 0) + ns
                reports.append(
                    AttemptReport(
                        stage_id, partition, task_id, number, report("map", start, wall, **phases)
                    )
                )
        now = max(free_at) + random.randrange(20 * MS)
    cell = Interval(T0, now + 7 * MS)
    return Schedule(
        cell, slots, SparkHistory((), tuple(stages), tuple(attempts)), reports, spine_ns, outside_ns
    )


@pytest.mark.slow
@settings(max_examples=500, deadline=None)
@given(st.integers(0, 2**32))
def test_the_parts_make_the_whole_for_any_schedule(seed: int) -> None:
    made = random_schedule(Random(seed))
    tasks = join_reports(made.history, made.reports)
    identity = split_time(made.cell, made.slots, tasks, made.history.stages)
    whole_s = made.slots * made.cell.length_ns / 1e9
    assert identity.whole_s == whole_s
    assert total_s(identity) == pytest.approx(whole_s, rel=1e-12, abs=1e-9)
    assert all(time.wall_s >= 0 for time in identity.phases.values())
    # workers' own figures arrive unchanged: Spark's coarser clock is taken from what surrounds them
    for name, ns in made.spine_ns.items():
        assert identity.phases[f"map.{name}"].wall_s == pytest.approx(ns / 1e9, abs=1e-9)
    assert identity.phases["unattributed"].wall_s == pytest.approx(made.outside_ns / 1e9, abs=1e-9)
    assert identity.clamped_s == 0


@settings(max_examples=100, deadline=None)
@given(st.integers(0, 2**32), st.integers(-3 * MS, 3 * MS))
def test_clocks_that_differ_a_little_are_clamped_and_accounted(seed: int, skew_ns: int) -> None:
    made = random_schedule(Random(seed))
    shifted = [
        replace(
            one,
            report=replace(
                one.report, started_epoch_ns=one.report.started_epoch_ns + skew_ns * (i % 2)
            ),
        )
        for i, one in enumerate(made.reports)
    ]
    tasks = join_reports(made.history, shifted)
    identity = split_time(made.cell, made.slots, tasks, made.history.stages)
    assert total_s(identity) == pytest.approx(identity.whole_s, rel=1e-12, abs=1e-9)
    assert all(time.wall_s >= 0 for time in identity.phases.values())
    inside_s = (
        sum(identity.phases[f"map.{name}"].wall_s for name in made.spine_ns)
        + identity.phases["unattributed"].wall_s
    )
    measured_s = (sum(made.spine_ns.values()) + made.outside_ns) / 1e9
    assert inside_s + identity.clamped_s == pytest.approx(measured_s, abs=1e-6)
