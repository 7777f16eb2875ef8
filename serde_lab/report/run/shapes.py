"""Shows how cost moves with a sweep's value, or with the shape of the rows.

Of a sweep: seconds over the swept value, the fitted curve, and memory. Of shapes: small multiples, a table,
changed places.
"""

from __future__ import annotations

from collections.abc import Sequence

from serde_lab.analysis.growth import MOST_EXPONENT, Growth, shown_step, values_of, with_interval
from serde_lab.analysis.ratios import Ratio
from serde_lab.analysis.rounding import text as rounded_text
from serde_lab.analysis.run_values import RunValues
from serde_lab.analysis.shapes import MOST_TIMES, ShapeCost, ShapeCosts
from serde_lab.report import notation
from serde_lab.report.page import (
    MISSING,
    Cell,
    Column,
    Figure,
    Points,
    Section,
    Sentence,
    Table,
    Tone,
    ratio_cell,
)
from serde_lab.report.plots.drawings import Line, Lines, Multiples, SmallPanel, lines_of
from serde_lab.report.plots.palette import line_role


def growth_section(facts: RunValues) -> Section | None:
    """The section, or None for a run without a sweep."""
    found = facts.derived.growth
    timed = [one for one in found if one.points]
    if not timed:
        return None
    lead = Sentence(
        "The curve is a + b n^k by least squares of relative errors, a and b not negative. a is the"
        f" fixed cost of a commit. Growth is linear if the 95 % interval of k ends by {MOST_EXPONENT:g}, and"
        " that of the last step by its limit; it is more than linear if one of the two begins above.",
        "muted",
    )
    blocks = (lead, _growth_figure(timed), growth_table(found), _memory(timed))
    return Section("growth", "How cost grows", blocks)


def growth_headline(facts: RunValues) -> tuple[str, str, tuple[Sentence, ...]] | None:
    """The highest k of all arms; None for a run without a sweep, or without a curve."""
    fitted = [one for one in facts.derived.growth if one.fit is not None]
    if not fitted:
        return None
    worst = max(fitted, key=lambda one: one.fit.k if one.fit else 0.0)
    sentences = tuple(
        Sentence(
            f"{notation.named(one.arm)}: k = {with_interval(one.k)}, last step {shown_step(one)}:"
            f" {one.verdict}.",
            "good" if one.is_straight and one.fits_memory is not False else "warn",
        )
        for one in fitted
    )
    about = f"the exponent k of {notation.named(worst.arm)}, the greatest of all arms, along {worst.key}"
    return f"k = {worst.k.text if worst.k else notation.NOTHING}", about, sentences


def _growth_figure(found: Sequence[Growth]) -> Figure:
    lines = lines_of(
        {one.arm: [(point.value, point.seconds) for point in one.points] for one in found}
    )
    first, last = found[0].points[0], found[0].points[-1]
    # starting at the largest run, where the fixed cost of a commit is negligible
    straight = ((first.value, last.seconds * first.value / last.value), (last.value, last.seconds))
    exponents = "; ".join(
        f"{one.arm} from {notation.seconds(one.points[0].seconds)} to"
        f" {notation.seconds(one.points[-1].seconds)}, k {with_interval(one.k)}"
        for one in found
    )
    return Figure(
        name="growth",
        title="Seconds along the sweep",
        description=f"Lines, both axes logarithmic: {exponents}. The line of proportional growth"
        f" ends at the last point of {found[0].arm}.",
        drawing=Lines(
            x_axis=found[0].key,
            y_axis="seconds end to end, median of rounds",
            lines=(*lines, Line("in proportion", "muted", straight)),
            logarithmic=True,
            x_logarithmic=True,
        ),
    )


def growth_table(found: Sequence[Growth]) -> Table:
    """Every arm's seconds at each value, its exponent and last step, and the verdict on them."""
    values = values_of(found)
    columns = (
        Column("arm", "arm", numeric=False),
        *(Column(f"seconds_{value:g}", f"at {value:g}", unit="s") for value in values),
        Column("k", "k", about="seconds = a + b n^k, with its 95 % interval"),
        Column(
            "last_step",
            "last step",
            about="growth of seconds, with its 95 % interval, and its limit",
        ),
        Column("verdict", "verdict", numeric=False),
    )
    return Table(
        "growth",
        "Seconds at each value, the exponent of the curve through them, and the last step",
        columns,
        tuple(_growth_row(one, values) for one in found),
    )


def _growth_row(one: Growth, values: Sequence[float]) -> tuple[Cell, ...]:
    seconds = {point.value: point.seconds for point in one.points}
    sound = one.is_straight and one.fits_memory is not False
    return (
        Cell(one.arm, one.arm, header=True),
        *(Cell(rounded_text("seconds", seconds.get(v)), seconds.get(v)) for v in values),
        Cell(with_interval(one.k), one.fit.k if one.fit else None),
        Cell(shown_step(one), one.last_step.value if one.last_step else None),
        Cell(one.verdict, one.verdict, tone="good" if sound else "warn"),
    )


