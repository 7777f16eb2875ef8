"""The spin and the share of other processes, against processes that take a known share."""

from __future__ import annotations

import os
import shutil
import threading
from itertools import count
from pathlib import Path

import pytest

from serde_lab.measure.environment import usable_cores
from serde_lab.measure.other_work import others_share, spin_s


def test_the_spin_takes_a_tenth_of_a_second_and_gives_the_time_of_a_hundred_blocks() -> None:
    readings = count(0, 10_000_000)
    # each block takes 10 ms by this clock, so that ten fill a tenth of a second
    assert spin_s(lambda: next(readings), cores=1) == 1.0
    assert next(readings) == 110_000_000


def test_the_spin_runs_on_all_cores_at_once() -> None:
    together = threading.Barrier(3, timeout=20)
    readings = threading.local()

    def wall_ns() -> int:
        if not hasattr(readings, "count"):
            readings.count = count(0, 50_000_000)
            together.wait()  # breaks unless three threads begin together
        return next(readings.count)

    assert spin_s(wall_ns, cores=3) == pytest.approx(5.0)


def made_up_proc(folder: Path, busy_ticks: int, own_ticks: int, child_ticks: int = 0) -> None:
    """A /proc of cores that were busy for some ticks, of which this process and a child used some."""
    process, child = folder / str(os.getpid()), folder / "7"
    for one in (process, child):
        one.mkdir(parents=True, exist_ok=True)
    if child_ticks:
        (child / "stat").write_text(
            f"7 (worker) S {os.getpid()} {'0 ' * 9}{child_ticks} 0 0 0 0 0\n"
        )
    else:
        shutil.rmtree(child)
    line = f"{busy_ticks - 40} 0 10 1000 50 10 10 10 7 0"
    cores = "".join(f"cpu{n} {line}\n" for n in range(256))
    (folder / "stat").write_text(f"cpu  {line}\n{cores}intr 1 2 3\n")
    (process / "stat").write_text(f"1 (lab) S {'0 ' * 10}{own_ticks - 1} 1 0 0 0 0\n")


@pytest.mark.parametrize(("own_ticks", "share"), [(0, 0.75), (100, 0.75 - 0.5 / usable_cores())])
def test_others_are_what_the_cores_did_and_the_tree_did_not(
    tmp_path: Path, own_ticks: int, share: float
) -> None:
    ticks = iter([0, 2_000_000_000])
    made_up_proc(tmp_path, 200, 10)
    with others_share(tmp_path, lambda: next(ticks)) as found:
        # in two seconds, each core is busy for one and a half
        made_up_proc(tmp_path, 200 + 150, 10 + own_ticks)
    assert found.value == pytest.approx(max(0.0, share))


def test_a_child_that_ends_and_that_nobody_waits_for_is_no_other_work(tmp_path: Path) -> None:
    """As Spark's Python workers end: what they used before is in no process's time afterwards."""
    ticks = iter([0, 2_000_000_000])
    made_up_proc(tmp_path, 200, 10, child_ticks=90_000)
    with others_share(tmp_path, lambda: next(ticks)) as found:
        made_up_proc(tmp_path, 200 + 100, 10 + 100 * usable_cores())
    assert found.value == 0.0


def test_what_runs_apart_is_left_out(tmp_path: Path) -> None:
    """As with a reader's worker, which Spark ends: no process has its time afterwards."""
    ticks = iter([0, 1_000_000_000, 5_000_000_000, 6_000_000_000])
    made_up_proc(tmp_path, 200, 10)
    with others_share(tmp_path, lambda: next(ticks)) as found:
        made_up_proc(tmp_path, 200 + 50, 10)
        with found.apart():
            made_up_proc(tmp_path, 200 + 450, 10)
        made_up_proc(tmp_path, 200 + 450, 10)
    # in two seconds beside what ran apart, each core is busy for half a second
    assert found.value == pytest.approx(0.25)


def test_nobody_can_tell_without_proc(tmp_path: Path) -> None:
    with others_share(tmp_path / "nothing") as found:
        pass
    assert found.value is None
