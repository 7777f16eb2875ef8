"""Words the answer of a run: the question, the most important figure, and the evidence for it.

The headline never speaks of a faster format if arms differ in more than the representation. Rounds are
counted here, but there are no statistical tests: a verdict from elsewhere is passed in as a sentence.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from math import fsum
from statistics import median

from serde_lab.measure import phases
from serde_lab.report import notation
from serde_lab.report.page import Answer, Sentence
from serde_lab.report.run.codec import codec_headline
from serde_lab.report.run.factors import differences
from serde_lab.report.run.facts import ArmFacts, RunFacts
from serde_lab.report.run.growth import growth_headline

FEWEST_ROUNDS = 3


def answer(facts: RunFacts) -> Answer:
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
            *_correctness(facts),
        ),
    )


def _headline(facts: RunFacts) -> tuple[str, str, tuple[Sentence, ...]]:
    told = codec_headline(facts) or growth_headline(facts)
    if told is not None:
        return told
    # an arm with its own table settings does different work
    alike = [arm for arm in facts.strategies if not arm.table]
    candidates = sorted(alike, key=lambda arm: arm.seconds or 0.0)
    if not candidates:
        return notation.NOTHING, "no timing to believe", ()
    best = candidates[0]
    reference = facts.reference if facts.reference in candidates else None
    if reference is None and len(candidates) > 1:
        reference = candidates[-1]
    if reference is None:
        return (*_alone(best), ())
    if reference is best:
        return _reference_wins(best, candidates[1:])
    return _pair(facts, best, reference)


def _alone(arm: ArmFacts) -> tuple[str, str]:
    share = notation.percent(arm.figure("serde_share"))
    return (
        notation.seconds(arm.seconds),
        f"end to end for {notation.named(arm.name)}, the only arm with a timing; SerDe takes {share}"
        " of the slots' time",
    )


def _reference_wins(
    best: ArmFacts, others: Sequence[ArmFacts]
) -> tuple[str, str, tuple[Sentence, ...]]:
    if not others:
        return (*_alone(best), ())
    second = others[0]
    factor = (second.seconds or 0.0) / (best.seconds or 1.0)
    wins, rounds, _ = _duel(best, second)
    text = (
        f"No arm beats the reference: {notation.named(best.name)} wrote {_written(best)};"
        f" {notation.named(second.name)}, the next best, took {notation.seconds(second.seconds)}."
        f" {notation.named(best.name)} {_won(wins, rounds)}."
    )
    if rounds < FEWEST_ROUNDS:
        text = f"{text.removesuffix('.')}, but {notation.plural(rounds, 'round')} cannot decide."
    about = (
        f"the time of {notation.named(second.name)}, the next best, over that of"
        f" {notation.named(best.name)}, the reference"
    )
    return notation.ratio(factor), about, (Sentence(text),)


def _pair(
    facts: RunFacts, best: ArmFacts, reference: ArmFacts
) -> tuple[str, str, tuple[Sentence, ...]]:
    factor = (reference.seconds or 0.0) / (best.seconds or 1.0)
    wins, rounds, ratios = _duel(best, reference)
    named = ", the reference," if reference is facts.reference else ", the slowest arm,"
    first, second = notation.named(best.name), notation.named(reference.name)
    text = (
        f"{first} wrote {_written(best)}; {second}{named} took"
        f" {notation.seconds(reference.seconds)} (medians of"
        f" {notation.plural(len(best.rounds), 'round')}). {first} {_won(wins, rounds)}"
    )
    if rounds > 1 and wins == rounds:
        text += f", by a factor of {notation.span(min(ratios), max(ratios))}"
    if rounds < FEWEST_ROUNDS:
        text += f", but {notation.plural(rounds, 'round')} in common cannot decide"
    sentences = [Sentence(text + ".")]
    decided = wins == rounds and rounds >= FEWEST_ROUNDS
    if decided:
        about = f"faster end to end: {first} against {second}"
        sentences += _saved(best, reference)
    else:
        about = f"between the medians of {first} and {second}, and not decided"
    sound = len(differences(reference, best)) < 2
    sentences.append(Sentence(_cause(facts, best, reference), "" if sound else "warn"))
    return notation.ratio(factor), about, tuple(sentences)


def _written(arm: ArmFacts) -> str:
    return f"{notation.count(arm.rows)} rows in {notation.seconds(arm.seconds)}"


def _duel(one: ArmFacts, other: ArmFacts) -> tuple[int, int, list[float]]:
    """The number of common rounds that `one` won, their total, and the ratios other/one of each."""
    first, second = one.seconds_by_round, other.seconds_by_round
    common = sorted(first.keys() & second.keys())
    ratios = [second[n] / first[n] for n in common if first[n] > 0]
    return sum(ratio > 1 for ratio in ratios), len(ratios), ratios


def _won(wins: int, rounds: int) -> str:
    if rounds == 0:
        return "has no round in common with it"
    if wins == rounds:
        if rounds == 1:
            return "was faster in the one round"
        return f"was faster in every one of {rounds} rounds"
    return f"was faster in {wins} of {notation.plural(rounds, 'round')}"


def _saved(best: ArmFacts, reference: ArmFacts) -> list[Sentence]:
    """Say how much of the saved time is SerDe's; phases sum up to the whole, so shares add up."""
    if not best.phases or not reference.phases:
        return []
    costs = [
        f"{notation.number(1e6 * cost)} µs CPU a record in {notation.named(arm.name)}"
        for arm in (reference, best)
        if (cost := arm.per_record("serde_cpu_s")) is not None
    ]
    text = f"SerDe, the four verbs and route, costs {notation.listed(costs)}. " if costs else ""
    saved = _slot_seconds(reference) - _slot_seconds(best)
    serde = _slot_seconds(reference, serde=True) - _slot_seconds(best, serde=True)
    if saved > 0:
        share = serde / saved
        if share > 1.005:
            more = notation.seconds(serde - saved)
            text += f"SerDe saves more slot time than the whole does: the rest takes {more} more."
        else:
            rest = "" if share > 0.995 else "; the rest is waiting, writing and idling less"
            text += f"Of the slot time that is saved, {notation.percent(share)} is SerDe{rest}."
    return [Sentence(text.strip())] if text else []


