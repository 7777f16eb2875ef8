"""Builds the page of a history: steps first, then a plot per metric with one line per arm.

A line is interrupted where levels must not be compared.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from shlex import quote
from typing import Any

from serde_lab.errors import RunError
from serde_lab.report import notation
from serde_lab.report.page import (
    Answer,
    Block,
    Cell,
    Column,
    Commands,
    Figure,
    Page,
    Section,
    Sentence,
    Table,
    text_columns,
    verdict_tone,
    warnings_or,
)
from serde_lab.report.plots.drawings import Line, Lines
from serde_lab.report.plots.palette import line_role

Document = Mapping[str, Any]


def history_page(document: Document) -> Page:
    """The page of a document of `history`. Raises RunError if it is not one."""
    try:
        scenario, runs = str(document["scenario"]), [str(run) for run in document["runs"]]
        series = list(document["series"])
        line = f"python -m serde_lab history {quote(scenario)}"
        sections = (
            _steps(series),
            *_figures(series, runs),
            _notes(document),
            _points(series),
            Section("remake", "Remake it", (Commands(((line, "this history"),)),)),
        )
        return Page(
            kind="history",
            title=f"{scenario}: history",
            facts=(
                ("scenario", scenario),
                ("runs", notation.count(len(runs))),
                ("first", runs[0] if runs else notation.NOTHING),
                ("last", runs[-1] if runs else notation.NOTHING),
            ),
            answer=_answer(scenario, series, runs),
            sections=sections,
            data=document,
        )
    except (KeyError, TypeError, AttributeError) as exc:
        raise RunError(f"this is no document of a history: {exc!r}") from exc


def _all_steps(series: Sequence[Document]) -> list[tuple[Document, Document]]:
    return [(one, step) for one in series for step in one["steps"]]


def _quantity(one: Document) -> str:
    return f"{one['metric']} {one['phase']}" if one.get("phase") else str(one["metric"])


def _answer(scenario: str, series: Sequence[Document], runs: Sequence[str]) -> Answer:
    steps = _all_steps(series)
    unknown = [
        (one, step)
        for one, step in steps
        if step["acknowledged"] is None and step["verdict"] == "slower"
    ]
    sentences = [
        Sentence(
            f"{notation.named(one['arm'])}, {_quantity(one)}: worse since {step['run']},"
            f" {notation.as_decided(step['before'])} to {notation.as_decided(step['after'])}"
            f" {_unit(one)}(ratio {notation.decided('ratio', step['ratio'])}), not acknowledged.",
            "bad",
        )
        for one, step in unknown
    ]
    if not unknown:
        sentences.append(Sentence("Every step for the worse is acknowledged.", "good"))
    return Answer(
        question=f"What has changed in {scenario} over {notation.plural(len(runs), 'run')}?",
        figure=notation.plural(len(steps), "step"),
        figure_about=f"{notation.count(len(unknown))} of them for the worse and not acknowledged",
        sentences=tuple(sentences),
    )


def _unit(one: Document) -> str:
    unit = one.get("unit") or ""
    return "" if unit in ("", "1") else f"{unit} "


def _steps(series: Sequence[Document]) -> Section:
    columns = (
        *text_columns("arm", "quantity"),
        Column("run", "since run", numeric=False),
        Column("verdict", "verdict", numeric=False),
        Column("before", "before"),
        Column("after", "after"),
        Column("ratio", "ratio"),
        Column("acknowledged", "acknowledged", numeric=False),
    )
    rows = tuple(_step_row(one, step) for one, step in _all_steps(series))
    block: Block = (
        Table("steps", "Steps, with their acknowledgements", columns, rows)
        if rows
        else Sentence("No level has changed.", "good")
    )
    return Section("steps", "Steps", (block,))


def _step_row(one: Document, step: Document) -> tuple[Cell, ...]:
    known = step["acknowledged"]
    return (
        Cell(one["arm"], one["arm"], header=True),
        Cell(_quantity(one)),
        Cell(step["run"]),
        Cell(step["verdict"], tone=verdict_tone(step["verdict"])),
        Cell(notation.as_decided(step["before"]), step["before"]),
        Cell(notation.as_decided(step["after"]), step["after"]),
        Cell(notation.decided("ratio", step["ratio"]), step["ratio"]),
        Cell("not acknowledged", "", tone="warn")
        if known is None
        else Cell(f"by {known.get('by')}", known.get("by"), str(known.get("why") or "")),
    )


def _figures(series: Sequence[Document], runs: Sequence[str]) -> Iterator[Section]:
    """A plot of every quantity that changed; one sentence names those that never did."""
    quantities: dict[str, list[Document]] = {}
    for one in series:
        quantities.setdefault(_quantity(one), []).append(one)
    blocks: list[Block] = []
    still = []
    for name, members in quantities.items():
        if any(len({point["value"] for point in one["points"]}) > 1 for one in members):
            blocks.append(_figure(name, members, runs))
        else:
            still.append(name)
    if still:
        blocks.append(Sentence(f"Never changed: {notation.listed(still)}.", "muted"))
    if blocks:
        yield Section("series", "Over time", tuple(blocks))


def _figure(name: str, series: Sequence[Document], runs: Sequence[str]) -> Figure:
    place = {run: i for i, run in enumerate(runs)}
    lines: list[Line] = []
    for i, one in enumerate(series):
        stretches: dict[int, list[tuple[float, float]]] = {}
        for point in one["points"]:
            stretches.setdefault(point["stretch"], []).append(
                (float(place[point["run"]]), float(point["value"]))
            )
        for n, points in enumerate(stretches.values(), 1):
            label = str(one["arm"]) if n == len(stretches) else ""
            lines.append(Line(label, line_role(i), tuple(points)))
    marks = [
        (float(place[step["run"]]), f"{one['arm']}: {step['verdict']}")
        for one in series
        for step in one["steps"]
    ]
    unit = _unit(series[0]).strip()
    return Figure(
        name="history-" + "".join(c if c.isalnum() else "-" for c in name),
        title=name,
        description="Lines over runs, one for each arm: "
        + "; ".join(
            f"{one['arm']} from {notation.as_decided(one['points'][0]['value'])}"
            f" to {notation.as_decided(one['points'][-1]['value'])} {unit}".rstrip()
            for one in series
        )
        + f". {notation.plural(len(marks), 'step')}.",
        drawing=Lines(
            x_axis="runs, oldest first; lines break where results are not comparable",
            y_axis=f"{name}, {unit}" if unit else name,
            lines=tuple(lines),
            x_labels=tuple(runs),
            marks=tuple(marks),
        ),
    )


def _notes(document: Document) -> Section:
    points = [
        (
            "Not comparable with earlier runs",
            f"{notation.named(one['arm'])}, {_quantity(one)}, from {b['run']}: {b['why']}.",
        )
        for one in document["series"]
        for b in one["breaks"]
    ]
    points += [("Left out", str(message)) for message in document["messages"]]
    block = warnings_or(points, "Every run is shown, and all are comparable.")
    return Section("doubts", "Reasons to doubt the history", (block,))


def _points(series: Sequence[Document]) -> Section:
    columns = (
        *text_columns("arm", "quantity", "run"),
        Column("started_at", "started", numeric=False),
        Column("median", "median"),
        Column("rounds", "rounds"),
        Column("stretch", "stretch"),
    )
    rows = tuple(
        (
            Cell(one["arm"], one["arm"], header=True),
            Cell(_quantity(one)),
            Cell(point["run"]),
            Cell(point["started_at"]),
            Cell(notation.as_decided(point["value"]), point["value"]),
            Cell(str(len(point["values"])), len(point["values"])),
            Cell(str(point["stretch"]), point["stretch"]),
        )
        for one in series
        for point in one["points"]
    )
    folded = f"{notation.plural(len(rows), 'median')} of runs"
    table = Table("raw-values", "The median of every run", columns, rows, folded=folded)
    return Section("raw", "Raw values", (table,))
