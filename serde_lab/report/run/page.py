"""Builds the page of one run: its sections in reading order."""

from __future__ import annotations

from serde_lab.report.page import Page, Section
from serde_lab.report.run.answer import answer
from serde_lab.report.run.arms import arms_section
from serde_lab.report.run.byte_counts import byte_section
from serde_lab.report.run.checks import checks_section, fairness_section
from serde_lab.report.run.codec import codec_section
from serde_lab.report.run.doubts import doubts_section
from serde_lab.report.run.facts import RunFacts, read_facts
from serde_lab.report.run.growth import growth_section
from serde_lab.report.run.ladder import ladder_section
from serde_lab.report.run.merging import merging_section
from serde_lab.report.run.peers import peers_section
from serde_lab.report.run.prediction import prediction_section
from serde_lab.report.run.provenance import commands_section, environment_section, raw_section
from serde_lab.report.run.rfc84 import rfc84_section
from serde_lab.report.run.rounds import rounds_section
from serde_lab.report.run.time_split import time_section
from serde_lab.report.run.topologies import topologies_section
from serde_lab.runs.model import Run
from serde_lab.runs.plain_text import plain

_MOST_PHASE_VALUES = 24_000
"""With more phase values a page would exceed its limit of two megabytes."""


def run_page(run: Run) -> Page:
    """The page of a run."""
    facts = read_facts(run)
    phase_values = sum(sample.phase is not None for cell in run.cells for sample in cell.samples)
    sections = (
        *_figures(facts),
        checks_section(facts),
        fairness_section(facts),
        doubts_section(facts),
        environment_section(facts),
        raw_section(facts, phase_tables=phase_values <= _MOST_PHASE_VALUES),
        commands_section(facts),
    )
    return Page(
        kind="run",
        title=str(facts.content.get("title") or run.header.scenario),
        facts=_head(facts),
        answer=answer(facts),
        sections=tuple(section for section in sections if section is not None),
        data=facts.summary,
    )


def _figures(facts: RunFacts) -> tuple[Section | None, ...]:
    """The sections with measurements: those of a written table, or those of another kind of run."""
    if facts.exchange == "none":
        return (codec_section(facts),)
    arms = arms_section(facts)
    growth = growth_section(facts)
    if growth is not None:
        # arms of several sizes are no ladder steps, and predictions are per record
        return (growth, arms, time_section(facts), byte_section(facts), rounds_section(facts))
    return (
        arms,
        peers_section(facts),
        rfc84_section(facts),
        topologies_section(facts),
        merging_section(facts),
        time_section(facts),
        byte_section(facts),
        rounds_section(facts),
        ladder_section(facts),
        prediction_section(facts),
    )


def _head(facts: RunFacts) -> tuple[tuple[str, str], ...]:
    header = facts.run.header
    counts = {len(arm.rounds) for arm in facts.timed}
    cold = max((len(arm.cold) for arm in facts.timed), default=0)
    rounds = " to ".join(str(n) for n in sorted({min(counts), max(counts)})) if counts else "no"
    measured = f"{rounds} measured round{'' if rounds == '1' else 's'}"
    if cold:
        measured += f", {cold} cold"
    shown = (
        ("scenario", header.scenario),
        ("run", header.run),
        ("started", header.started_at),
        ("rounds", measured),
        ("machine", header.machine_class),
        ("exchange", _exchange(facts)),
    )
    return tuple((key, plain(value)) for key, value in shown if value)


def _exchange(facts: RunFacts) -> str:
    if facts.exchange == "none":
        return "none: records are encoded and decoded only"
    if facts.exchange == "inprocess":
        return "in-process, without Spark"
    return "Spark, local mode" if facts.local else "Spark, on a cluster"