def _memory(found: Sequence[Growth]) -> Table:
    columns = (
        Column("arm", "arm", numeric=False),
        Column("value", found[0].key),
        Column("rows", "rows"),
        Column("peak_worker_rss_bytes", "peak worker"),
        Column("worker_memory_bytes", "worker_memory_mb"),
    )
    rows = tuple(
        (
            Cell(one.arm, one.arm, header=True),
            Cell(f"{point.value:g}", point.value),
            Cell(notation.count(point.rows), point.rows),
            _within(point.peak_worker_rss_bytes, one.worker_memory_bytes),
            Cell(notation.size(one.worker_memory_bytes), one.worker_memory_bytes),
        )
        for one in found
        for point in one.points
    )
    caption = "Peak memory of one worker at each value, and its limit"
    return Table("growth-memory", caption, columns, rows)


def _within(peak: float | None, limit: int) -> Cell:
    if peak is None:
        return MISSING
    return Cell(notation.size(peak), peak, tone="good" if peak <= limit else "bad")


_MOST_NAMED = 3


def shapes_section(facts: RunValues) -> Section | None:
    """The section, or None for a run without `[shapes]`, or without a timing to compare."""
    found = facts.derived.shapes
    if found is None or not found.costs:
        return None
    lead = Sentence(
        "One factor at a time differs from the middle. A cost is seconds end to end, divided by the values or"
        " by the bytes of the commit's rows in memory, whichever makes it grow less; the middle is 1. The"
        " fixed cost of a commit counts. Intervals are Welch's on the logarithms of the rounds.",
        "muted",
    )
    absent = notation.listed([notation.named(arm) for arm in found.missing])
    missing = Sentence(
        f"Without a timing in the middle, to which costs are relative: {absent}.",
        "bad",
    )
    return Section.of(
        "shapes",
        "What the shape of the rows costs",
        lead,
        missing if found.missing else None,
        _figure(found),
        rule_table(found),
        _changes(found),
        shapes_table(found),
    )


def shapes_headline(facts: RunValues) -> tuple[str, str, tuple[Sentence, ...]] | None:
    """The greatest cost relative to the middle; None for a run without `[shapes]`, or without a timing."""
    found = facts.derived.shapes
    worst = None if found is None else found.worst
    if found is None or worst is None:
        return None
    about = (
        f"what a {worst.unit} costs {notation.named(worst.arm)} at {_at(worst)}, relative to the middle: the"
        " most of all arms and factors"
    )
    above = sorted(
        (one for one in found.costs if one.verdict == "more than twice"),
        key=lambda one: -one.kinder.value,
    )
    said = (
        "No arm costs more than twice as much as in the middle, by value or by byte, with its whole interval."
        if not above
        else f"{notation.plural(len(above), 'point')} of an arm cost{'s' if len(above) == 1 else ''} more"
        " than twice as much as in the middle with the whole interval, by value and by byte:"
        f" {_named(above)}."
    )
    moved = (
        f"Two arms change places in {notation.plural(len(found.changed), 'case')}; {_chance(found)}."
        if found.changed
        else "No two arms change places with any factor, as far as 95 % intervals tell."
    )
    return (
        f"{worst.kinder.text}×",
        about,
        (Sentence(said, "warn" if above else "good"), Sentence(moved)),
    )


def _named(above: list[ShapeCost]) -> str:
    named = [f"{notation.named(one.arm)} at {_at(one)} ({one.kinder.text} times)" for one in above]
    rest = len(named) - _MOST_NAMED
    return notation.listed(named[:_MOST_NAMED] + ([f"{rest} more"] if rest > 0 else []))


def _at(one: ShapeCost) -> str:
    return f"{one.factor} {_value(one.value)}"


def _value(value: float | str) -> str:
    return value if isinstance(value, str) else f"{value:,.10g}"


def _figure(found: ShapeCosts) -> Figure:
    roles = {arm: line_role(place) for place, arm in enumerate(found.arms)}
    panels = tuple(
        SmallPanel(
            heading=factor,
            x_labels=tuple(_short(value) for value in values),
            lines=tuple(
                line
                for arm in found.arms
                if (line := _line(found, arm, factor, roles[arm])) is not None
            ),
        )
        for factor, values in found.factors.items()
    )
    worst = "; ".join(
        f"{factor}: at most {most.kinder.text} ({most.arm} at {_value(most.value)})"
        for factor in found.factors
        if (most := _most(found, factor)) is not None
    )
    return Figure(
        name="shapes",
        title="Cost by value or by byte, relative to the middle",
        description=f"One panel for each factor, a line for each arm, y logarithmic. {worst}.",
        drawing=Multiples(
            y_axis="cost by value or byte, middle = 1",
            panels=panels,
            legend=tuple((roles[arm], arm) for arm in found.arms),
            limit=MOST_TIMES,
        ),
    )


