"""Builds the page of a comparison: first how many cells are worse, then every verdict with its evidence."""

from __future__ import annotations

from collections.abc import Iterator

from serde_lab.report import notation
from serde_lab.report.comparison_document import (
    ComparedRow,
    ComparedSides,
    Document,
    read_comparison,
)
from serde_lab.report.page import (
    Answer,
    Block,
    Cell,
    Column,
    Commands,
    Figure,
    Page,
    Points,
    Section,
    Sentence,
    Table,
    verdict_tone,
)
from serde_lab.report.plots.drawings import PointRow, PointRows

_MOST_NAMED = 5
"""The answer names at most so many bad rows one by one."""

_WORST_FIRST = (
    "failed",
    "wrong answer",
    "unchecked",
    "missing",
    "slower",
    "regression",
    "not comparable",
    "inconclusive",
    "insufficient",
    "undecided",
    "noise",
    "faster",
    "passed",
    "same",
)
_BAD = ("failed", "wrong answer", "unchecked", "missing", "slower", "regression")
_UNMOVED = ("same", "passed")


def comparison_page(document: Document) -> Page:
    """The page of a document of `compare` or `gate`. Raises RunError if it is neither."""
    sides = read_comparison(document)
    sections = (
        _findings(sides),
        _verdicts(sides),
        _ratios(sides),
        _reasons(sides),
        _doubts(sides),
        _values(sides),
        _remake(sides),
    )
    gated = sides.exit_status is not None
    return Page(
        kind="comparison",
        title=f"{sides.scenario}: {'gate' if gated else 'comparison'}",
        facts=(("before", sides.before), ("after", sides.after), ("scenario", sides.scenario)),
        answer=_answer(sides),
        sections=tuple(section for section in sections if section is not None),
        data=document,
    )


def _answer(sides: ComparedSides) -> Answer:
    counts = sides.counts
    question = f"Is {sides.after} worse than {sides.before}?"
    sentences = tuple(_sentences(sides))
    if sides.exit_status is not None:
        found = [f"{notation.count(n)} {level}" for level, n in counts.items() if n] or ["nothing"]
        judged = f"of {notation.count(sum(counts.values()))} judged"
        return Answer(question, found[0], ", ".join([*found[1:], judged]), sentences)
    worse = counts.get("worse", 0)
    return Answer(
        question=question,
        figure=f"{notation.count(worse)} worse",
        figure_about=(
            f"{notation.count(counts.get('better', 0))} better,"
            f" {notation.count(counts.get('undecided', 0))} undecided, of"
            f" {notation.count(counts.get('compared', 0))} compared"
        ),
        sentences=sentences,
    )


def _sentences(sides: ComparedSides) -> Iterator[Sentence]:
    if sides.exit_status is not None:
        yield _gate_sentence(sides.exit_status)
    if sides.exit_status is None and not sides.counts.get("compared"):
        yield Sentence("Nothing was compared, so this is no pass.", "bad")
    bad = [row for row in sides.rows if row.verdict in _BAD]
    for row in bad[:_MOST_NAMED]:
        times = "" if row.ratio is None else f", {notation.decided('ratio', row.ratio)} times"
        yield Sentence(
            f"{notation.named(row.arm)}, {row.quantity}: {row.verdict}{times} ({row.because}).",
            "bad",
        )
    if len(bad) > _MOST_NAMED:
        yield Sentence(
            f"And {notation.count(len(bad) - _MOST_NAMED)} more, see the verdicts.", "bad"
        )
    means = [f"{name} {notation.decided('ratio', mean)}" for name, mean in sides.means.items()]
    if means:
        yield Sentence(f"Geometric mean of the ratios: {notation.listed(means)}.")


def _gate_sentence(exit_status: int) -> Sentence:
    words = {
        0: Sentence("The gate passed.", "good"),
        3: Sentence("The gate failed: a regression (exit status 3).", "bad"),
        4: Sentence("The gate failed: a wrong answer (exit status 4).", "bad"),
        5: Sentence("The gate cannot decide (exit status 5).", "warn"),
    }
    otherwise = Sentence(f"The gate could not judge (exit status {exit_status}).", "bad")
    return words.get(exit_status, otherwise)


