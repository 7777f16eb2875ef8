import pickle
import subprocess
import sys
from collections.abc import Iterator

import pytest

from serde_lab.errors import LabError
from serde_lab.measure.timeline import Clock, TaskReport, TaskTimeline


class Hands:
    """A clock that moves only on request; CPU at half the speed of the wall."""

    def __init__(self) -> None:
        self.now_ns = 0

    def pass_ns(self, ns: int) -> None:
        self.now_ns += ns

    @property
    def clock(self) -> Clock:
        return Clock(lambda: self.now_ns, lambda: self.now_ns // 2, lambda: 1_000_000 + self.now_ns)


@pytest.fixture
def hands() -> Hands:
    return Hands()


@pytest.fixture
def timeline(hands: Hands) -> TaskTimeline:
    return TaskTimeline("map", hands.clock)


def walls(report: TaskReport) -> dict[str, int]:
    return {name: phase.wall_ns for name, phase in report.phases.items()}


def test_phases_accumulate_wall_cpu_and_calls(hands: Hands, timeline: TaskTimeline) -> None:
    for ns in (100, 40):
        with timeline.phase("encode"):
            hands.pass_ns(ns)
    with timeline.phase("route"):
        hands.pass_ns(6)
    report = timeline.report()
    encode = report.phases["encode"]
    assert (encode.wall_ns, encode.cpu_ns, encode.calls) == (140, 70, 2)
    assert walls(report) == {"encode": 140, "route": 6}
    assert (report.wall_ns, report.cpu_ns) == (146, 73)


def test_time_outside_every_phase_is_unattributed(hands: Hands, timeline: TaskTimeline) -> None:
    with timeline.phase("encode"):
        hands.pass_ns(50)
    hands.pass_ns(200_000_000)
    report = timeline.report()
    assert report.unattributed_ns == 200_000_000
    assert report.wall_ns == 200_000_050


def test_waiting_for_input_and_for_the_consumer_are_phases(
    hands: Hands, timeline: TaskTimeline
) -> None:
    def slow_input() -> Iterator[int]:
        for item in range(3):
            hands.pass_ns(10)
            yield item
        hands.pass_ns(5)

    def stage(items: Iterator[int]) -> Iterator[int]:
        for item in items:
            with timeline.phase("encode"):
                hands.pass_ns(100)
            yield item * 2

    seen = []
    for item in timeline.sink(stage(timeline.source(slow_input()))):
        hands.pass_ns(1000)
        seen.append(item)
    report = timeline.report()
    assert seen == [0, 2, 4]
    assert walls(report) == {"input_wait": 35, "encode": 300, "output_wait": 3000}
    assert report.unattributed_ns == 0


def test_nested_phases_are_an_internal_error_and_leave_the_outer_phase_sound(
    hands: Hands, timeline: TaskTimeline
) -> None:
    with timeline.phase("decode"):
        with pytest.raises(LabError, match=r"'encode' of stage 'map' was opened inside .*'decode'"):
            timeline.phase("encode").__enter__()
        hands.pass_ns(7)
    assert walls(timeline.report()) == {"decode": 7}


def test_a_phase_that_interrupts_another_stops_its_clock(
    hands: Hands, timeline: TaskTimeline
) -> None:
    with timeline.phase("merge"):
        hands.pass_ns(10)
        with timeline.interrupted("read_columns"):
            hands.pass_ns(100)
        with pytest.raises(KeyError), timeline.interrupted("take"):
            raise KeyError
        assert timeline.open_phase == "merge"
        hands.pass_ns(1)
    with timeline.interrupted("read_columns"):
        hands.pass_ns(40)
    report = timeline.report()
    assert timeline.open_phase == ""
    assert walls(report) == {"merge": 11, "read_columns": 140, "take": 0}
    assert (report.phases["merge"].calls, report.phases["read_columns"].calls) == (1, 2)
    assert report.unattributed_ns == 0


def test_reading_input_inside_a_phase_is_nesting(timeline: TaskTimeline) -> None:
    items = timeline.source([1])
    with timeline.phase("encode"), pytest.raises(LabError, match="'input_wait'"):
        next(items)


def test_a_report_with_an_open_phase_is_refused(timeline: TaskTimeline) -> None:
    with timeline.phase("encode"), pytest.raises(LabError, match="'encode' was open"):
        timeline.report()


def test_exceptions_pass_and_the_phase_is_closed(hands: Hands, timeline: TaskTimeline) -> None:
    def broken() -> Iterator[int]:
        yield 1
        hands.pass_ns(3)
        raise ValueError("input broke")

    items = timeline.sink(timeline.source(broken()))
    assert next(items) == 1
    with pytest.raises(ValueError, match="input broke"):
        next(items)
    with pytest.raises(KeyError), timeline.phase("encode"):
        raise KeyError("k")
    assert walls(timeline.report()) == {"input_wait": 3, "output_wait": 0, "encode": 0}


def test_closing_the_sink_runs_the_clean_up_of_the_stage_and_of_the_input(
    timeline: TaskTimeline,
) -> None:
    closed = []

    def named(name: str, items: Iterator[int]) -> Iterator[int]:
        try:
            yield from items
        finally:
            closed.append(name)

    items = timeline.sink(named("stage", timeline.source(named("input", iter([1, 2, 3])))))
    assert next(items) == 1
    items.close()
    assert closed == ["input", "stage"]
    assert timeline.report().phases["output_wait"].calls == 1


def test_input_that_ends_at_once_is_still_waited_for(timeline: TaskTimeline) -> None:
    assert list(timeline.sink(timeline.source([]))) == []
    assert timeline.report().phases["input_wait"].calls == 1


def test_counters_add_up(timeline: TaskTimeline) -> None:
    timeline.add("frames")
    timeline.add("frames", 4)
    timeline.add("frame_bytes", 100)
    assert timeline.report().counters == {"frames": 5, "frame_bytes": 100}


def test_a_report_travels_as_pickle(hands: Hands, timeline: TaskTimeline) -> None:
    with timeline.phase("encode"):
        hands.pass_ns(9)
    timeline.add("rows", 3)
    report = timeline.report()
    assert pickle.loads(pickle.dumps(report)) == report
    assert report.started_epoch_ns == 1_000_000
    assert report.ended_epoch_ns == 1_000_009


def test_peak_memory_sees_an_allocation() -> None:
    """In a small process: in this one as much again as its peak may be more than there is."""
    code = (
        "from serde_lab.measure.timeline import TaskTimeline\n"
        "before = TaskTimeline('map').report().peak_rss_bytes\n"
        "block = b'x' * (before + (64 << 20))\n"
        "assert TaskTimeline('map').report().peak_rss_bytes > before + (32 << 20)\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