def _short(value: float | str) -> str:
    if isinstance(value, str) or value < 1000:
        return _value(value)
    return f"{value / 1e6:g}M" if value >= 1e6 else f"{value / 1e3:g}k"


def _most(found: ShapeCosts, factor: str) -> ShapeCost | None:
    of_factor = [one for one in found.costs if one.factor == factor]
    return max(of_factor, key=lambda one: one.kinder.value, default=None)


def _line(found: ShapeCosts, arm: str, factor: str, role: str) -> Line | None:
    """An arm along a factor, the middle with it; words are not joined."""
    costs = found.of(arm, factor)
    if not costs:
        return None
    values = found.factors[factor]
    points: list[tuple[float, float]] = []
    ranges: list[tuple[float, float]] = []
    for place, value in enumerate(values):
        one = costs.get(value)
        if one is None and value != found.middles[factor]:
            continue
        ratio = Ratio(1.0, 1.0, 1.0, 1) if one is None else one.kinder
        points.append((float(place), ratio.value))
        ranges.append((ratio.low or ratio.value, ratio.high or ratio.value))
    joined = not any(isinstance(value, str) for value in values)
    return Line(arm, role, tuple(points), joined, tuple(ranges))


def _chance(found: ShapeCosts) -> str:
    """What to hold against changed places: with many pairs some come about by chance."""
    by_chance = f"{found.by_chance:.1f}" if found.by_chance < 10 else f"{found.by_chance:.0f}"
    return (
        f"{notation.plural(found.compared, 'pair')} were compared, of which chance alone would let at most"
        f" about {by_chance} change"
    )


def _changes(found: ShapeCosts) -> Points | Sentence:
    if not found.changed:
        return Sentence("No two arms change places: no pair has intervals on either side of 1.")
    return Points(
        tuple(
            (
                f"{one.factor} {_value(one.value)}",
                f"{notation.named(one.first)} is faster in the middle ({one.in_the_middle.text} of"
                f" {notation.named(one.second)}'s seconds, 95 % interval {one.in_the_middle.range}), but"
                f" slower here ({one.at_the_value.text}, {one.at_the_value.range}).",
            )
            for one in found.changed
        )
    )  # fmt: skip


def rule_table(found: ShapeCosts) -> Table:
    """Whether each arm keeps to the rule at each extreme: at most twice the middle, by the kinder unit."""
    columns = (
        Column("extreme", "extreme", numeric=False),
        *(Column(arm, arm, about="cost relative to the middle") for arm in found.arms),
    )
    return Table(
        "shapes-rule",
        "At the extremes no arm should cost more than twice the middle, by value or by byte, whichever is"
        " kinder: seconds, with 95 % intervals, and what these say",
        columns,
        tuple(
            (
                Cell(f"{factor} {_value(value)}", f"{factor}-{value}", header=True),
                *(_ruled(found.of(arm, factor).get(value)) for arm in found.arms),
            )
            for factor, value in found.extremes
        ),
    )


def _ruled(one: ShapeCost | None) -> Cell:
    if one is None:
        return MISSING
    said = one.verdict or "at most twice"
    note = f"{one.kinder.range}: {said}" if one.kinder.range else said
    return Cell(one.kinder.text, one.kinder.value, note, _tone(one))


def _tone(one: ShapeCost) -> Tone:
    if not one.verdict:
        return "muted"
    return "bad" if one.verdict == "more than twice" else "warn"


def shapes_table(found: ShapeCosts) -> Table:
    """Every arm at every point: its seconds, and each cost relative to the middle with its interval."""
    columns = (
        Column("factor", "factor", numeric=False),
        Column("value", "value"),
        Column("arm", "arm", numeric=False),
        Column("seconds", "seconds", unit="s", about="end to end, median of rounds"),
        Column("per_row", "per row", about="seconds per row relative to the middle"),
        Column("per_value", "per value", about="an innermost value, nulls with them"),
        Column("per_byte", "per byte", about="of the rows as Arrow holds them"),
        Column("serde", "SerDe CPU", about="CPU time of SerDe, by value or by byte, the kinder"),
        Column("cpu", "CPU", about="CPU time of all processes, by value or by byte, the kinder"),
        Column("verdict", "by the kinder", numeric=False),
    )
    return Table(
        "shapes",
        "Cost at each point relative to the middle, with 95 % intervals",
        columns,
        tuple(_row(one) for one in found.costs),
    )


def _row(one: ShapeCost) -> tuple[Cell, ...]:
    return (
        Cell(one.factor, one.factor, header=True),
        Cell(_value(one.value), one.value),
        Cell(one.arm, one.arm),
        Cell(notation.seconds(one.seconds), one.seconds),
        *(
            ratio_cell(ratio, with_doubt=False)
            for ratio in (one.per_row, one.per_value, one.per_byte, one.serde, one.cpu)
        ),
        Cell(one.verdict or "at most twice", one.verdict, tone=_tone(one)),
    )
