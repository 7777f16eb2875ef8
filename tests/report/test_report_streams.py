"""The report's section of streams, and the figures in it: percentiles, parts, and when a strategy matters."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from scipy import special

from serde_lab.analysis.cell_values import Estimate, percentile_of, ratio_of_medians, resampled
from serde_lab.analysis.streams import SizeDifference, Streams
from serde_lab.analysis.summary import summarise
from serde_lab.cli.run_table import report_tables
from serde_lab.report import render
from serde_lab.report.page import Figure, Page
from serde_lab.report.plots.drawings import Lines
from serde_lab.report.run import stream_latency
from serde_lab.report.run.run_page import run_page
from serde_lab.runs.directory import load_run
from tests.report.gold import assert_golden
from tests.report.made_up_stream import EMPTY_JOB_S, SIZES, make_stream_run


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_stream_run(tmp_path_factory.mktemp("stream"))


@pytest.fixture(scope="module")
def page(path: Path) -> Page:
    return run_page(load_run(path))


def lines_of(page: Page, name: str) -> Lines:
    figure = next(one for one in page.figures() if one.name == name)
    assert isinstance(figure.drawing, Lines)
    return figure.drawing


def test_golden_pages(path: Path) -> None:
    run = load_run(path)
    for form in ("html", "md", "csv"):
        text = render.run_text(run) if form == "html" else render.run_text(run, form)
        assert_golden(text, f"stream.{form}")


def test_the_answer_is_the_size_from_which_on_the_strategy_matters(page: Page) -> None:
    assert page.answer is not None
    assert page.answer.figure == "100,000 rows"
    first, second = (sentence.text for sentence in page.answer.sentences[:2])
    assert first.endswith("as long as `internal_row`, which does not matter.")
    assert second.startswith("Merge-on-read, 100,000 rows a batch: `pickle` takes 2.0")


def test_json_has_the_percentiles_the_parts_and_the_differences(path: Path) -> None:
    run = load_run(path)
    found = json.loads(json.dumps(summarise(run)["streams"]))
    by_arm = {one["arm"]: one for one in found["arms"]}
    assert {one["rows"]: one["batches"] for one in found["arms"]} == SIZES
    ours, peer = by_arm["internal_row@1000"], by_arm["hudi_spark_tuned@1000"]
    values = sorted(ours["latencies"][0])
    assert ours["median"]["value"] == pytest.approx(np.median(values))
    assert ours["median"]["low"] <= ours["median"]["value"] <= ours["median"]["high"]
    # fewer than 60 batches
    assert ours["p95"] is ours["p99"] is None
    assert ours["rows_per_s"] == pytest.approx(1000 * 40 / sum(values))
    assert ours["compacted"] == [4, 9, 14, 19, 24, 29, 34, 39]
    assert sum(ours["parts"].values()) == pytest.approx(np.mean(values))
    assert ours["fixed_share"] == pytest.approx(
        (0.05 + 0.06 + 0.005 + 0.01 + 0.02) / np.mean(values)
    )
    assert ours["serde_share"] == pytest.approx(0.3 * 40 * 0.002 / (2 * sum(values)))
    assert ours["growth"]["value"] == pytest.approx(1, abs=0.06)
    assert ours["growth"]["low"] < 1 < ours["growth"]["high"]
    assert (peer["parts"], peer["fixed_share"], peer["serde_share"]) == ({}, None, None)
    assert peer["instants"]["services_s"] == pytest.approx(0.78 / 5)
    assert [one["matters"] for one in found["differences"]] == [False, True]
    assert {arm["arm"]: arm["commits"] for arm in summarise(run)["arms"]}["pickle@1000"] == []
    assert "growth" not in summarise(run)


def test_a_commit_is_shown_beside_an_empty_job_and_beside_the_fastest_peer(path: Path) -> None:
    found = summarise(load_run(path))["streams"]
    by_arm = {one["arm"]: one for one in found["arms"]}
    ours, peer = by_arm["internal_row@1000"], by_arm["hudi_spark_tuned@1000"]
    served = [0.8 if number % 5 == 0 else 0.0 for number in range(1, 41)]
    commits = [s - 0.05 - serve for s, serve in zip(ours["latencies"][0], served, strict=True)]
    fixed = ours["fixed"]
    assert fixed["commit_s"]["value"] == pytest.approx(np.median(commits))
    assert fixed["empty_job_s"] == {"value": EMPTY_JOB_S, "low": EMPTY_JOB_S, "high": EMPTY_JOB_S}
    over = fixed["over_empty_s"]
    assert over["value"] == pytest.approx(np.median(commits) - EMPTY_JOB_S)
    assert over["low"] < over["value"] < over["high"]
    # 40 batches do not have 20 from the 10th on and 20 others
    assert fixed["late"] is None
    assert peer["fixed"] is None
    (ratio,) = (one for one in found["beside_peers"] if one["arm"] == "internal_row@1000")
    assert ratio["peer"] == "hudi_spark_tuned"
    medians = [np.median(one["latencies"][0]) for one in (peer, ours)]
    assert ratio["ratio"]["value"] == pytest.approx(medians[0] / medians[1])
    assert ratio["ratio"]["low"] < ratio["ratio"]["value"] < ratio["ratio"]["high"]
    means = [np.mean(one["latencies"][0]) for one in (peer, ours)]
    assert ratio["whole"]["value"] == pytest.approx(means[0] / means[1])
    assert ratio["whole"]["low"] < ratio["whole"]["value"] < ratio["whole"]["high"]


def test_batches_beside_readers_are_compared_with_those_alone(tmp_path: Path) -> None:
    """Every other ten batches take twice as long beside readers; the first of them is read for a moment."""

    def reads(batch: int) -> float:
        return 0.0 if (batch // 10) % 2 == 0 else 0.01 if batch % 10 == 0 else 5.0

    path = make_stream_run(
        tmp_path,
        sizes={1000: 100},
        times=lambda batch: {0.0: 1.0, 0.01: 9.0, 5.0: 2.0}[reads(batch)],
        reads=reads,
    )
    run = load_run(path)
    arms = {one["name"]: one for one in summarise(run)["streams"]["arms"]}
    found, took = arms["internal_row"]["beside_readers"], arms["internal_row"]["latencies"][0]
    alone = [s for n, s in enumerate(took, 1) if n >= 10 and not reads(n)]
    beside = [s for n, s in enumerate(took, 1) if n >= 10 and reads(n) > 1]
    assert found["alone"]["value"] == pytest.approx(np.median(alone))
    assert found["beside"]["value"] == pytest.approx(np.median(beside))
    ratio = found["ratio"]
    assert ratio["value"] == pytest.approx(np.median(beside) / np.median(alone))
    assert 1.5 < ratio["low"] < ratio["value"] < ratio["high"]
    assert found["reads"] == {"hudi_rs": {"value": 0.7, "low": 0.7, "high": 0.7}}
    assert arms["hudi_spark_tuned"]["beside_readers"] is None
    table = next(one for one in run_page(run).tables() if one.name == "stream-readers")
    assert [row[0].text for row in table.rows] == ["internal_row", "pickle"]
    about = {one.key: one.about for one in table.columns}
    assert about["alone_s"] == "median without a reader, from batch 10 on"
    assert about["beside_s"] == "with one at least half the time"


def test_the_lag_of_a_long_stream_falls_to_nothing(tmp_path: Path) -> None:
    """Its line has fewer points than the stream has batches, and still the last one."""
    page = run_page(load_run(make_stream_run(tmp_path, sizes={1000: 119})))
    for line in lines_of(page, "stream-lag-merge_on_read-1000").lines:
        assert line.points[0] == (0.0, 119.0)
        assert line.points[-1][1] == 0
        assert len(line.points) <= 51


def test_late_commits_are_compared_with_those_from_the_tenth_on(tmp_path: Path) -> None:
    """Those before and between them count for nothing."""

    def times(batch: int) -> float:
        if batch > 50:
            return 1.8
        return 1.0 if 10 <= batch < 30 else 9.0

    run = load_run(make_stream_run(tmp_path, sizes={1000: 70}, times=times))
    found = summarise(run)["streams"]["arms"]
    late = next(one["fixed"]["late"] for one in found if one["arm"] == "internal_row@1000")
    (took,) = next(one["latencies"] for one in found if one["arm"] == "internal_row@1000")
    assert late["value"] == pytest.approx(np.median(took[-20:]) / np.median(took[9:29]))
    assert 1.5 < late["low"] < late["value"] < late["high"] < 2


def test_the_command_line_shows_the_latencies(path: Path) -> None:
    (table,) = report_tables(load_run(path))
    assert table.name == "stream-latency"
    assert len(table.rows) == 6


def test_compactions_are_marked_and_the_lag_falls_to_nothing(page: Page) -> None:
    drawn = lines_of(page, "stream-batches-merge_on_read-1000")
    joined = {line.label: line for line in drawn.lines if line.joined}
    assert joined.keys() == {"internal_row", "pickle", "hudi_spark_tuned"}
    assert not {x for x, _ in joined["pickle"].points} & {5.0, 10.0}
    marked = [line for line in drawn.lines if not line.joined]
    assert [[x for x, _ in line.points][:2] for line in marked] == [[5, 10]] * 3
    for line in lines_of(page, "stream-lag-merge_on_read-1000").lines:
        assert line.points[0] == (0.0, 40.0)
        assert line.points[-1][1] == 0
    (serde,) = (one for one in page.figures() if one.name == "stream-serde")
    assert isinstance(serde, Figure)
    assert "pickle from" in serde.description
    assert "hudi" not in serde.description


def test_without_services_nothing_is_marked(tmp_path: Path) -> None:
    page = run_page(load_run(make_stream_run(tmp_path, services=False)))
    drawn = lines_of(page, "stream-batches-merge_on_read-1000")
    assert all(line.joined for line in drawn.lines)
    section = next(one for one in page.sections if one.name == "streams")
    assert "are off for all arms" in str(section.blocks[0])


def test_resamples_draw_rounds_and_whole_blocks_within_each() -> None:
    series = [list(range(100)), list(range(1000, 1100))]
    rows = resampled(series, 5, lambda rows: rows)
    assert rows.shape == (2000, 200)
    drawn = (rows[:, ::100] >= 1000).sum(axis=1)
    assert set(drawn) == {0, 1, 2}
    for half in (rows[:, :100], rows[:, 100:]):
        assert ((half >= 1000) == (half[:, :1] >= 1000)).all()
    # neighbours stay together within blocks of five, which begin anywhere and go round
    steps = np.diff(rows[:, :5]) % 100
    assert (steps == 1).all()
    assert not (np.diff(rows[:, 4:6]) % 100 == 1).all()
    # too short for blocks
    few = resampled([[1.0, 2.0, 3.0]], 5, lambda rows: rows)
    assert not (np.diff(few) % 3 == 1).all()


@pytest.mark.parametrize(("count", "q"), [(60, 95), (30, 50), (300, 99)])
def test_the_interval_of_a_percentile_holds_it_in_95_of_100_cases(count: int, q: float) -> None:
    """Of independent values; a plain bootstrap misses it in 14 to 19 of 100 cases."""
    draw, missed, trials = np.random.default_rng(3), 0, 120
    true = float(np.exp(0.2 * special.ndtri(q / 100)))
    for _ in range(trials):
        found = percentile_of([np.exp(draw.normal(0, 0.2, count)).tolist()], 5, q)
        assert found.low is not None
        assert found.high is not None
        missed += not found.low <= true <= found.high
    assert missed / trials < 0.1


def test_the_interval_of_a_pair_of_three_holds_the_ratio_though_its_blocks_are_few() -> None:
    """Four blocks of five batches, of which neighbours are alike: all resamples together reach not so far."""
    draw, missed = np.random.default_rng(7), 0
    for _ in range(300):
        noise = draw.normal(size=(2, 40))
        for batch in range(1, 40):
            noise[:, batch] += 0.5 * noise[:, batch - 1]
        one, other = np.exp(0.1 * noise[:, 20:]).tolist()
        found = ratio_of_medians([one], [other], 5, among=3)
        assert found.low is not None
        assert found.high is not None
        missed += not found.low <= 1 <= found.high
    assert missed <= 300 * 0.05 / 3


def test_an_end_of_an_interval_has_its_own_unit() -> None:
    estimate = stream_latency._estimate(Estimate(0.0501, 0.0373, 0.112))
    assert (estimate.text, estimate.note) == ("50.1 ms", "37.3 ms to 0.112 s")


def test_it_matters_from_a_size_on_only_if_it_does_at_all_larger_ones() -> None:
    def one(rows: float, low: float | None) -> SizeDifference:
        return SizeDifference("COPY_ON_WRITE", rows, "pickle", "arrow", Estimate(1.5, low, 2.0))

    found = Streams((), (one(10, 1.2), one(100, 1.0), one(1000, 1.1), one(10_000, 1.4)))
    assert found.matters_from("COPY_ON_WRITE") == 1000
    assert found.matters_from("MERGE_ON_READ") is None
    # too few batches for an interval decide nothing, as does an interval with 1.1 in it
    assert [one.undecided for one in (*found.differences, one(5, None))] == [
        False,
        True,
        False,
        False,
        True,
    ]
    assert Streams((), (one(10, 1.2), one(100, None))).matters_from("COPY_ON_WRITE") is None


def test_the_interval_that_is_printed_is_the_one_that_decides() -> None:
    def one(low: float, high: float) -> SizeDifference:
        return SizeDifference("COPY_ON_WRITE", 10, "a", "b", Estimate(1.08, low, high))

    # to the nearest hundredth these would be printed as 1.10
    assert one(1.0996, 1.3).shown == (1.09, 1.3)
    assert one(1.0996, 1.3).undecided
    assert one(1.05, 1.0996).shown == (1.05, 1.1)
    assert one(1.05, 1.0996).undecided
    assert not one(1.05, 1.09).undecided
