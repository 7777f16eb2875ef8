"""Shows a search: its outcome with the settings of each side, and every candidate with what became of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from serde_lab.analysis.run_values import RunValues
from serde_lab.analysis.search import CandidateRatios, SearchedSide, Trial
from serde_lab.report import notation
from serde_lab.report.page import (
    Cell,
    Column,
    Section,
    Sentence,
    Table,
    Tone,
    ratio_cell,
    text_columns,
)


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
