"""Builds the page of one run: its answer, then its sections in reading order.

The headline compares arms of one execution and one framing, where the run has such arms, and names no faster
format if arms differ in more than the representation. Rounds are counted here, but there are no statistical
tests: a verdict from elsewhere is passed in as a sentence.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from math import comb, inf
from statistics import fmean

from serde_lab.analysis.ratios import CHANCE, Ratio, Share, paired_ratio
from serde_lab.analysis.run_values import ArmValues, RunValues, run_values
from serde_lab.measure.phases import SERDE_WORK
from serde_lab.report import notation
from serde_lab.report.page import Answer, Page, Section, Sentence
from serde_lab.report.run.arms import (
    arms_section,
    checks_section,
    checks_sentences,
    floor_sentences,
)
from serde_lab.report.run.beside_hudi import fairness_section, peers_section, rfc84_section
from serde_lab.report.run.byte_counts import byte_section
from serde_lab.report.run.codec import codec_headline, codec_section
from serde_lab.report.run.dataset_tables import tables_section
from serde_lab.report.run.doubts import doubts_section, rounds_section
from serde_lab.report.run.effects_and_search import effects_section, search_headline, search_section
from serde_lab.report.run.ladder import columns_sentences, differences, ladder_section
from serde_lab.report.run.provenance import commands_section, environment_section, raw_section
from serde_lab.report.run.shapes import (
    growth_headline,
    growth_section,
    shapes_headline,
    shapes_section,
)
from serde_lab.report.run.stream_latency import stream_headline, stream_section
from serde_lab.report.run.time_split import merging_section, prediction_section, time_section
from serde_lab.report.run.topology_costs import topologies_section
from serde_lab.report.run.ways_of_upserting import ways_section, ways_sentences
from serde_lab.runs.model import Run
from serde_lab.runs.plain_text import plain

_MOST_PHASE_VALUES = 24_000
"""With more phase values a page would exceed its limit of two megabytes."""


def run_page(run: Run) -> Page:
    facts = run_values(run)
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


def _figures(facts: RunValues) -> tuple[Section | None, ...]:
    """The sections with measurements: those of a written table, or those of another kind of run."""
    if facts.exchange == "none":
        return (codec_section(facts),)
    arms = arms_section(facts)
    shapes = shapes_section(facts)
    if shapes is not None:
        return (shapes, arms, rounds_section(facts))
    along = stream_section(facts) or growth_section(facts)
    if along is not None:
        # arms of several sizes are no ladder steps, and predictions are per record
        return (along, arms, time_section(facts), byte_section(facts), rounds_section(facts))
    return (
        search_section(facts),
        ways_section(facts),
        arms,
        tables_section(facts),
        peers_section(facts),
        effects_section(facts),
        rfc84_section(facts),
        topologies_section(facts),
        merging_section(facts),
        time_section(facts),
        byte_section(facts),
        rounds_section(facts),
        ladder_section(facts),
        prediction_section(facts),
    )


def _head(facts: RunValues) -> tuple[tuple[str, str], ...]:
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


def _exchange(facts: RunValues) -> str:
    if facts.exchange == "none":
        return "none: records are encoded and decoded only"
    if facts.exchange == "inprocess":
        return "in-process, without Spark"
    return "Spark, local mode" if facts.local else "Spark, on a cluster"


FEWEST_ROUNDS = 3


def answer(facts: RunValues) -> Answer:
    """The question, and the run's answer to it."""
    question = str(
        facts.content.get("question") or "What does the SerDe strategy cost, end to end?"
    )
    figure, about, sentences = _headline(facts)
    return Answer(
        question=question,
        figure=figure,
        figure_about=about,
        sentences=(
            *_alarms(facts),
            *sentences,
            *ways_sentences(facts),
            *floor_sentences(facts),
            *checks_sentences(facts),
        ),
    )


def _headline(facts: RunValues) -> tuple[str, str, tuple[Sentence, ...]]:
    special = (
        codec_headline(facts)
        or stream_headline(facts)
        or growth_headline(facts)
        or shapes_headline(facts)
        or search_headline(facts)
    )
    if special is not None:
        return special
    # an arm with its own table settings does different work
    alike = [arm for arm in facts.strategies if not arm.table]
    candidates = _comparable(facts, _fastest_first(alike, facts.reference))
    if not candidates:
        return notation.NOTHING, "no valid timing", ()
    figure, about, sentences = _of_formats(facts, candidates, of_all=len(candidates) == len(alike))
    return figure, about, (*sentences, *columns_sentences(candidates, alike))


