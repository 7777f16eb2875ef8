"""Shows what single changes give: the factors of a factorial run, and the candidates of a search.

Of a factorial run: what format, columns and framing each give, and what only together. Of a search: its
outcome with the settings of each side, and every candidate with what became of it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
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
from serde_lab.analysis.search import CandidateRatios, SearchedSide, Trial
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
    text_columns,
)
from serde_lab.report.plots.drawings import Lines, lines_of

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
        *_misfits(factorial.effects),
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


def _misfits(found: Sequence[FactorEffects]) -> Iterator[Sentence]:
    """Names the metrics whose cells contradict the model."""
    for one in found:
        if not one.fits and one.lack_of_fit is not None:
            yield Sentence(
                f"The model does not fit the {METRICS[one.metric]} (lack of fit, p ="
                f" {one.lack_of_fit:.1g}): there three factors together have an effect of their own. Its"
                " ratios are off where that effect is large; the paired rounds of two arms are right."
            )


def _figure(facts: RunValues, cells: Mapping[str, Combination]) -> Figure:
    series: dict[str, list[tuple[float, float]]] = {}
    for arm in facts.timed:
        cpu_s = arm.per_record("serde_cpu_s")
        if arm.name in cells and cpu_s:
            cell = cells[arm.name]
            by = "by row" if cell.execution == ROW else "by column"
            points = series.setdefault(f"{cell.representation} {by}", [])
            points.append((float(cell.rows_per_frame), 1e6 * cpu_s))
    lines = lines_of({label: sorted(points) for label, points in series.items()})
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
            lines=lines,
            logarithmic=True,
            x_logarithmic=True,
        ),
    )


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
    ratio = effect.as_ratio
    tone: Tone = "" if ratio.decided else "muted"
    return replace(ratio_cell(ratio, with_doubt=False), tone=tone)


def search_section(facts: RunValues) -> Section | None:
    """The section, or None for a run without a search."""
    sides = facts.derived.search
    if not sides:
        return None
    lead = Sentence(
        "Ratios to the start, below 1 where the candidate is better: geometric means over the rounds in which"
        " both were measured, with 95 % intervals, of seconds and of the CPU time of all processes. A"
        " candidate wins if one interval lies below 1 and none above. The winners of all factors are"
        " combined, and the combination is compared with its start in rounds of its own.",
        "muted",
    )
    return Section("search", "The search", (lead, _outcome(sides), _trials(sides)))


def search_headline(facts: RunValues) -> tuple[str, str, tuple[Sentence, ...]] | None:
    """How many candidates won, and the verdict on each side's combination; None without a search."""
    sides = facts.derived.search
    if not sides:
        return None
    won = [t for side in sides if side.ended for t in side.trials if t.fate and t.fate.stays]
    tried = sum(len(side.trials) for side in sides)
    sentences = tuple(
        Sentence(f"{notation.named(side.start)}: {side.verdict}.", _tone(side)) for side in sides
    )
    about = f"of {notation.plural(tried, 'candidate')} won against the start"
    return notation.count(len(won)), about, sentences


def _tone(side: SearchedSide) -> Tone:
    if side.confirmed:
        return "good"
    return "" if side.ended and not side.settings else "warn"


def _outcome(sides: Sequence[SearchedSide]) -> Table:
    columns = (
        *text_columns("arm"),
        Column("settings", "settings of the combination", numeric=False),
        Column("rounds", "rounds"),
        Column("seconds", "seconds", about="the combination over the start"),
        Column("cpu", "CPU", about="of all processes, the combination over the start"),
        Column("verdict", "verdict", numeric=False),
    )
    rows = tuple(
        (
            Cell(side.start, side.start, header=True),
            _settings(side.settings),
            Cell(notation.count(side.rounds), side.rounds),
            *_ratios(side.confirmation),
            Cell(side.verdict, side.verdict, tone=_tone(side)),
        )
        for side in sides
    )
    caption = "The settings that the search finds for each side, and their confirmation"
    return Table("search-outcome", caption, columns, rows, sortable=False)


def _trials(sides: Sequence[SearchedSide]) -> Table:
    columns = (
        *text_columns("candidate", "factor", "settings"),
        Column("rung", "rung", about="the last that it entered"),
        Column("rounds", "rounds"),
        Column("seconds", "seconds", about="over the start"),
        Column("cpu", "CPU", about="of all processes, over the start"),
        Column("fate", "what became of it", numeric=False),
    )
    rows = tuple(_trial(trial) for side in sides for trial in side.trials)
    caption = "Every candidate: its ratios to the start, and what became of it"
    return Table("search-trials", caption, columns, rows)


def _trial(trial: Trial) -> tuple[Cell, ...]:
    fate, tone = _fate(trial)
    return (
        Cell(trial.arm, trial.arm, header=True),
        Cell(trial.factor, trial.factor),
        _settings(trial.settings),
        Cell(notation.count(trial.rung), trial.rung),
        Cell(notation.count(trial.rounds), trial.rounds),
        *_ratios(trial.evidence),
        Cell(fate, fate, tone=tone),
    )


def _fate(trial: Trial) -> tuple[str, Tone]:
    if trial.fate is None:
        return "not decided yet", "warn"
    if not trial.fate.stays:
        return f"dropped: {trial.fate.why}", "muted"
    if trial.chosen:
        return "won, and is part of the combination", "good"
    return "won, but another candidate of its factor is better", ""


def _settings(settings: Mapping[str, str]) -> Cell:
    said = ", ".join(f"{key}={value}" for key, value in settings.items())
    return Cell(said or notation.NOTHING, said)


def _ratios(found: CandidateRatios | None) -> Iterator[Cell]:
    """Seconds and CPU, each with its interval."""
    for ratio in (None, None) if found is None else (found.wall, found.cpu):
        yield ratio_cell(ratio, with_doubt=False)
