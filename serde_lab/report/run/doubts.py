"""Lists reasons to doubt a result, in sentences: noise, few rounds, drift, local mode, failures."""

from __future__ import annotations

from collections.abc import Iterator
from statistics import median

from serde_lab.analysis.calibration import CALIBRATION_LIMIT
from serde_lab.report import notation
from serde_lab.report.page import Block, Figure, Points, Section, Sentence
from serde_lab.report.plots.drawings import Line, Lines
from serde_lab.report.run.answer import typical_spread
from serde_lab.report.run.facts import RunFacts, calibration_by_round
from serde_lab.report.run.provenance import is_dirty

FEW_ROUNDS = 5
WIDE_SPREAD = 0.10
MUCH_UNATTRIBUTED = 0.05
WARM_EFFECT = 1.5
EXACT = ("rows", "frames", "frame_bytes", "shuffle_records", "hops", "files")

_PART_ROLES = ("encode", "precombine", "to_arrow", "write")


def doubts_section(facts: RunFacts) -> Section:
    """The section, which always exists: a result without doubts says so."""
    found = tuple(doubts(facts))
    blocks: list[Block] = []
    if found:
        blocks.append(Points(found, "warn"))
    else:
        blocks.append(Sentence("Nothing that this run measured speaks against it.", "good"))
    calibration = _calibration(facts)
    if calibration is not None:
        blocks.append(calibration)
    return Section("doubts", "What the result says against itself", tuple(blocks))


def doubts(facts: RunFacts) -> Iterator[tuple[str, str]]:
    """Headings and sentences, the most serious first."""
    yield from _failures(facts)
    yield from _rounds(facts)
    yield from _noise(facts)
    yield from _attribution(facts)
    yield from _reach(facts)


def _failures(facts: RunFacts) -> Iterator[tuple[str, str]]:
    wrong = [notation.named(arm.name) for arm in facts.arms if arm.wrong]
    if wrong:
        yield (
            "Wrong answers",
            f"A check of contents failed for {notation.listed(wrong)}; see the checks.",
        )
    for arm in facts.arms:
        if arm.unchecked:
            yield (
                "Unchecked",
                f"{notation.named(arm.name)}: {arm.unchecked}; no timing of it is shown.",
            )
        failed = [c for c in facts.run.cells if c.arm == arm.name and c.status == "failed"]
        if failed:
            rounds = notation.listed([str(cell.round) for cell in failed])
            yield (
                "Failed cells",
                f"{notation.named(arm.name)} raised in round {rounds}: {failed[0].error or 'no message'}",
            )
        elif arm.summary["status"] == "missing":
            yield "Missing arm", f"{notation.named(arm.name)}: {arm.summary['missing']}"
    state = facts.run.header.state
    if state != "complete":
        yield "Incomplete", f"The run's state is {state}: rounds are missing."
    for message in facts.run.messages:
        yield "The run's files", message


def _rounds(facts: RunFacts) -> Iterator[tuple[str, str]]:
    counts = {len(arm.rounds) for arm in facts.timed}
    if counts and min(counts) < FEW_ROUNDS:
        fewest = min(counts)
        smallest = notation.number(min(1.0, 2.0 ** (1 - fewest))) if fewest else "1"
        yield (
            "Few rounds",
            f"The arm with the fewest has {notation.plural(fewest, 'measured round')}. A paired"
            f" permutation test cannot give a p below {smallest} with that.",
        )
    if len(counts) > 1:
        yield (
            "Unequal rounds",
            "Not every arm was measured in every round, so that not all medians cover the same"
            " rounds.",
        )
    if facts.drift:
        moved = notation.listed(
            [
                f"round {n} ({'+' if by > 1 else ''}{notation.percent(by - 1)})"
                for n, by in facts.drift.items()
            ]
        )
        yield (
            "The machine moved",
            f"The calibration cell, which runs none of our code, moved by more than"
            f" {notation.percent(CALIBRATION_LIMIT)} in {moved}. No verdict should rest on such rounds"
            " alone.",
        )
    elif facts.timed and not facts.run.calibrations:
        yield (
            "No calibration",
            "No round timed the calibration cell, so that a change of the machine would not show.",
        )


