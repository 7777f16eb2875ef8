from itertools import accumulate
from pathlib import Path

from serde_lab.measure.environment import calibrate, disk_work, numpy_work


def test_each_part_is_the_median_of_three_after_one_untimed(tmp_path: Path) -> None:
    calls = []
    # each part reads the clock six times; the differences that count are 5, 100 and 7
    steps = [0, 5, 0, 100, 0, 7] * 3
    readings = accumulate(steps)
    times = calibrate(tmp_path, {"jvm": lambda: calls.append(1)}, lambda: next(readings))
    assert times == {"numpy": 7e-9, "disk": 7e-9, "jvm": 7e-9}
    assert len(calls) == 4
    assert list(tmp_path.iterdir()) == []


def test_the_work_is_the_same_each_time(tmp_path: Path) -> None:
    assert numpy_work() == numpy_work()
    file = tmp_path / "bytes"
    assert disk_work(file) == disk_work(file) > 1 << 20
    assert not file.exists()
