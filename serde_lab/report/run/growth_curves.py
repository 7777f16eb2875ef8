"""Shows how cost grows along a sweep: seconds over the swept value, the fitted curve, and memory."""

from __future__ import annotations

from collections.abc import Sequence

from serde_lab.analysis.growth import MOST_EXPONENT, Growth, exponent, values_of
from serde_lab.analysis.rounding import text as rounded_text
from serde_lab.analysis.run_values import RunValues
from serde_lab.report import notation
from serde_lab.report.page import MISSING, Cell, Column, Figure, Section, Sentence, Table
from serde_lab.report.plots.drawings import Line, Lines
from serde_lab.report.plots.palette import line_role


def growth_section(facts: RunValues) -> Section | None:
    """The section, or None for a run without a sweep."""
    found = facts.derived.growth
    timed = [one for one in found if one.points]
    if not timed:
        return None
    lead = Sentence(
        "The curve is a + b n^k by least squares of relative errors, a and b not negative. a is the"
        f" fixed cost of a commit; k up to {MOST_EXPONENT:g} counts as linear growth.",
        "muted",
    )
    blocks = (lead, _figure(timed), growth_table(found), _memory(timed))
    return Section("growth", "How cost grows", blocks)


def growth_headline(facts: RunValues) -> tuple[str, str, tuple[Sentence, ...]] | None:
    """The highest k of all arms; None for a run without a sweep, or without a curve."""
    fitted = [one for one in facts.derived.growth if one.fit is not None]
    if not fitted:
        return None
    worst = max(fitted, key=lambda one: one.fit.k if one.fit else 0.0)
    sentences = tuple(
        Sentence(
            f"{notation.named(one.arm)}: k = {exponent(one.fit)}, the last step grows"
            f" {rounded_text('ratio', one.last_step)} times (limit"
            f" {rounded_text('ratio', one.most_last_step)}): {one.verdict}.",
            "good" if one.is_straight and one.fits_memory is not False else "warn",
        )
        for one in fitted
    )
    about = f"the exponent k of {notation.named(worst.arm)}, the greatest of all arms, along {worst.key}"
    return f"k = {rounded_text('ratio', worst.fit.k if worst.fit else None)}", about, sentences


def _figure(found: Sequence[Growth]) -> Figure:
    lines = [
        Line(
            one.arm,
            line_role(place),
            tuple((point.value, point.seconds) for point in one.points),
        )
        for place, one in enumerate(found)
    ]
    first, last = found[0].points[0], found[0].points[-1]
    # starting at the largest run, where the fixed cost of a commit is negligible
    straight = ((first.value, last.seconds * first.value / last.value), (last.value, last.seconds))
    exponents = "; ".join(
        f"{one.arm} from {notation.seconds(one.points[0].seconds)} to"
        f" {notation.seconds(one.points[-1].seconds)}, k {exponent(one.fit)}"
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
        Column("k", "k", about="seconds = a + b n^k, with its standard error"),
        Column("last_step", "last step", about="growth of seconds in the last step, and its limit"),
        Column("verdict", "verdict", numeric=False),
    )
    return Table(
        "growth",
        "Seconds at each value, the exponent of the curve through them, and the last step",
        columns,
        tuple(_row(one, values) for one in found),
    )


def _row(one: Growth, values: Sequence[float]) -> tuple[Cell, ...]:
    seconds = {point.value: point.seconds for point in one.points}
    step = f"{rounded_text('ratio', one.last_step)} of {rounded_text('ratio', one.most_last_step)}"
    sound = one.is_straight and one.fits_memory is not False
    return (
        Cell(one.arm, one.arm, header=True),
        *(Cell(rounded_text("seconds", seconds.get(v)), seconds.get(v)) for v in values),
        Cell(exponent(one.fit), one.fit.k if one.fit else None),
        Cell(step, one.last_step),
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
