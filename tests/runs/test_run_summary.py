import json
import math
from pathlib import Path

import pytest

from serde_lab.analysis.summary import summarise
from serde_lab.cli.run_table import COLUMNS, RAW_COLUMNS, arm_rows
from serde_lab.runs.directory import load_run
from serde_lab.runs.model import ArmEntry, Check
from serde_lab.runs.writer import RunWriter
from tests.runs.made_up_runs import begin, end, header, whole_cell

ARMS = (
    ArmEntry(arm="pickle", strategy="pickle"),
    ArmEntry(arm="arrow", strategy="arrow", options={"rows_per_frame": 1000}),
    ArmEntry(arm="hudi", kind="peer", missing="the Apache Hudi bundle is not here"),
)


@pytest.fixture
def writer(tmp_path: Path) -> RunWriter:
    return RunWriter.create(tmp_path, header(arms=ARMS))


def summary_of(writer: RunWriter) -> dict:
    writer.close()
    summary = summarise(load_run(writer.path))
    return json.loads(json.dumps(summary, allow_nan=False))


def arm_of(summary: dict, name: str) -> dict:
    return next(arm for arm in summary["arms"] if arm["arm"] == name)


def test_medians_are_over_measured_rounds_and_seconds_over_commits(writer: RunWriter) -> None:
    whole_cell(writer, "r00-pickle", [90.0, 90.0], warmup=True)
    # written out of order, as an interleaved and resumed run does
    for round_, seconds in [(3, [5.0, 1.0]), (1, [1.0, 2.0]), (2, [3.0, 1.0])]:
        whole_cell(writer, f"r{round_:02d}-pickle", seconds)
    pickle = arm_of(summary_of(writer), "pickle")
    assert pickle["rounds"] == 3
    assert pickle["seconds"] == {"median": 4.0, "values": [3.0, 4.0, 6.0]}
    assert pickle["rows"] == 200
    assert pickle["rows_per_s"] == pytest.approx(50.0)
    assert [commit["seconds"]["median"] for commit in pickle["commits"]] == [3.0, 1.0]
    assert pickle["commits"][0]["operation"] == "upsert"
    assert pickle["commits"][1]["operation"] is None
    assert pickle["commits"][0]["phases"] == {"map.encode": {"wall_s": 6.0, "cpu_s": 3.0}}
    # phases are means, which add up: 2 slots x (3 + 4 + 6) s over 3 rounds
    assert pickle["phases"]["map.encode"] == pytest.approx({"wall_s": 26 / 3, "cpu_s": 13 / 3})
    assert pickle["warmup_seconds"] == [180.0]
    assert pickle["slots"] == 2


def test_serde_is_the_four_verbs_and_route_over_all_stages(writer: RunWriter) -> None:
    begin(writer, "r01-pickle")
    for phase, wall, cpu in [
        ("map.from_arrow", 1.0, 0.1),
        ("map.route", 1.0, 0.2),
        ("map.encode", 1.0, 0.3),
        ("reduce.decode", 1.0, 0.4),
        ("reduce.to_arrow", 1.0, 0.5),
        ("reduce.write", 3.0, 7.0),
        ("idle.driver", 1.0, 7.0),
        ("unattributed", 1.0, 7.0),
    ]:
        writer.sample("r01-pickle", "phase_wall_s", wall, commit=1, phase=phase)
        writer.sample("r01-pickle", "phase_cpu_s", cpu, commit=1, phase=phase)
    end(writer, "r01-pickle")
    pickle = arm_of(summary_of(writer), "pickle")
    assert pickle["serde_cpu_s"] == pytest.approx(1.5)
    assert pickle["serde_share"] == pytest.approx(0.5)
    assert pickle["unattributed_share"] == pytest.approx(0.1)
    assert list(pickle["phases"]) == [
        "map.from_arrow",
        "map.route",
        "map.encode",
        "reduce.decode",
        "reduce.to_arrow",
        "reduce.write",
        "idle.driver",
        "unattributed",
    ]


