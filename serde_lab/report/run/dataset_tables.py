"""Shows runs that write several tables: the seconds of each table, and those of queries over all of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import fsum
from statistics import fmean, geometric_mean, median

from serde_lab.analysis.ratios import Ratio, paired_ratio
from serde_lab.analysis.run_values import ArmValues, RunValues
from serde_lab.measure.metrics import OPEN_TABLES, query_metric
from serde_lab.report import notation
from serde_lab.report.page import MISSING, Cell, Column, Figure, Section, Sentence, Table
from serde_lab.report.plots.drawings import (
    Key,
    Panel,
    Point,
    PointRow,
    PointRows,
    StackedBars,
    stacked,
)
from serde_lab.report.plots.palette import line_role

ByRound = Mapping[int, float]


@dataclass(frozen=True, slots=True)
class _Writes:
    """Commits of one table with one operation: their numbers over all tables, and their rows."""

    table: str
    operation: str
    commits: tuple[int, ...]
    rows: int

    def seconds(self, arm: ArmValues) -> dict[int, float]:
        """Their seconds in each measured round that has them all."""
        found = {}
        for number, cell in arm.rounds.items():
            of = [one.metrics.get("seconds") for one in cell.commits if one.n in self.commits]
            known = [value for value in of if value is not None]
            if len(known) == len(self.commits):
                found[number] = fsum(known)
        return found


def tables_section(facts: RunValues) -> Section | None:
    """The section, or None for a run of one table without queries."""
    if not facts.run.header.settings.get("tables") or not facts.timed:
        return None
    writes, queries = _writes(facts), _queries(facts)
    several = len({one.table for one in writes}) > 1
    return Section.of(
        "tables",
        "Tables and queries" if queries else "Tables",
        _tables_figure(facts, writes) if several else None,
        _tables_table(facts, writes),
        _no_strategy_reads(facts) if queries else None,
        _queries_figure(facts, queries) if queries else None,
        _queries_table(facts, queries) if queries else None,
    )


def _writes(facts: RunValues) -> list[_Writes]:
    """The commits by table and operation, in the order in which a cell makes them."""
    settings = facts.run.header.settings
    found: dict[tuple[str, str], list[int]] = {}
    for number, table in settings["tables"].items():
        found.setdefault((table, settings["operations"][number]), []).append(int(number))
    return [
        _Writes(
            table,
            operation,
            tuple(numbers),
            sum(int(settings["rows"][str(n)] or 0) for n in numbers),
        )
        for (table, operation), numbers in found.items()
    ]


def _queries(facts: RunValues) -> list[str]:
    """The queries that some arm was asked, in the scenario's order."""
    asked = [str(name) for name in facts.content.get("queries") or ()]
    return [name for name in asked if any(arm.by_round(query_metric(name)) for arm in facts.timed)]


def _tables_figure(facts: RunValues, writes: Sequence[_Writes]) -> Figure:
    tables = list(dict.fromkeys(one.table for one in writes))
    roles = {table: line_role(place) for place, table in enumerate(tables)}
    bars = []
    for arm in facts.timed:
        parts = [
            (roles[table], table, fmean(whole.values()))
            for table in tables
            if (whole := _of_table(arm, [one for one in writes if one.table == table]))
        ]
        bars.append(stacked(arm.name, parts, notation.seconds))
    return Figure(
        name="tables",
        title="Seconds of writing, by table",
        description="Stacked bars, one for each arm: "
        + "; ".join(f"{bar.label} {bar.total}" for bar in bars)
        + ". Each part is the mean over rounds of one table's commits.",
        drawing=StackedBars(
            axis="mean seconds of rounds, all commits of a table",
            panels=(Panel("", tuple(bars)),),
            legend=(Key("", tuple((roles[table], table) for table in tables)),),
        ),
    )


def _of_table(arm: ArmValues, writes: Sequence[_Writes]) -> dict[int, float]:
    of = [one.seconds(arm) for one in writes]
    return {n: fsum(one[n] for one in of) for n in arm.rounds if all(n in one for one in of)}


def _tables_table(facts: RunValues, writes: Sequence[_Writes]) -> Table:
    columns = (
        Column("table", "table", numeric=False),
        Column("operation", "commits", numeric=False),
        Column("rows", "rows"),
        *_columns(facts),
    )
    rows = tuple(
        (
            Cell(one.table, one.table, header=True),
            Cell(_commits(one), one.operation),
            Cell(notation.short_number(one.rows), one.rows),
            *_cells(facts, {arm.name: one.seconds(arm) for arm in facts.timed}, fmean),
        )
        for one in writes
    )
    caption = f"Seconds of each table's commits: means of rounds{_ratios_words(facts)}"
    return Table("tables", caption, columns, rows, sortable=False)