def _noise(facts: RunFacts) -> Iterator[tuple[str, str]]:
    noisy = [
        f"{notation.named(arm.name)} ({notation.percent(spread)})"
        for arm in facts.timed
        if (spread := typical_spread(arm)) is not None and spread > WIDE_SPREAD
    ]
    if noisy:
        yield (
            "Noise",
            f"Rounds spread by more than {notation.percent(WIDE_SPREAD)} of their median in"
            f" {notation.listed(noisy)}. Differences of that size are not to be read from this run."
            + _without_drift(facts),
        )
    cold = [
        f"{notation.named(arm.name)} ({notation.ratio(factor)})"
        for arm in facts.timed
        if arm.cold_seconds
        and arm.seconds
        and (factor := median(arm.cold_seconds.values()) / arm.seconds) > WARM_EFFECT
    ]
    if cold:
        yield (
            "Cold rounds",
            f"Warm-up rounds took far longer than measured ones in {notation.listed(cold)}. A job"
            " that runs once pays that, and the medians leave it out.",
        )
    for arm in facts.timed:
        for metric in EXACT:
            values = {v.metrics[metric] for v in arm.rounds.values() if metric in v.metrics}
            if len(values) > 1:
                yield (
                    "Not deterministic",
                    f"{metric} of {notation.named(arm.name)} differs between rounds"
                    f" ({notation.count(min(values))} to {notation.count(max(values))}), and it"
                    " should be the same each time.",
                )


def _without_drift(facts: RunFacts) -> str:
    """The spread without the rounds in which the machine's speed moved."""
    if not facts.drift:
        return ""
    spreads = []
    for arm in facts.timed:
        values = [v for n, v in arm.seconds_by_round.items() if n not in facts.drift]
        if len(values) > 1 and arm.seconds:
            spreads.append((max(values) - min(values)) / arm.seconds)
    if not spreads:
        return ""
    return (
        f" Without the rounds in which the machine moved, no arm spreads by more than"
        f" {notation.percent(max(spreads))}."
    )


def _attribution(facts: RunFacts) -> Iterator[tuple[str, str]]:
    much = [
        f"{notation.named(arm.name)} ({notation.percent(share)})"
        for arm in facts.timed
        if (share := arm.figure("unattributed_share")) is not None and share > MUCH_UNATTRIBUTED
    ]
    if much:
        yield (
            "Unattributed time",
            f"More than {notation.percent(MUCH_UNATTRIBUTED)} of the slots' time has no name in"
            f" {notation.listed(much)}: the split into phases explains that much less.",
        )


def _reach(facts: RunFacts) -> Iterator[tuple[str, str]]:
    if is_dirty(facts):
        yield (
            "Uncommitted changes",
            "The checkout had changes that no commit holds: the commit named below is not quite"
            " the code that was measured.",
        )
    if facts.exchange == "none":
        yield (
            "Records alone",
            "Nothing was sent and nothing written, in one warm process: what a strategy costs here is the"
            " least that it costs in a pipeline.",
        )
    elif facts.exchange == "inprocess":
        yield (
            "No Spark",
            "Frames were handed over inside one process. These figures are those of strategies and"
            " stages, and say nothing of Spark.",
        )
    elif facts.local:
        yield (
            "Local mode",
            "Bytes cross no network here: driver, executors and shuffle share one machine. On a"
            " cluster a strategy with fewer bytes gains more than it does here.",
        )
    if len(facts.strategies) > 1 and facts.summary["machine_class"]:
        yield (
            "One machine",
            f"All rounds ran on one machine of class {facts.summary['machine_class']}; ratios may"
            " differ elsewhere.",
        )


def _calibration(facts: RunFacts) -> Figure | None:
    rounds = calibration_by_round(facts.run)
    parts = sorted({part for values in rounds.values() for part in values})
    lines = []
    for i, part in enumerate(parts):
        values = {n: one[part] for n, one in rounds.items() if part in one}
        middle = median(values.values())
        if middle:
            points = tuple((float(n), value / middle) for n, value in values.items())
            lines.append(Line(part, _PART_ROLES[i % len(_PART_ROLES)], points))
    if not lines or len(rounds) < 2:
        return None
    low, high = 1 - CALIBRATION_LIMIT, 1 + CALIBRATION_LIMIT
    return Figure(
        name="calibration",
        title="The calibration cell, round by round",
        description="Lines, one a part of the calibration cell, each over its own median: "
        + "; ".join(
            f"{line.label} from {notation.number(min(y for _, y in line.points))}"
            f" to {notation.number(max(y for _, y in line.points))}"
            for line in lines
        )
        + ".",
        drawing=Lines(
            x_axis="round, cold ones first; the band is ±10 %",
            y_axis="time over the median of all rounds",
            lines=tuple(lines),
            band=(low, high),
            from_zero=False,
        ),
    )