def _fastest_first(arms: list[ArmValues], reference: ArmValues | None) -> list[ArmValues]:
    """The arms by their ratio to the reference, or else to the first of them, over common rounds.

    Medians would rank them wrongly where an arm lacks the slow rounds.
    """
    anchor = reference if reference in arms else next(iter(arms), None)

    def ratio(arm: ArmValues) -> float:
        found = anchor and paired_ratio(arm.seconds_by_round, anchor.seconds_by_round)
        return found.value if found else inf

    return sorted(arms, key=ratio)


def _of_formats(
    facts: RunValues, candidates: Sequence[ArmValues], of_all: bool
) -> tuple[str, str, tuple[Sentence, ...]]:
    """The fastest of `candidates` against the reference, or against the slowest if it is not among them."""
    best, among = candidates[0], len(candidates) - 1
    reference = facts.reference if facts.reference in candidates else None
    if reference is None and len(candidates) > 1:
        reference, among = candidates[-1], comb(len(candidates), 2)
    if reference is None:
        return (*_alone(best), ())
    if reference is best:
        return _reference_wins(best, candidates[1:], of_all)
    return _pair(facts, best, reference, among, of_all)


def _comparable(facts: RunValues, arms: Sequence[ArmValues]) -> Sequence[ArmValues]:
    """The arms that differ in representation alone from the reference, else from the fastest that has such.

    All of `arms` if no two differ in representation alone, or if the reference is a peer.
    """
    first = [arm for arm in arms if arm is facts.reference]
    if any(arm.kind != "strategy" for arm in first):
        return arms
    for one in (*first, *arms):
        found = [
            arm for arm in arms if all(d.factor == "representation" for d in differences(one, arm))
        ]
        if len(found) > 1:
            return found
    return arms


def _alone(arm: ArmValues) -> tuple[str, str]:
    share = notation.percent(arm.figure("serde_share"))
    return (
        notation.seconds(arm.seconds),
        f"end to end for {notation.named(arm.name)}, the only arm with a timing; SerDe takes {share}"
        " of the slot time",
    )


def _reference_wins(
    best: ArmValues, others: Sequence[ArmValues], of_all: bool
) -> tuple[str, str, tuple[Sentence, ...]]:
    """`of_all`: the reference and `others` are all arms, and not those of its execution and framing alone."""
    if not others:
        return (*_alone(best), ())
    second = others[0]
    factor = paired_ratio(second.seconds_by_round, best.seconds_by_round)
    wins, rounds = best.wins_against(second)
    alike = f"Of the {len(others) + 1} arms of one execution and framing, none"
    text = (
        f"{'No arm' if of_all else alike} is shown to beat the reference: {notation.named(best.name)}"
        f" {_written(best)}; {notation.named(second.name)}, the second fastest, took"
        f" {notation.seconds(second.seconds)}. {notation.named(best.name)} {_won(wins, rounds)}."
    )
    if rounds < FEWEST_ROUNDS:
        text = f"{text.removesuffix('.')}, but that is too few rounds to decide."
    interval = f" (95 % interval {factor.range})" if factor is not None and factor.range else ""
    about = (
        f"the time of {notation.named(second.name)}, the second fastest{'' if of_all else ' of its kind'},"
        f" over that of {notation.named(best.name)}, the reference{interval}"
    )
    return _times(factor), about, (Sentence(text), *_needed(factor))


def _pair(
    facts: RunValues, best: ArmValues, reference: ArmValues, among: int, of_all: bool
) -> tuple[str, str, tuple[Sentence, ...]]:
    factor = paired_ratio(reference.seconds_by_round, best.seconds_by_round, among=among)
    wins, rounds = best.wins_against(reference)
    slowest = f", the slowest {'arm' if of_all else 'of its kind'},"
    named = ", the reference," if reference is facts.reference else slowest
    first, second = notation.named(best.name), notation.named(reference.name)
    counts = dict.fromkeys(notation.plural(len(arm.rounds), "round") for arm in (best, reference))
    text = (
        f"{first} {_written(best)}; {second}{named} took"
        f" {notation.seconds(reference.seconds)} (medians of {' and of '.join(counts)})."
        f" {first} {_won(wins, rounds)}"
    )
    if factor is not None and factor.range:
        interval = f"(95 % interval {factor.range}{factor.chosen})"
        text += f"; the geometric mean of the ratios is {factor.text} {interval}"
    if rounds < FEWEST_ROUNDS:
        text += ", but that is too few rounds to decide"
    sentences = [Sentence(text + ".")]
    if factor is not None and factor.decided and factor.value > 1 and rounds >= FEWEST_ROUNDS:
        about = f"faster end to end: {first} against {second}, at least {factor.at_least} times"
        sentences += _saved(best, reference)
    else:
        about = f"between {first} and {second}; which is faster is not decided"
        sentences += _needed(factor)
    sound = reference.kind == "strategy" and len(differences(reference, best)) < 2
    sentences.append(Sentence(_cause(facts, best, reference), "" if sound else "warn"))
    return _times(factor), about, tuple(sentences)