def _findings(sides: ComparedSides) -> Section | None:
    if not sides.findings:
        return None
    columns = (
        Column("level", "level", numeric=False),
        Column("arm", "arm", numeric=False),
        Column("quantity", "quantity", numeric=False),
        Column("text", "finding", numeric=False),
    )
    rows = tuple(
        (
            Cell(str(one.get("level")), str(one.get("level")), header=True),
            Cell(str(one.get("arm") or notation.NOTHING)),
            Cell(str(one.get("quantity") or notation.NOTHING)),
            Cell(str(one.get("text"))),
        )
        for one in sides.findings
    )
    table = Table("findings", "What the gate found", columns, rows)
    return Section("findings", "What the gate found", (table,))


_COLUMNS = (
    Column("arm", "arm", numeric=False),
    Column("quantity", "quantity", numeric=False),
    Column("verdict", "verdict", numeric=False),
    Column("ratio", "ratio", about="after over before"),
    Column("before", "before"),
    Column("after", "after"),
    Column("rounds", "rounds"),
    Column("p", "p", about="after Holm's correction"),
    Column("floor", "noise floor"),
)


def _verdicts(sides: ComparedSides) -> Section:
    ranked = _worst_first(sides.rows)
    changed = tuple(_verdict_row(row) for row in ranked if row.verdict not in _UNMOVED)
    same = tuple(_verdict_row(row) for row in ranked if row.verdict in _UNMOVED)
    gated = sides.exit_status is not None
    alike, moved = ("passed", "did not pass") if gated else ("are the same", "are not the same")
    blocks: list[Block] = []
    if changed:
        caption = f"Compared cells that {moved}, the worst first"
        blocks.append(Table("verdicts", caption, _COLUMNS, changed))
    if same:
        folded = f"{notation.plural(len(same), 'cell')} that {alike}"
        caption = f"Compared cells that {alike}"
        blocks.append(Table("same", caption, _COLUMNS, same, folded=folded))
    return Section("verdicts", "Verdicts", tuple(blocks))


def _worst_first(rows: tuple[ComparedRow, ...]) -> list[ComparedRow]:
    rank = {verdict: i for i, verdict in enumerate(_WORST_FIRST)}
    return sorted(rows, key=lambda row: rank.get(row.verdict, 0))


def _verdict_row(row: ComparedRow) -> tuple[Cell, ...]:
    between = ""
    if row.low is not None and row.high is not None:
        between = f"{notation.decided('ratio', row.low)} to {notation.decided('ratio', row.high)}"
    counts = [str(len(side.values)) for side in (row.before, row.after) if side is not None]
    return (
        Cell(row.arm, row.arm, header=True),
        Cell(row.quantity, row.quantity),
        Cell(f"{row.mark} {row.verdict}".strip(), row.verdict, tone=verdict_tone(row.verdict)),
        Cell(notation.decided("ratio", row.ratio), row.ratio, between),
        _median(row.before.median if row.before else None, row.unit),
        _median(row.after.median if row.after else None, row.unit),
        Cell("+".join(counts) or notation.NOTHING),
        Cell(notation.decided("p", row.p), row.p),
        Cell(notation.decided("share", row.floor), row.floor),
    )


def _median(value: float | None, unit: str) -> Cell:
    text = notation.as_decided(value)
    return Cell(text if value is None or not unit else f"{text} {unit}", value)


def _ratios(sides: ComparedSides) -> Section | None:
    figures = ratio_figures(sides)
    return Section("ratios", "Ratios and their intervals", figures) if figures else None