def _slot_seconds(arm: ArmFacts, serde: bool = False) -> float:
    return fsum(
        times["wall_s"] for name, times in arm.phases.items() if not serde or phases.is_serde(name)
    )


def _cause(facts: RunFacts, best: ArmFacts, reference: ArmFacts) -> str:
    found = differences(reference, best)
    if len(found) == 1:
        return f"The two arms differ in one factor, {found[0].factor}: {found[0].words}."
    if not found:
        return "The two arms are asked for the very same thing: what differs is noise."
    names = notation.listed([difference.factor for difference in found])
    arms = [arm for arm in facts.arms if arm.kind == "strategy"]
    apart = any(len(differences(one, other)) == 1 for one, other in pairwise(arms))
    where = (
        "the steps from arm to arm below take the factors apart"
        if apart
        else "no two neighbouring arms of this run differ in one factor alone"
    )
    return (
        f"The two arms differ in {notation.plural(len(found), 'factor')}, {names}, so this says"
        f" nothing of a format by itself: {where}."
    )


def _correctness(facts: RunFacts) -> tuple[Sentence, ...]:
    checks = facts.run.checks
    if not checks:
        return (
            Sentence("No contents were checked: whether any arm is right is not known.", "bad"),
        )
    if all(check.passed for check in checks) and not any(arm.unchecked for arm in facts.arms):
        return (
            Sentence(
                f"{_right(facts)}: all {notation.count(len(checks))} checks of contents passed.",
                "good",
            ),
        )
    return ()


def _right(facts: RunFacts) -> str:
    if facts.exchange == "none":
        return "Every arm gave every record back"
    return "Every arm gave the right table"


def _alarms(facts: RunFacts) -> tuple[Sentence, ...]:
    found = []
    wrong = [notation.named(arm.name) for arm in facts.arms if arm.wrong]
    if wrong:
        are = "is" if len(wrong) == 1 else "are"
        found.append(
            Sentence(
                f"Wrong answer: {notation.listed(wrong)}. A check of contents failed, so no timing"
                f" of {'it' if len(wrong) == 1 else 'them'} {are} believed or shown.",
                "bad",
            )
        )
    unchecked = [notation.named(arm.name) for arm in facts.arms if arm.unchecked]
    if unchecked:
        found.append(
            Sentence(
                f"Unchecked: {notation.listed(unchecked)}. Rounds without a check of contents give no"
                " timing that is shown.",
                "bad",
            )
        )
    state = facts.run.header.state
    if state != "complete":
        what = "is still running" if state == "running" else "was interrupted"
        found.append(Sentence(f"This run {what}: the page shows what was measured so far.", "warn"))
    return tuple(found)


def typical_spread(arm: ArmFacts) -> float | None:
    """The highest minus the lowest measured round, divided by the median."""
    values = list(arm.seconds_by_round.values())
    if len(values) < 2 or not median(values):
        return None
    return (max(values) - min(values)) / median(values)
