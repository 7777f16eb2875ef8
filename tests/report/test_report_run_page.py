"""What the page of a run says, and what it refuses to say."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest

from serde_lab.analysis.run_values import run_values
from serde_lab.measure.code_version import instruments
from serde_lab.measure.phases import SERDE_VERBS
from serde_lab.report import notation
from serde_lab.report.page import Figure, Page, Points, Section, Sentence, Table
from serde_lab.report.plots.drawings import StackedBars
from serde_lab.report.run.ladder import differences
from serde_lab.report.run.run_page import run_page
from serde_lab.report.run.time_split import time_section
from serde_lab.runs.directory import load_run
from serde_lab.runs.writer import RunWriter
from tests.report import made_up_run as made_up
from tests.runs.made_up_runs import begin, end, header, whole_cell

REPOSITORY = Path(__file__).parents[2]

READING_ORDER = [
    "arms",
    "time",
    "bytes",
    "rounds",
    "ladder",
    "prediction",
    "checks",
    "fairness",
    "doubts",
    "environment",
    "raw",
    "remake",
]


def page_of(tmp_path: Path, arms: Sequence[made_up.MadeUpArm], **how: Any) -> Page:
    return run_page(load_run(made_up.make_run(tmp_path, arms, **how)))


def section(page: Page, name: str) -> Section:
    return next(one for one in page.sections if one.name == name)


def table(page: Page, name: str) -> Table:
    return next(one for one in page.tables() if one.name == name)


def said(page: Page) -> str:
    return " ".join(
        [page.answer.figure_about, *(sentence.text for sentence in page.answer.sentences)]
    )


def doubts(page: Page) -> dict[str, str]:
    points = [b for b in section(page, "doubts").blocks if isinstance(b, Points)]
    return {heading: text for block in points for heading, text in block.items}


def row(found: Table, name: str) -> dict[str, Any]:
    cells = next(cells for cells in found.rows if cells[0].value == name or cells[0].text == name)
    return {column.key: cell for column, cell in zip(found.columns, cells, strict=True)}


@pytest.fixture(scope="module")
def ladder(tmp_path_factory: pytest.TempPathFactory) -> Page:
    arms = (*made_up.LADDER, made_up.EXCHANGE_ONLY)
    return page_of(tmp_path_factory.mktemp("ladder"), arms)


@pytest.fixture(scope="module")
def apart(tmp_path_factory: pytest.TempPathFactory) -> Page:
    """Two arms that differ in all three factors."""
    return page_of(tmp_path_factory.mktemp("apart"), (made_up.PICKLE, made_up.ARROW))


def test_sections_stand_in_reading_order(ladder: Page) -> None:
    assert [one.name for one in ladder.sections] == READING_ORDER


def test_the_answer_is_the_ratio_to_the_reference(apart: Page) -> None:
    seconds = {
        name: row(table(apart, "arms"), name)["seconds"].value for name in ("pickle", "arrow")
    }
    factor = seconds["pickle"] / seconds["arrow"]
    assert apart.answer.question.startswith("What does the record format cost")
    assert float(apart.answer.figure.rstrip("×")) == pytest.approx(factor, rel=0.005)
    least = re.fullmatch(
        r"faster end to end: `arrow` against `pickle`, at least ([\d.]+) times",
        apart.answer.figure_about,
    )
    assert least
    assert float(least[1]) < factor
    assert "was faster in every one of 5 rounds" in said(apart)


def test_no_format_is_praised_where_several_factors_differ(apart: Page) -> None:
    warned = [s for s in apart.answer.sentences if s.tone == "warn"]
    assert len(warned) == 1
    assert "3 factors, representation, execution and framing" in warned[0].text
    assert "does not compare formats" in warned[0].text


def test_the_answer_compares_within_one_execution_and_one_framing(ladder: Page) -> None:
    assert (
        "Of the 4 arms of one execution and framing, none is shown to beat the reference"
        in said(ladder)
    )
    assert re.fullmatch(
        r"the time of `pickle_dict`, the second fastest of its kind, over that of `pickle`,"
        r" the reference \(95 % interval [\d.]+ to [\d.]+\)",
        ladder.answer.figure_about,
    )
    assert not [s for s in ladder.answer.sentences if s.tone == "warn"]


def test_arms_by_column_are_compared_where_the_reference_is_alone(tmp_path: Path) -> None:
    arms = (made_up.PICKLE, made_up.INTERNAL_1000, made_up.ARROW_1000)
    page = page_of(tmp_path, arms)
    assert "differ in one factor, representation" in said(page)
    assert "pickle" not in page.answer.figure_about


def test_the_answer_says_what_whole_columns_give(ladder: Page, apart: Page) -> None:
    found = re.search(
        r"Whole columns in place of rows: `internal_row` is ([\d.]+) times \(95 % interval"
        r" ([\d.]+) to ([\d.]+)\) as fast as `internal_row_row`\.",
        said(ladder),
    )
    assert found
    assert float(found[2]) < float(found[1]) < float(found[3])
    assert "Whole columns" not in said(apart)


def test_one_factor_is_named_as_the_cause(tmp_path: Path) -> None:
    page = page_of(tmp_path, (made_up.PICKLE, made_up.PICKLE_DICT))
    assert not [s for s in page.answer.sentences if s.tone == "warn"]
    assert "No arm is shown to beat the reference" in said(page)
    page = page_of(
        tmp_path,
        (made_up.INTERNAL_1000, made_up.ARROW_1000),
        scenario={"reference": "internal_row_1000"},
        run_id="two",
    )
    assert "differ in one factor, representation: internal_row to arrow" in said(page)


def test_what_is_saved_is_laid_to_serde(apart: Page) -> None:
    expected = sum(made_up.PICKLE.serde_us)
    cost = re.search(r"costs ([\d.]+) µs of CPU per record in `pickle` and 0\.2\d+ µs", said(apart))
    assert cost is not None
    assert float(cost[1]) == pytest.approx(expected, rel=0.05)
    assert re.search(
        r"SerDe accounts for 9\d % \(95 % interval 9\d to 9\d %\) of the saved slot time",
        said(apart),
    )


def test_what_is_saved_is_counted_round_by_round(tmp_path: Path) -> None:
    """Idle slots take 6 of the reference's 10 s in every round, each time for another reason: the median of
    each reason is 0."""
    idle = ("idle.driver", "idle.stage_tail", "idle.scheduler")
    with RunWriter.create(tmp_path, header()) as writer:
        for number, why in enumerate(idle, 1):
            of_arms = {"pickle": {"map.encode": 4.0, why: 6.0}, "arrow": {"map.encode": 1.0}}
            for arm, phases in of_arms.items():
                cell = f"r{number:02d}-{arm}"
                begin(writer, cell)
                for phase, seconds in phases.items():
                    writer.sample(cell, "phase_wall_s", seconds, commit=1, phase=phase)
                writer.sample(cell, "seconds", sum(phases.values()) + number / 10, commit=1)
                writer.sample(cell, "rows", 100, commit=1)
                end(writer, cell)
        writer.finish("complete")
    # 3 s of SerDe of 9 s in all
    assert "SerDe accounts for 33 % " in said(run_page(load_run(writer.path)))


def test_serde_that_takes_more_saves_nothing(tmp_path: Path) -> None:
    more = replace(
        made_up.PICKLE, name="costly", serde_us=tuple(1.1 * us for us in made_up.PICKLE.serde_us)
    )
    page = page_of(tmp_path, (more, replace(made_up.PICKLE, name="slow", shuffle_bytes=1000.0)))
    assert re.search(r"SerDe saves nothing: it takes [\d.]+ s more slot time\.", said(page))


def test_overlapping_rounds_decide_nothing(tmp_path: Path) -> None:
    twin = replace(made_up.PICKLE, name="pickle_again")
    page = page_of(tmp_path, (made_up.PICKLE, twin), noise=0.2)
    assert "not decided" in page.answer.figure_about or "No arm is shown" in said(page)
    assert "in every one" not in said(page)
    assert "faster end to end" not in page.answer.figure_about


def test_two_rounds_cannot_decide(tmp_path: Path) -> None:
    page = page_of(tmp_path, (made_up.PICKLE, made_up.ARROW), rounds=2)
    assert "too few rounds to decide" in said(page)
    assert page.answer.figure_about.endswith("not decided")


@pytest.mark.parametrize(
    ("reference", "other", "figure", "words"),
    [
        # slower in every common round, and it lacks the slow ones
        (
            [10, 20, 20, 20, 10.1, 10.2],
            [12, 0, 0, 0, 12.1, 12.3],
            "1.201×",
            "`pickle` was faster in every one of 3 rounds",
        ),
        # faster in every common round, and it lacks the fast ones
        (
            [10, 10, 10, 10, 20, 20.1, 20.2],
            [0, 0, 0, 0, 16, 16.1, 16.3],
            "1.246×",
            "medians of 3 rounds and of 7 rounds). `arrow` was faster in every one of 3 rounds",
        ),
    ],
)
def test_who_is_faster_is_decided_in_rounds_that_both_have(
    tmp_path: Path, reference: list[float], other: list[float], figure: str, words: str
) -> None:
    with RunWriter.create(tmp_path, header()) as writer:
        for number, pair in enumerate(zip(reference, other, strict=True), 1):
            for arm, seconds in zip(("pickle", "arrow"), pair, strict=True):
                if seconds:
                    whole_cell(writer, f"r{number:02d}-{arm}", [seconds])
        writer.finish("complete")
    page = run_page(load_run(writer.path))
    assert page.answer.figure == figure
    assert words in said(page)


def test_a_control_never_wins(tmp_path: Path) -> None:
    page = page_of(tmp_path, (made_up.PICKLE, made_up.EXCHANGE_ONLY))
    assert "exchange_only" not in page.answer.figure_about
    assert page.answer.figure.endswith(" s")


def test_every_arm_is_a_multiple_of_the_floor(tmp_path: Path) -> None:
    arms = (made_up.PICKLE, made_up.ARROW, made_up.EXCHANGE_ONLY, made_up.WORK_FLOOR)
    controls = {"exchange_only": "exchange_only", "floor": "work_floor"}
    content = {"arm": [{"name": name, "control": control} for name, control in controls.items()]}
    page = page_of(tmp_path, arms, scenario=content)
    found = table(page, "times-the-floor")
    assert [cells[0].value for cells in found.rows] == ["pickle", "arrow"]
    seconds = {name: row(table(page, "arms"), name)["seconds"].value for name in ("arrow", "floor")}
    arrow = row(found, "arrow")
    assert arrow["floor"].value == "floor"
    assert arrow["times"].value == pytest.approx(seconds["arrow"] / seconds["floor"], rel=0.1)
    assert " to " in arrow["interval"].text
    assert "`floor`, is the same work without SerDe, shuffle and JVM" in said(page)
    times = f"{arrow['times'].text} times (95 % interval {arrow['interval'].text})"
    assert f"`arrow` takes {times}" in said(page)


def test_a_run_without_a_floor_has_no_multiples(apart: Page) -> None:
    assert "times-the-floor" not in {one.name for one in apart.tables()}
    assert "floor" not in said(apart)


def test_every_arm_right_is_said_with_the_number_of_checks(ladder: Page) -> None:
    assert "all 162 checks of contents passed" in said(ladder)
    assert "No contents were checked" not in said(ladder)


@pytest.mark.parametrize("rounds", [(3,), (1, 2, 3, 4, 5, 6)])
def test_an_arm_that_raised_is_not_called_right(tmp_path: Path, rounds: tuple[int, ...]) -> None:
    page = page_of(tmp_path, (made_up.PICKLE, replace(made_up.ARROW, fails_in=rounds)))
    assert "Every measured cell wrote the right table: all " in said(page)


def test_checks_that_could_not_be_made_are_not_called_passed(tmp_path: Path) -> None:
    path = made_up.make_run(tmp_path, (made_up.PICKLE,), state="running")
    checks = path / "checks.jsonl"
    checks.write_text(checks.read_text().replace('"passed": true', '"passed": null'))
    page = run_page(load_run(path))
    assert "Unchecked: `pickle`" in said(page)
    assert section(page, "checks").blocks[0] == Sentence(
        "No check of contents could be made.", "bad"
    )
    assert row(table(page, "arms"), "pickle")["checks"].text == "none made"


def test_a_wrong_arm_shows_no_timing_anywhere(tmp_path: Path) -> None:
    wrong = replace(made_up.ARROW, wrong_in=3)
    path = made_up.make_run(tmp_path, (made_up.PICKLE, wrong, made_up.AVRO))
    run = load_run(path)
    page = run_page(run)
    assert "Wrong answer: `arrow`" in said(page)
    cells = row(table(page, "arms"), "arrow")
    assert cells["seconds"].text == "wrong answer"
    assert "expected 0.04, found 0.05" in cells["seconds"].note
    timed = ("seconds", "ratio", "rows_per_s", "serde_cpu_s", "serde_share")
    assert [cells[key].value for key in timed] == [None] * len(timed)
    shown = {cell.value for one in page.tables() for cells in one.rows for cell in cells}
    samples = [
        sample
        for cell in run.cells
        if cell.arm == "arrow"
        for sample in cell.samples
        if sample.unit == "s" and sample.metric != "worker_start_s" and sample.value > 0
    ]
    assert samples
    assert not shown & {sample.value for sample in samples}
    for name in ("phases", "rounds", "serde", "ladder"):
        figure = next(one for one in page.figures() if one.name == name)
        assert "arrow 1" not in figure.description
    assert page.data["arms"][1]["seconds"] is None  # type: ignore[index]


def test_a_run_with_wrong_arms_alone_has_no_figure(tmp_path: Path) -> None:
    page = page_of(tmp_path, (replace(made_up.PICKLE, wrong_in=2),))
    assert page.answer.figure == "–"
    assert {"time", "rounds"}.isdisjoint(one.name for one in page.sections)


def test_a_run_without_any_cell_still_has_a_page(tmp_path: Path) -> None:
    page = page_of(tmp_path, (made_up.PICKLE,), rounds=0, warmup=0, state="interrupted")
    assert page.answer.figure == "–"
    assert "This run was interrupted" in said(page)
    assert "No contents were checked" in said(page)


@pytest.mark.parametrize(
    "name",
    ["upsert_lineitem/20261125T174259Z", "smoke/20261124T081640Z", "tpch_all/20261125T131500Z"],
)
def test_the_parts_of_every_bar_add_up(name: str) -> None:
    """To the figure at its end and, over all panels, to the mean of the rounds; tables say the same."""
    run = load_run(REPOSITORY / "results/reference" / name)
    page = run_page(run)
    bars = [
        (figure, bar, math.fsum(segment.value for segment in bar.segments))
        for figure in page.figures()
        if isinstance(figure.drawing, StackedBars) and figure.name != "column-bytes"
        for panel in figure.drawing.panels
        for bar in panel.bars
        if not bar.absent
    ]
    for figure, bar, parts in bars:
        whole, predicted = (
            notation.seconds(one)
            if figure.name in ("phases", "tables")
            else f"{notation.number(one)} {'µs' if figure.name == 'serde' else 'B'}"
            for one in (parts, bar.tick)
        )
        assert bar.total == whole
        assert bar.tick is None or bar.tick_text == predicted
    for arm in run_values(run).timed:
        for figure in ("phases", "tables"):
            whole = [
                parts for one, bar, parts in bars if (one.name, bar.label) == (figure, arm.name)
            ]
            if whole:
                mean_s = fmean(arm.seconds_by_round.values())
                assert math.fsum(whole) == pytest.approx(mean_s, rel=1e-3)
        slot_s = [
            cells[arm.name].value
            for cells in (row(table(page, "phase-seconds"), phase) for phase in arm.phases)
        ]
        mean_slot_s = fmean(arm.slots * s for s in arm.seconds_by_round.values())
        assert math.fsum(slot_s) == pytest.approx(mean_slot_s, rel=1e-3)


def test_sides_and_idle_slots_are_panels(ladder: Page) -> None:
    figure = next(one for one in ladder.figures() if one.name == "phases")
    panels = figure.drawing.panels  # type: ignore[union-attr]
    assert [panel.heading for panel in panels] == ["map side", "reduce side", "other time"]
    roles = {segment.role for bar in panels[2].bars for segment in bar.segments}
    assert {"idle-driver", "idle-stage_tail", "unattributed"} <= roles


def test_the_stages_of_a_peer_are_one_panel_of_the_whole() -> None:
    run = load_run(REPOSITORY / "results/reference/beside_hudi/20261127T012601Z")
    facts = run_values(run)
    section = time_section(facts)
    assert section is not None
    figure = next(one for one in section.blocks if isinstance(one, Figure) and one.name == "phases")
    assert isinstance(figure.drawing, StackedBars)
    panels = figure.drawing.panels
    headings = [panel.heading for panel in panels]
    assert headings == ["map side", "reduce side", "stages of Apache Hudi", "other time"]
    (bar,) = (bar for bar in panels[2].bars if bar.label == "hudi_spark")
    assert len(bar.segments) > 3
    whole = sum(
        s.value for p in panels for b in p.bars if b.label == "hudi_spark" for s in b.segments
    )
    arm = next(arm for arm in facts.arms if arm.name == "hudi_spark")
    # not the median of the whole, to which medians of stages add up but nearly
    assert whole == pytest.approx(sum(t["wall_s"] for t in arm.phases.values()) / arm.slots)


def test_every_round_is_a_point_and_cold_ones_are_marked_apart(tmp_path: Path) -> None:
    page = page_of(tmp_path, (made_up.PICKLE,), warmup=2, rounds=4, drifting_round=5)
    figure = next(one for one in page.figures() if one.name == "rounds")
    kinds = [point.kind for point in figure.drawing.rows[0].points]  # type: ignore[union-attr]
    assert sorted(kinds) == ["cold", "cold", "marked", "measured", "measured", "measured"]


def test_the_ladder_names_the_factor_of_each_step(ladder: Page) -> None:
    steps = table(ladder, "ladder-steps")
    factors = [cells[1].text for cells in steps.rows]
    assert factors == [
        "representation",
        "representation",
        "representation",
        "execution",
        "framing",
        "representation",
        "framing",
    ]
    step = row(steps, "internal_row_row → internal_row")["seconds_ratio"]
    assert step.value < 0.5
    assert re.fullmatch(r"0\.\d+ to 0\.\d+", step.note)


@pytest.mark.parametrize(
    ("option", "value", "factor"),
    [
        ("shuffle", "rdd", "shuffle: dataframe to rdd"),
        ("source_reader", "spark", "source: auto to spark"),
    ],
)
def test_options_of_the_pipeline_are_factors_of_their_own(
    option: str, value: str, factor: str, tmp_path: Path
) -> None:
    other = made_up.ARROW
    options = {**other.options, option: value}
    stated = {"name": "arrow_other", "changes": factor.partition(":")[0]}
    arms = (other, replace(other, name="arrow_other", options=options))
    page = page_of(tmp_path, arms, scenario={"arm": [{"name": "arrow"}, stated]})
    (step,) = table(page, "ladder-steps").rows
    assert step[1].text == factor.partition(":")[0]
    figure = next(one for one in page.figures() if one.name == "ladder")
    assert factor.split(": ")[1] in figure.description
    lead = next(b for b in section(page, "ladder").blocks if isinstance(b, Sentence))
    assert lead.text == "Every step changes one factor, so each step has one cause."


def test_a_step_of_several_factors_has_no_single_cause(tmp_path: Path) -> None:
    page = page_of(tmp_path, (made_up.PICKLE, made_up.ARROW))
    lead = next(b for b in section(page, "ladder").blocks if isinstance(b, Sentence))
    assert lead.tone == "warn"
    assert "its figures do not show that a format is faster" in lead.text
    assert "no two neighbouring arms of this run differ in one factor alone" in said(page)
    figure = next(one for one in page.figures() if one.name == "ladder")
    assert "is no single cause" in figure.description


def test_a_scenario_that_names_another_factor_is_contradicted(tmp_path: Path) -> None:
    lying = {"name": "internal_row_1000", "changes": "execution"}
    page = page_of(
        tmp_path,
        (made_up.INTERNAL_BATCH, made_up.INTERNAL_1000),
        scenario={"reference": "internal_row", "arm": [{"name": "internal_row"}, lying]},
    )
    lead = next(b for b in section(page, "ladder").blocks if isinstance(b, Sentence))
    assert "The scenario says that `internal_row_1000` changes 'execution'" in lead.text


def test_a_prediction_stands_beside_its_measurement(ladder: Page) -> None:
    cells = row(table(ladder, "prediction"), "internal_row")
    assert cells["expected_us"].value == 0.8
    # a geometric mean of rounds with its interval, beside a median
    assert cells["us_ratio"].value == pytest.approx(cells["measured_us"].value / 0.8, rel=0.02)
    low, high = map(float, cells["us_ratio"].note.split(" to "))
    assert low < cells["us_ratio"].value < high
    assert cells["expected_bytes"].value == 246
    assert cells["measured_bytes"].value == pytest.approx(248)
    assert (cells["bytes_ratio"].text, cells["bytes_ratio"].note) == ("1.008", "")


def test_costs_of_a_record_have_one_divisor() -> None:
    """In a run whose reads have rows and no SerDe, beside compactions that have both."""
    run = load_run(REPOSITORY / "results/reference/compact/20261125T101651Z")
    values = run_values(run)
    page = run_page(run)
    for arm in values.predicted:
        cells = row(table(page, "prediction"), arm.name)
        expected, measured = (cells[key].value for key in ("expected_us", "measured_us"))
        assert cells["us_ratio"].value == pytest.approx(measured / expected, rel=0.1)
        rows = arm.rows_of("serde_cpu_s") or 0
        mean_us = 1e6 * fmean(arm.by_round("serde_cpu_s").values()) / rows
        assert math.fsum(arm.mean_verb_us(verb) for verb in SERDE_VERBS) == pytest.approx(mean_us)


@pytest.mark.parametrize(
    ("run", "texts"),
    [
        # reads write nothing; slower arms of another execution are there
        (
            "read/20261125T043040Z",
            (
                "`avro` read 1,465,308 rows in ",
                "`internal_row`, the slowest of its kind, took ",
                "Every arm read the right rows: ",
            ),
        ),
        ("compact/20261125T101651Z", ("`avro` compacted and read ",)),
        # the largest size is undecided, while smaller ones matter
        ("stream/20261126T152208Z", ("undecided", "at 10,000 and 100,000 rows it does")),
        (
            "rfc84/20261125T193833Z",
            ("as fast as `internal_row_by_row` (undecided: one round shows no spread)",),
        ),
    ],
)
def test_the_answer_says_no_more_than_was_measured(run: str, texts: tuple[str, ...]) -> None:
    page = run_page(load_run(REPOSITORY / "results/reference" / run))
    text = f"{page.answer.figure if page.answer else ''} {said(page)}"
    assert [one for one in texts if one not in text] == []


def test_ways_of_merging_are_a_factor() -> None:
    """Arms that merged in another way were said to be the same arm twice, and their difference noise."""
    found = run_values(load_run(REPOSITORY / "results/reference/merge_modes/20261125T125954Z"))
    arms = {arm.name: arm for arm in found.arms}

    def factors(one: str, other: str) -> list[str]:
        return [difference.factor for difference in differences(arms[one], arms[other])]

    assert factors("arrow", "arrow_commit_time") == ["merging"]
    assert factors("internal_row_merger", "internal_row_merger_of_records") == ["merging"]
    # its options have an empty execution: by row for avro, by column for arrow
    assert factors("avro", "arrow") == ["representation", "execution"]


def test_failed_checks_come_first(tmp_path: Path) -> None:
    page = page_of(tmp_path, (made_up.PICKLE, replace(made_up.AVRO, wrong_in=4)))
    failed = table(page, "failed-checks")
    assert [[cell.text for cell in cells] for cells in failed.rows] == [
        [
            "oracle",
            "avro",
            "4",
            "failed",
            "first difference at key 1-3, column l_tax: expected 0.04, found 0.05",
        ]
    ]
    assert len(table(page, "checks").rows) == 36


def test_fairness_cards_stand_once_a_strategy(ladder: Page) -> None:
    cards = section(ladder, "fairness").blocks[1].cards  # type: ignore[union-attr]
    assert [card.title for card in cards] == ["pickle", "avro", "internal_row", "arrow"]
    assert ("Trust", made_up.FAIRNESS["pickle"]["trust"]) in cards[0].facts
    assert cards[2].note == "arms internal_row_row, internal_row and internal_row_1000"


QUIET: dict[str, Any] = {
    "noise": 0.01,
    "local_mode": False,
    "instruments": instruments("spark"),
}


def test_a_quiet_run_on_a_cluster_has_little_to_say_against_itself(tmp_path: Path) -> None:
    page = page_of(tmp_path, (made_up.PICKLE,), **QUIET)
    assert doubts(page) == {}
    assert section(page, "doubts").blocks[0] == Sentence(
        "This run shows no reason for doubt.", "good"
    )


@pytest.mark.parametrize(
    ("heading", "arms", "how", "words"),
    [
        ("Wrong answers", (replace(made_up.PICKLE, wrong_in=2),), {}, "`pickle`"),
        ("Failed cells", (replace(made_up.PICKLE, fails_in=(2, 4)),), {}, "in round 2 and 4"),
        ("Missing arm", (made_up.PICKLE,), {"rounds": 0, "warmup": 0}, "no round of this arm"),
        ("Incomplete", (made_up.PICKLE,), {"state": "interrupted"}, "interrupted"),
        ("Few rounds", (made_up.PICKLE,), {"rounds": 3}, "a p below 0.250"),
        (
            "Unequal rounds",
            (made_up.PICKLE, replace(made_up.AVRO, fails_in=(3,))),
            {},
            "Not every arm",
        ),
        ("The machine's speed changed", (made_up.PICKLE,), {"drifting_round": 4}, "round 4 (+2"),
        ("Noise", (made_up.PICKLE,), {"noise": 0.3}, "`pickle` ("),
        (
            "Noise",
            (made_up.PICKLE,),
            {"noise": 0.3},
            "Medians cannot show differences of that size",
        ),
        ("Unattributed time", (made_up.PICKLE,), {"unattributed": 0.08}, "`pickle` (8.0 %)"),
        ("Local mode", (made_up.PICKLE,), {"local_mode": True}, "no network"),
        ("Uncommitted changes", (made_up.PICKLE,), {"dirty": True}, "uncommitted changes"),
        (
            "No Spark",
            (made_up.PICKLE,),
            {"scenario": {"measure": {"exchange": "inprocess"}}},
            "not Spark",
        ),
        ("One machine", (made_up.PICKLE, made_up.AVRO), {}, "made-up-2-cores"),
    ],
)
def test_each_doubt_is_reached(
    tmp_path: Path,
    heading: str,
    arms: tuple[made_up.MadeUpArm, ...],
    how: dict[str, Any],
    words: str,
) -> None:
    assert words in doubts(page_of(tmp_path, arms, **{**QUIET, **how}))[heading]


def test_spins_mark_a_round_and_the_calibration_cell_does_not_where_there_are_spins(
    tmp_path: Path,
) -> None:
    """One arm: its cells are numbered like the rounds, and round 1 is cold."""
    spins = {"spin_s": lambda order: 0.056 if order == 3 else 0.05}
    page = page_of(tmp_path, (made_up.PICKLE,), **QUIET, drifting_round=5, disturbed=spins)
    assert "in round 3 (+12" in doubts(page)["The machine's speed changed"]
    assert "Made beside other work" not in doubts(page)


def test_other_work_in_some_cells_is_told_though_the_run_counts_as_quiet(tmp_path: Path) -> None:
    """One arm: round 3 is disturbed, and the median of its rounds is not."""
    shares = {"others_share": lambda order: 0.42 if order == 3 else 0.01}
    page = page_of(tmp_path, (made_up.PICKLE,), **QUIET, disturbed=shares)
    said = doubts(page)["Other work in some cells"]
    assert "In 1 of 5 cells other processes took more than 10 % of the cores" in said
    assert "at most 42 % (`pickle`, round 3)" in said
    assert "Made beside other work" not in doubts(page)


def test_a_count_that_differs_between_rounds_is_doubted(tmp_path: Path) -> None:
    path = made_up.make_run(tmp_path, (made_up.PICKLE,), state="running", **QUIET)
    samples = path / "samples.jsonl"
    lines = samples.read_text().splitlines()
    at = max(i for i, line in enumerate(lines) if '"frame_bytes"' in line)
    lines[at] = lines[at].replace('"value": 128400000', '"value": 128400001')
    samples.write_text("\n".join(lines) + "\n")
    assert (
        "frame_bytes of `pickle` differs" in doubts(run_page(load_run(path)))["Not deterministic"]
    )


def test_a_torn_line_is_told(tmp_path: Path) -> None:
    path = made_up.make_run(tmp_path, (made_up.PICKLE,), state="running", **QUIET)
    with (path / "samples.jsonl").open("a") as file:
        file.write('{"event": "sam')
    assert "incomplete" in doubts(run_page(load_run(path)))["The run's files"]


def test_raw_values_hold_every_sample_of_every_cell(ladder: Page, tmp_path: Path) -> None:
    run = load_run(made_up.make_run(tmp_path, (made_up.PICKLE,), rounds=2))
    page = run_page(run)
    metrics = {cell.value for cells in table(page, "raw-values").rows for cell in cells}
    walls = {cell.value for cells in table(page, "raw-phases-wall").rows for cell in cells}
    cpus = {cell.value for cells in table(page, "raw-phases-cpu").rows for cell in cells}
    for cell in run.cells:
        for sample in cell.samples:
            where = {"phase_wall_s": walls, "phase_cpu_s": cpus}.get(sample.metric, metrics)
            assert sample.value in where


def test_the_commands_remake_the_run(tmp_path: Path) -> None:
    page = page_of(
        tmp_path,
        (made_up.PICKLE,),
        header={"x": 1},
    )
    lines = [line for line, _ in section(page, "remake").blocks[0].lines]  # type: ignore[union-attr]
    assert lines == [
        "git checkout 0123456789abcdef0123456789abcdef01234567",
        "python -m serde_lab run upsert_lineitem",
        "python -m serde_lab report results/upsert_lineitem/20250101T120000Z",
        "python -m serde_lab show results/upsert_lineitem/20250101T120000Z --format json",
    ]


def test_the_command_of_a_run_has_its_options(tmp_path: Path) -> None:
    settings = {
        "overrides": {"measure.rounds": "3"},
        "master": "spark://host:7077",
        "conf": {"spark.executor.cores": "4"},
        "isolate_peers": True,
    }
    page = page_of(
        tmp_path,
        (made_up.PICKLE,),
        scenario={"name": "orders", "arm": [{"name": "pickle"}, {"name": "avro"}]},
        header={"settings": settings},
    )
    lines = [line for line, _ in section(page, "remake").blocks[0].lines]  # type: ignore[union-attr]
    assert lines[1] == (
        "python -m serde_lab run orders.toml --set measure.rounds=3 --strategy pickle"
        " --master spark://host:7077 --conf spark.executor.cores=4 --isolate-peers"
    )


def test_every_figure_says_what_it_shows(ladder: Page) -> None:
    assert [figure.name for figure in ladder.figures()] == [
        "phases",
        "serde",
        "bytes",
        "column-bytes",
        "rounds",
        "ladder",
        "calibration",
    ]
    for figure in ladder.figures():
        assert isinstance(figure, Figure)
        assert len(figure.description) > 60
        if figure.name not in ("calibration", "column-bytes"):
            assert "internal_row_1000" in figure.description


def travelling(name: str, arm: made_up.MadeUpArm, topology: str) -> tuple[Any, dict[str, Any]]:
    said = {"name": name, "strategy": arm.strategy, "topology": {"name": topology}}
    return replace(arm, name=name, extra={}), said


def test_topologies_stand_beside_each_other(tmp_path: Path) -> None:
    pairs = [
        travelling("bucket_avro", made_up.AVRO, "bucket"),
        travelling("bucket_row", made_up.INTERNAL_BATCH, "bucket"),
        travelling(
            "state_avro", replace(made_up.AVRO, serde_us=(4.6, 0, 19.6, 22.8, 3.2)), "state"
        ),
        travelling("legacy_row", made_up.INTERNAL_BATCH, "legacy"),
        travelling("step1_row", made_up.INTERNAL_BATCH, "step1"),
        travelling("bloom_row", replace(made_up.INTERNAL_BATCH, metadata_us=0.83), "bloom"),
    ]
    page = page_of(
        tmp_path, [arm for arm, _ in pairs], scenario={"arm": [asked for _, asked in pairs]}
    )
    found = table(page, "topologies")
    assert [cells[0].value for cells in found.rows] == [
        *("bucket", "bucket", "state", "legacy", "step1", "bloom")
    ]
    ratios = {str(cells[1].value): cells[6].value for cells in found.rows}
    assert ratios["bucket_avro"] == ratios["bucket_row"] == pytest.approx(1)
    assert ratios["state_avro"] == pytest.approx(2, rel=0.1)
    # writing file groups into records has a cost for a strategy
    assert ratios["bloom_row"] == pytest.approx(2, rel=0.1)
    side_by_side = table(page, "topology-ratios")
    assert [column.key for column in side_by_side.columns[2:]] == ["avro", "internal_row", "mean"]
    of_one_hop = {cells[0].value: [cell.value for cell in cells[2:]] for cells in side_by_side.rows}
    assert of_one_hop["bucket"] == pytest.approx([1, 1, 1])
    # there is no mean of what only some strategies were measured by
    assert of_one_hop["state"] == [ratios["state_avro"], None, None]
    assert of_one_hop["legacy"] == [None, ratios["legacy_row"], None]
    gains = table(page, "topology-gains")
    # no other topology has both strategies
    assert [cells[0].value for cells in gains.rows] == ["bucket"]
    saved = float(gains.rows[0][3].value or 0)
    # the ladder's first step is of the same two arms
    assert saved == pytest.approx(1 - float(table(page, "ladder-steps").rows[0][2].value or 0))
    low, high = (int(figure) for figure in gains.rows[0][3].note.removesuffix(" %").split(" to "))
    assert low <= round(100 * saved) <= high
    (steps,) = [b for b in section(page, "topologies").blocks if isinstance(b, Figure)]
    assert steps.description.index("legacy · legacy_row") < steps.description.index("step1")


def test_a_slow_round_is_no_part_of_what_a_topology_costs(tmp_path: Path) -> None:
    once, pairs = made_up.AVRO, [travelling("bucket_avro", made_up.AVRO, "bucket")]
    twice = replace(once, serde_us=tuple(2 * us for us in once.serde_us), fails_in=(2,))
    pairs.append(travelling("state_avro", twice, "state"))
    page = page_of(
        tmp_path,
        [arm for arm, _ in pairs],
        scenario={"arm": [asked for _, asked in pairs]},
        rounds=2,
        noise=0.0,
        drifting_round=3,
    )
    ratios = {cells[0].value: cells[2] for cells in table(page, "topology-ratios").rows}
    # the only round that it ended was slow, for the other arm too
    assert ratios["state"].value == pytest.approx(2)
    assert not ratios["state"].note  # a single round has no interval


def test_arms_that_travel_alike_have_no_section_of_topologies(ladder: Page) -> None:
    assert not [one for one in page_names(ladder) if one in ("topologies", "merging")]


def page_names(page: Page) -> list[str]:
    return [one.name for one in page.sections]


def test_what_merging_costs_is_told_where_arms_differ_in_it(tmp_path: Path) -> None:
    arms = [made_up.ARROW, replace(made_up.ARROW, name="arrow_by_commit")]
    asked = [{"name": "arrow"}, {"name": "arrow_by_commit", "changes": "merging"}]
    page = page_of(tmp_path, arms, scenario={"arm": asked})
    for cells in table(page, "merge-microseconds").rows:
        *parts, whole = (float(cell.value or 0) for cell in cells[1:])
        assert whole == pytest.approx(sum(parts))
        assert whole > 0
