"""Shows what format, columns and framing each give in a factorial run, and what only together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from serde_lab.analysis.factor_effects import (
    METRICS,
    ROW,
    Combination,
    Effect,
    FactorEffects,
    not_estimated,
)
from serde_lab.analysis.run_values import RunValues
from serde_lab.report import notation
from serde_lab.report.page import (
    MISSING,
    Block,
    Cell,
    Column,
    Figure,
    Section,
    Sentence,
    Table,
    Tone,
    ratio_cell,
)
from serde_lab.report.plots.drawings import Line, Lines
from serde_lab.report.plots.palette import line_role

_GROUPS = {
    "format": "the format",
    "columns": "columns",
    "framing": "framing",
    "combination": "only their combination",
}


def effects_section(facts: RunValues) -> Section | None:
    """The section, or None for a run that is no factorial or has too few rounds."""
    factorial = facts.derived.factorial
    if factorial is None:
        return None
    blocks: tuple[Block, ...] = (
        _lead(factorial.effects),
        _figure(facts, factorial.combinations),
        _table(factorial.effects),
        *(Sentence(why, "muted") for why in not_estimated(factorial.combinations.values())),
    )
    return Section("factors", "What format, columns and framing give", blocks)


def _lead(found: Sequence[FactorEffects]) -> Sentence:
    one = found[0]
    noise = " and ".join(
        f"{notation.percent(effects.noise - 1)} of the {METRICS[effects.metric]}"
        for effects in found
    )
    return Sentence(
        f"Ratios with their 95 % intervals, below 1 where the change saves. They come from all {one.cells}"
        f" combinations in {notation.plural(one.rounds, 'round')}: a linear model of the logarithm, with"
        " every factor, every pair of factors, and the rounds as blocks. What it leaves unexplained in one"
        f" cell is {noise}.",
        "muted",
    )


def _figure(facts: RunValues, cells: Mapping[str, Combination]) -> Figure:
    points: dict[tuple[str, str], list[tuple[float, float]]] = {}
    for arm in facts.timed:
        cpu_s = arm.per_record("serde_cpu_s")
        if arm.name in cells and cpu_s:
            cell = cells[arm.name]
            series = points.setdefault((cell.representation, cell.execution), [])
            series.append((float(cell.rows_per_frame), 1e6 * cpu_s))
    lines = [
        Line(f"{name} {_by(execution)}", line_role(place), tuple(sorted(series)))
        for place, ((name, execution), series) in enumerate(points.items())
    ]
    ranges = "; ".join(
        f"{line.label} from {notation.number(line.points[0][1])} to"
        f" {notation.number(line.points[-1][1])} µs"
        for line in lines
    )
    return Figure(
        name="factors",
        title="SerDe CPU of a record, by representation, execution and framing",
        description=f"Lines, both axes logarithmic: {ranges}.",
        drawing=Lines(
            x_axis="records a frame",
            y_axis="µs of SerDe CPU a record, median of rounds",
            lines=tuple(lines),
            logarithmic=True,
            x_logarithmic=True,
        ),
    )


def _by(execution: str) -> str:
    return "by row" if execution == ROW else "by column"


def _table(found: Sequence[FactorEffects]) -> Table:
    columns = (
        Column("what", "what gives", numeric=False),
        Column("change", "change", numeric=False),
        *(Column(one.metric, METRICS[one.metric]) for one in found),
    )
    by_key = [{(e.group, e.change, e.where): e for e in one.effects} for one in found]
    rows = tuple(
        (
            Cell(_GROUPS[group], group),
            Cell(change, f"{change}, {where}", note=where, header=True),
            *(_cell(effects.get((group, change, where))) for effects in by_key),
        )
        for group, change, where in by_key[0]
    )
    caption = "Effects as ratios, with 95 % intervals"
    return Table("factors", caption, columns, rows, sortable=False)


def _cell(effect: Effect | None) -> Cell:
    if effect is None:
        return MISSING
    tone: Tone = "" if effect.is_seen else "muted"
    return replace(ratio_cell(effect.as_ratio, with_doubt=False), tone=tone)