def test_each_metric_goes_from_commits_to_cell_by_its_own_rule(writer: RunWriter) -> None:
    begin(writer, "r01-pickle")
    for commit, peak, table, shuffle in [(1, 900, 10, 5), (2, 700, 30, 6)]:
        writer.sample("r01-pickle", "peak_worker_rss_bytes", peak, commit=commit)
        writer.sample("r01-pickle", "table_bytes", table, commit=commit)
        writer.sample("r01-pickle", "shuffle_bytes", shuffle, commit=commit)
        writer.sample("r01-pickle", "spark.gc_s", 0.5, commit=commit)
    writer.sample("r01-pickle", "worker_start_s", 0.75)
    end(writer, "r01-pickle")
    pickle = arm_of(summary_of(writer), "pickle")
    assert (pickle["peak_worker_rss_bytes"], pickle["table_bytes"]) == (900, 30)
    assert (pickle["shuffle_bytes"], pickle["worker_start_s"]) == (11, 0.75)
    assert pickle["spark"] == {"gc_s": 1.0}
    assert isinstance(pickle["table_bytes"], int)


def test_a_phase_is_the_mean_of_its_rounds_and_took_no_time_in_one_that_lacks_it(
    writer: RunWriter,
) -> None:
    for round_, lost_s in [(1, None), (2, 4.0), (3, None)]:
        cell = f"r{round_:02d}-pickle"
        begin(writer, cell)
        writer.sample(cell, "phase_wall_s", 1.0, commit=1, phase="map.encode")
        if lost_s is not None:
            writer.sample(cell, "phase_wall_s", lost_s, commit=1, phase="lost_attempts")
        end(writer, cell)
    assert arm_of(summary_of(writer), "pickle")["phases"]["lost_attempts"]["wall_s"] == 4 / 3


def test_an_arm_with_a_wrong_answer_shows_no_timing(writer: RunWriter) -> None:
    for round_ in (1, 2, 3):
        whole_cell(writer, f"r{round_:02d}-pickle", [2.0])
        whole_cell(writer, f"r{round_:02d}-arrow", [1.0])
        for arm in ("pickle", "arrow"):
            fails = arm == "arrow" and round_ > 1
            writer.check(
                Check(
                    "oracle",
                    not fails,
                    f"key {round_} differs" if fails else "equal",
                    arm=arm,
                    cell=f"r{round_:02d}-{arm}",
                    round=round_,
                )
            )
    summary = summary_of(writer)
    arrow, pickle = arm_of(summary, "arrow"), arm_of(summary, "pickle")
    assert (arrow["status"], arrow["wrong"]) == ("wrong", True)
    for key in ("seconds", "rows_per_s", "phases", "serde_cpu_s", "ratio_to_reference", "spark"):
        assert arrow[key] is None, key
    assert arrow["commits"][0]["seconds"] is None
    assert arrow["commits"][0]["phases"] is None
    assert arrow["warmup_seconds"] == []
    assert arrow["rows"] == 100
    assert arrow["checks"] == [
        {"name": "oracle", "passed": False, "detail": "key 2 differs", "times": 3, "failed": 2}
    ]
    assert pickle["checks"][0]["passed"] is True
    assert pickle["seconds"]["median"] == 2.0
    # no number anywhere in the arm equals one of its timings
    assert "1.0" not in json.dumps(arrow)


def test_a_check_that_failed_in_a_warm_up_makes_the_arm_wrong(writer: RunWriter) -> None:
    whole_cell(writer, "r00-arrow", [1.0], warmup=True)
    whole_cell(writer, "r01-arrow", [1.0])
    writer.check(Check("oracle", False, "no", arm="arrow", cell="r00-arrow", round=0))
    assert arm_of(summary_of(writer), "arrow")["wrong"] is True


def test_every_arm_that_was_asked_for_is_listed(writer: RunWriter) -> None:
    whole_cell(writer, "r01-pickle", [2.0])
    begin(writer, "r01-arrow")
    writer.cell_end("r01-arrow", "failed", "OSError: disk full")
    summary = summary_of(writer)
    arms = summary["arms"]
    assert [(arm["arm"], arm["status"]) for arm in arms] == [
        ("pickle", "ok"),
        ("arrow", "failed"),
        ("hudi", "missing"),
    ]
    assert arms[1]["error"] == "OSError: disk full"
    assert arms[2]["missing"] == "the Apache Hudi bundle is not here"
    assert arms[0]["missing"] is None


def test_an_arm_never_reached_is_missing_with_a_reason(writer: RunWriter) -> None:
    arrow = arm_of(summary_of(writer), "arrow")
    assert (arrow["status"], arrow["missing"]) == ("missing", "no round of this arm was measured")