def _reasons(sides: ComparedSides) -> Section:
    columns = (
        Column("arm", "arm", numeric=False),
        Column("quantity", "quantity", numeric=False),
        Column("verdict", "verdict", numeric=False),
        Column("because", "because", numeric=False),
        Column("evaluated", "evaluated", numeric=False),
    )
    rows = tuple(
        (
            Cell(row.arm, row.arm, header=True),
            Cell(row.quantity),
            Cell(row.verdict, tone=verdict_tone(row.verdict)),
            Cell(row.because, row.because, row.test),
            Cell("; ".join(text for text, _ in row.inequalities) or notation.NOTHING),
        )
        for row in _worst_first(sides.rows)
    )
    folded = f"The reasons of {notation.plural(len(rows), 'verdict')}"
    table = Table("reasons", "What each verdict rests on", columns, rows, folded=folded)
    return Section("reasons", "Why: the evaluated inequalities", (table,))


def _doubts(sides: ComparedSides) -> Section:
    points = [("Note", note) for note in sides.notes]
    points += [("Raised", text) for text in sides.raised]
    for row in sides.rows:
        for name, side in (("before", row.before), ("after", row.after)):
            if side is not None and side.outlying:
                rounds = notation.listed([str(number) for number in side.outlying])
                where = f"{notation.named(row.arm)}, {row.quantity}, {name}"
                points.append(("Outlier, kept", f"{where}: round {rounds}."))
    blocks: tuple[Block, ...] = (
        (Points(tuple(points), "warn"),)
        if points
        else (Sentence("This comparison shows no reason for doubt.", "good"),)
    )
    return Section("doubts", "Reasons to doubt the comparison", blocks)


def _values(sides: ComparedSides) -> Section:
    columns = (
        Column("arm", "arm", numeric=False),
        Column("quantity", "quantity", numeric=False),
        Column("side", "side", numeric=False),
        Column("round", "round"),
        Column("value", "value"),
    )
    rows = tuple(
        (
            Cell(row.arm, row.arm, header=True),
            Cell(row.quantity),
            Cell(name),
            Cell(str(number), number),
            Cell(f"{value:.10g}", value),
        )
        for row in sides.rows
        for name, side in (("before", row.before), ("after", row.after))
        if side is not None
        for number, value in side.values.items()
    )
    folded = f"{notation.plural(len(rows), 'value')} by round"
    table = Table("raw-values", "Every value of both sides", columns, rows, folded=folded)
    return Section("raw", "Raw values", (table,))


def _remake(sides: ComparedSides) -> Section:
    from shlex import quote

    pair = f"{quote(sides.before)} {quote(sides.after)}"
    line = f"python -m serde_lab compare {pair}"
    return Section("remake", "Remake it", (Commands(((line, "this comparison"),)),))


_MOST_ROWS = 40
"""A plot with more rows is unreadable; the table has all of them."""


def ratio_figures(sides: ComparedSides) -> tuple[Figure, ...]:
    """One figure per metric that has intervals."""
    by_metric: dict[str, list[ComparedRow]] = {}
    for row in sides.rows:
        if row.ratio is not None and row.low is not None and row.high is not None:
            by_metric.setdefault(row.metric, []).append(row)
    return tuple(_figure(metric, rows[:_MOST_ROWS]) for metric, rows in by_metric.items())


def _figure(metric: str, rows: list[ComparedRow]) -> Figure:
    drawn = tuple(
        PointRow(
            label=row.arm if row.quantity == metric else f"{row.arm}, {row.quantity}",
            points=(),
            middle=row.ratio,
            low=row.low,
            high=row.high,
            note=f"{notation.decided('ratio', row.ratio)} {row.verdict}",
        )
        for row in rows
    )
    return Figure(
        name=f"ratio-{metric.replace('.', '-').replace('_', '-')}",
        title=f"{metric}: after over before",
        description="Intervals, one for each row, compared with 1: "
        + "; ".join(
            f"{row.label} {row.note}, {notation.decided('ratio', row.low)} to"
            f" {notation.decided('ratio', row.high)}"
            for row in drawn
        )
        + ".",
        drawing=PointRows(
            axis="ratio, after over before; the dashed line is 1",
            rows=drawn,
            from_zero=False,
            line=1.0,
        ),
    )