def _needed(factor: Ratio | None) -> list[Sentence]:
    """Say how many rounds more would decide a ratio, if its spread is known."""
    if factor is None or not factor.range or not factor.doubt:
        return []
    if factor.more_rounds is None:
        return [Sentence("No number of rounds up to 1,000 would decide it.", "warn")]
    more = notation.plural(factor.more_rounds, "more round")
    return [
        Sentence(
            f"{more[0].upper()}{more[1:]} would decide it with a chance of {notation.percent(CHANCE)}, if the"
            " ratio and its spread stay as they are.",
            "warn",
        )
    ]


def _times(factor: Ratio | None) -> str:
    return notation.NOTHING if factor is None else f"{factor.text}×"


def _written(arm: ArmValues) -> str:
    return f"{arm.did} {notation.count(arm.rows)} rows in {notation.seconds(arm.seconds)}"


def _won(wins: int, rounds: int) -> str:
    if rounds == 0:
        return "shares no round with it"
    if wins == rounds:
        if rounds == 1:
            return "was faster in the one round"
        return f"was faster in every one of {rounds} rounds"
    return f"was faster in {wins} of {notation.plural(rounds, 'round')}"


def _saved(best: ArmValues, reference: ArmValues) -> list[Sentence]:
    """Say how much of the saved time is SerDe's: the share of a mean over rounds."""
    if not best.phases or not reference.phases:
        return []
    costs = [
        f"{notation.number(1e6 * cost)} µs of CPU per record in {notation.named(arm.name)}"
        for arm in (reference, best)
        if (cost := arm.per_record("serde_cpu_s")) is not None
    ]
    text = f"SerDe ({SERDE_WORK}) costs {notation.listed(costs)}. " if costs else ""
    saved, serde = (reference.slot_s_saved_by(best, serde=one) for one in (False, True))
    if sum(saved) > 0 and reference.kind == "strategy":
        share = Share.of(serde, saved)
        if share.value < 0:
            more = notation.seconds(-fmean(serde))
            text += f"SerDe saves nothing: it takes {more} more slot time."
        elif share.value > 1.005:
            more = notation.seconds(fmean(serde) - fmean(saved))
            text += f"SerDe saves more slot time than is saved in all; everything else takes {more} more."
        else:
            rest = "" if share.value > 0.995 else "; the rest is less waiting, writing and idling"
            interval = f" (95 % interval {share.range})" if share.range else ""
            text += f"SerDe accounts for {share.percent}{interval} of the saved slot time{rest}."
    return [Sentence(text.strip())] if text else []


def _cause(facts: RunValues, best: ArmValues, reference: ArmValues) -> str:
    found = differences(reference, best)
    if reference.kind != "strategy":
        names = f"{notation.named(best.name)} and {notation.named(reference.name)}"
        return f"Only the work is the same in {names}: this does not compare formats by themselves."
    if len(found) == 1:
        return f"The two arms differ in one factor, {found[0].factor}: {found[0].words}."
    if not found:
        return "The two arms have the same settings: any difference is noise."
    names = notation.listed([difference.factor for difference in found])
    arms = facts.strategy_arms
    apart = any(len(differences(one, other)) == 1 for one, other in pairwise(arms))
    where = (
        "the steps from arm to arm below show each factor by itself"
        if apart
        else "no two neighbouring arms of this run differ in one factor alone"
    )
    return (
        f"The two arms differ in {notation.plural(len(found), 'factor')}, {names}, so this"
        f" does not compare formats by themselves: {where}."
    )


def _alarms(facts: RunValues) -> tuple[Sentence, ...]:
    found = []
    wrong = [notation.named(arm.name) for arm in facts.arms if arm.wrong]
    if wrong:
        are = "is" if len(wrong) == 1 else "are"
        found.append(
            Sentence(
                f"Wrong answer: {notation.listed(wrong)}. A check of contents failed, so no timing"
                f" of {'it' if len(wrong) == 1 else 'them'} {are} shown.",
                "bad",
            )
        )
    unchecked = [notation.named(arm.name) for arm in facts.arms if arm.unchecked]
    if unchecked:
        found.append(
            Sentence(
                f"Unchecked: {notation.listed(unchecked)}. Timings of arms with an unchecked round"
                " are not shown.",
                "bad",
            )
        )
    if facts.summary["other_work"]:
        signs = notation.listed(facts.summary["other_work"])
        found.append(Sentence(f"This run was made beside other work: {signs}.", "warn"))
    state = facts.run.header.state
    if state != "complete":
        what = "is still running" if state == "running" else "was interrupted"
        found.append(Sentence(f"This run {what}: the page shows what was measured so far.", "warn"))
    return tuple(found)