def test_ratios_are_to_the_reference(writer: RunWriter) -> None:
    whole_cell(writer, "r01-pickle", [4.0])
    whole_cell(writer, "r01-arrow", [1.0])
    summary = summary_of(writer)
    assert summary["reference"] == "pickle"
    ratios = [arm["ratio_to_reference"] for arm in summary["arms"]]
    assert ratios == [1.0, 0.25, None]


def test_a_round_without_seconds_is_left_out_of_ratios(writer: RunWriter) -> None:
    """A sample that is lost, as in a damaged run, costs its round and no other."""
    for number in (1, 2, 3):
        whole_cell(writer, f"r{number:02d}-pickle", [4.0])
        whole_cell(writer, f"r{number:02d}-arrow", [1.0 + number])
    writer.close()
    samples = writer.path / "samples.jsonl"
    lines = samples.read_text().splitlines(keepends=True)
    lost = [line for line in lines if '"r02-arrow"' in line and '"seconds"' in line]
    assert len(lost) == 1
    samples.write_text("".join(line for line in lines if line not in lost))
    arrow = arm_of(summarise(load_run(writer.path)), "arrow")
    assert arrow["seconds"]["values"] == [2.0, 4.0]
    assert arrow["ratio_to_reference"] == pytest.approx(math.sqrt(2.0 * 4.0) / 4.0)


def test_checks_over_the_whole_run_are_listed_apart(writer: RunWriter) -> None:
    writer.check(Check("arms agree", False, "arrow differs from pickle"))
    summary = summary_of(writer)
    assert [check["name"] for check in summary["checks"]] == ["arms agree"]
    assert all(arm["checks"] == [] for arm in summary["arms"])


def test_the_table_shows_what_the_summary_holds(writer: RunWriter) -> None:
    whole_cell(writer, "r01-pickle", [4.0])
    whole_cell(writer, "r01-arrow", [1.0])
    writer.check(Check("oracle", False, "key 5 differs", arm="arrow", cell="r01-arrow", round=1))
    rows = arm_rows(summary_of(writer))
    cells = [dict(zip(COLUMNS, row.cells(), strict=True)) for row in rows]
    assert cells[0] == {
        "arm": ("pickle", "reference"),
        "seconds": ("4.000", ""),
        "ratio": ("1.0", ""),
        "CPU ratio": ("–", ""),
        "rows/s": ("25.00", ""),
        "SerDe CPU": ("4.000 s", "100.00 %"),
        "shuffle": ("–", ""),
        "checks": ("1 passed", ""),
    }
    assert cells[1]["seconds"] == ("–", "")
    assert cells[1]["checks"] == ("0 passed", "1 failed")
    assert [row.remark for row in rows[:3]] == [
        "",
        "wrong answer: oracle: key 5 differs",
        "missing: the Apache Hudi bundle is not here",
    ]


def test_a_range_stands_below_a_median_and_raw_values_are_not_rounded(writer: RunWriter) -> None:
    for number, seconds in enumerate([1.00004, 3.0, 2.0], start=1):
        whole_cell(writer, f"r{number:02d}-pickle", [seconds])
    row = arm_rows(summary_of(writer))[0]
    assert row.cells()[1] == ("2.000", "1.000–3.000")
    raw = dict(zip(RAW_COLUMNS, row.raw(), strict=True))
    assert (raw["seconds"], raw["seconds_min"], raw["seconds_max"]) == (2.0, 1.00004, 3.0)
    assert (raw["rounds"], raw["serde_share"], raw["checks_passed"]) == (3, 1.0, 3)


def test_an_arm_that_nobody_checked_shows_no_timing(writer: RunWriter) -> None:
    whole_cell(writer, "r01-pickle", [4.0])
    for number in (1, 2):
        whole_cell(writer, f"r{number:02d}-arrow", [1.0])
    checks = writer.path / "checks.jsonl"
    lines = checks.read_text().splitlines(keepends=True)
    checks.write_text("".join(line for line in lines if "r02-arrow" not in line))
    summary = summary_of(writer)
    pickle, arrow = summary["arms"][:2]
    assert (pickle["status"], arrow["status"]) == ("ok", "unchecked")
    assert arrow["seconds"] is arrow["phases"] is arrow["serde_cpu_s"] is None
    assert "round 2" in arrow["unchecked"]
    assert load_run(writer.path).exit_status == 1
    assert "unchecked" in arm_rows(summary)[1].remark