def _commits(one: _Writes) -> str:
    times = len(one.commits)
    return one.operation if times == 1 else f"{notation.count(times)} × {one.operation}"


def _columns(facts: RunValues) -> list[Column]:
    return [Column(f"{arm.name}_s", arm.name) for arm in facts.timed]


def _ratios_words(facts: RunValues) -> str:
    if facts.reference is None or len(facts.timed) < 2:
        return ""
    of = facts.reference.name
    return f", below them the ratio to {of} with its 95 % interval"


def _cells(
    facts: RunValues,
    seconds: Mapping[str, ByRound],
    middle_of: Callable[[Iterable[float]], float] = median,
) -> list[Cell]:
    """A cell for each arm: the middle of its rounds, and the ratio to the reference."""
    reference = facts.reference.name if facts.reference is not None else ""
    cells = []
    for arm in facts.timed:
        own = seconds[arm.name]
        if not own:
            cells.append(MISSING)
            continue
        ratio = None
        if arm.name != reference:
            ratio = paired_ratio(own, seconds.get(reference, {}))
        middle = middle_of(own.values())
        cells.append(Cell(notation.seconds(middle), middle, _ratio_words(ratio)))
    return cells


def _ratio_words(ratio: Ratio | None) -> str:
    if ratio is None:
        return ""
    return f"{ratio.text}× ({ratio.range})" if ratio.range else f"{ratio.text}×"


def _no_strategy_reads(facts: RunValues) -> Sentence:
    opened = [
        f"{notation.named(arm.name)} {notation.seconds(median(values.values()))}"
        for arm in facts.timed
        if (values := arm.by_round(OPEN_TABLES))
    ]
    return Sentence(
        "Queries run after the commits, outside their clock. No strategy takes part in reading: Spark reads"
        " the base files, which have the same format in all arms, and the lab's reader merges log files into"
        " them where there are any. So a ratio that is surely not 1 points to"
        " the files, or to what the arm left behind in the session. Opening all tables, before the first"
        f" query, takes {notation.listed(opened)}.",
        "muted",
    )


def _queries_table(facts: RunValues, queries: Sequence[str]) -> Table:
    columns = (Column("query", "query", numeric=False), *_columns(facts))
    rows = [
        (
            Cell(name.upper(), name, header=True),
            *_cells(facts, {arm.name: arm.by_round(query_metric(name)) for arm in facts.timed}),
        )
        for name in queries
    ]
    whole = {arm.name: _geometric_means(arm, queries) for arm in facts.timed}
    rows.append((Cell("geometric mean", "mean", header=True), *_cells(facts, whole)))
    caption = f"Seconds of each query: medians of rounds{_ratios_words(facts)}"
    return Table("queries", caption, columns, tuple(rows), sortable=False)


def _geometric_means(arm: ArmValues, queries: Sequence[str]) -> dict[int, float]:
    """The geometric mean over all queries, in each round that has them all."""
    of = [arm.by_round(query_metric(name)) for name in queries]
    return {
        n: geometric_mean(one[n] for one in of)
        for n in arm.rounds
        if all(one.get(n, 0) > 0 for one in of)
    }


def _queries_figure(facts: RunValues, queries: Sequence[str]) -> Figure | None:
    """Ratios to the reference: a point for each query, and the mean of all with its interval."""
    reference = facts.reference
    if reference is None or reference.seconds is None:
        return None
    rows = []
    for arm in facts.timed:
        mean = paired_ratio(_geometric_means(arm, queries), _geometric_means(reference, queries))
        if arm is reference or mean is None:
            continue
        points = tuple(
            Point(of.value, "measured", f"{arm.name}, {name.upper()}: {_ratio_words(of)}")
            for name in queries
            if (
                of := paired_ratio(
                    arm.by_round(query_metric(name)), reference.by_round(query_metric(name))
                )
            )
        )
        note = _ratio_words(mean)
        rows.append(PointRow(arm.name, points, mean.value, mean.low, mean.high, note))
    if not rows:
        return None
    return Figure(
        name="queries",
        title=f"Queries: seconds over those of {reference.name}",
        description="A point for each query, the geometric mean of all as an upright line, and its 95 %"
        " interval: " + "; ".join(f"{row.label} {row.note}" for row in rows) + ".",
        drawing=PointRows(
            axis=f"ratio to {reference.name}; below 1 is faster",
            rows=tuple(rows),
            from_zero=False,
            line=1.0,
            a_point="a query",
        ),
    )
