"""Shows how far to trust a result: every round with its spread, and reasons for doubt in sentences.

No outlier is removed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from statistics import median

from serde_lab.analysis.drift import CALIBRATION_LIMIT, MOST_OF_OTHERS, disturbed_cells, other_work
from serde_lab.analysis.ratios import CHANCE
from serde_lab.analysis.run_values import ArmValues, RunValues
from serde_lab.report import notation
from serde_lab.report.page import Cell, Column, Figure, Section, Table, warnings_or
from serde_lab.report.plots.drawings import Line, Lines, Point, PointRow, PointRows
from serde_lab.report.plots.palette import line_role
from serde_lab.report.run.provenance import UNKNOWN, is_dirty, older_instruments

FEW_ROUNDS = 5
WIDE_SPREAD = 0.10
MUCH_UNATTRIBUTED = 0.05
WARM_EFFECT = 1.5
EXACT = ("rows", "frames", "frame_bytes", "shuffle_records", "hops", "files")


def doubts_section(facts: RunValues) -> Section:
    """The section, which always exists: a result without doubts says so."""
    found = tuple(doubts(facts))
    block = warnings_or(found, "This run shows no reason for doubt.")
    return Section.of("doubts", "Reasons to doubt the result", block, _calibration(facts))


def doubts(facts: RunValues) -> Iterator[tuple[str, str]]:
    """Headings and sentences, the most serious first."""
    yield from _failures(facts)
    yield from _rounds(facts)
    yield from _noise(facts)
    yield from _attribution(facts)
    yield from _reach(facts)


def _failures(facts: RunValues) -> Iterator[tuple[str, str]]:
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
                f"{notation.named(arm.name)}: {arm.unchecked}; its timings are not shown.",
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


def _rounds(facts: RunValues) -> Iterator[tuple[str, str]]:
    counts = {len(arm.rounds) for arm in facts.timed}
    if counts and min(counts) < FEW_ROUNDS:
        fewest = min(counts)
        smallest = notation.number(min(1.0, 2.0 ** (1 - fewest))) if fewest else "1"
        yield (
            "Few rounds",
            f"The arm with the fewest has {notation.plural(fewest, 'measured round')}. With that"
            f" few, a paired permutation test cannot give a p below {smallest}.",
        )
    open_ratios = [
        f"{notation.named(arm.name)} ({ratio.finding.replace('undecided: ', '')})"
        for arm in facts.timed
        if (ratio := arm.ratio_to_reference) is not None and ratio.range and ratio.doubt
    ]
    if open_ratios:
        yield (
            "Undecided",
            "The interval of the ratio to the reference holds 1, so that neither is shown to be faster, for"
            f" {notation.listed(open_ratios)}. The rounds would decide it with a chance of"
            f" {notation.percent(CHANCE)}, if the ratio and its spread stay as they are.",
        )
    if len(counts) > 1:
        yield (
            "Unequal rounds",
            "Not every arm was measured in every round, so medians cover different rounds.",
        )
    if signs := other_work(facts.run):
        yield (
            "Made beside other work",
            f"{notation.listed(list(signs))}: this run cannot be quoted.",
        )
    elif disturbed := disturbed_cells(facts.run):
        share, arm, number = max(disturbed)
        measured = sum(not cell.warmup for cell in facts.run.cells)
        yield (
            "Other work in some cells",
            f"In {len(disturbed)} of {notation.plural(measured, 'cell')} other processes took more than"
            f" {notation.percent(MOST_OF_OTHERS)} of the cores, at most {notation.percent(share)}"
            f" ({notation.named(arm)}, round {number}). The run counts as quiet, since that is not"
            " so in the median cell of any arm, but these cells widen or shift its ratios.",
        )
    if facts.drift:
        moved = notation.listed(
            [
                f"round {n} ({'+' if by > 1 else ''}{notation.percent(by - 1)})"
                for n, by in facts.drift.items()
            ]
        )
        yield (
            "The machine's speed changed",
            f"The time of fixed work, which runs none of our code, changed by more than"
            f" {notation.percent(CALIBRATION_LIMIT)} in {moved}. No verdict should rest on such rounds"
            " alone.",
        )
    elif facts.timed and not facts.run.calibrations:
        yield (
            "No calibration",
            "No round timed the calibration cell, so a change in the machine's speed would go unnoticed.",
        )


def _noise(facts: RunValues) -> Iterator[tuple[str, str]]:
    noisy = [
        f"{notation.named(arm.name)} ({notation.percent(spread)})"
        for arm in facts.timed
        if (spread := arm.spread) is not None and spread > WIDE_SPREAD
    ]
    if noisy:
        yield (
            "Noise",
            f"Rounds spread by more than {notation.percent(WIDE_SPREAD)} of their median in"
            f" {notation.listed(noisy)}. Medians cannot show differences of that size; what ratios show,"
            " their intervals say." + _without_drift(facts),
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
            " that runs once has that cost, which the medians leave out.",
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


def _without_drift(facts: RunValues) -> str:
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
        f" Without the rounds in which the machine's speed changed, no arm spreads by more than"
        f" {notation.percent(max(spreads))}."
    )


def _attribution(facts: RunValues) -> Iterator[tuple[str, str]]:
    much = [
        f"{notation.named(arm.name)} ({notation.percent(share)})"
        for arm in facts.timed
        if (share := arm.figure("unattributed_share")) is not None and share > MUCH_UNATTRIBUTED
    ]
    if much:
        yield (
            "Unattributed time",
            f"More than {notation.percent(MUCH_UNATTRIBUTED)} of the slot time belongs to no phase in"
            f" {notation.listed(much)}, so the split into phases does not explain it.",
        )


def _reach(facts: RunValues) -> Iterator[tuple[str, str]]:
    older = older_instruments(facts.run.header)
    if older == (UNKNOWN,):
        yield (
            "Older measuring code",
            "The run does not record its instruments: it was measured by an older version, and its figures"
            " may not be comparable with newer ones.",
        )
    elif older:
        yield (
            "Older measuring code",
            f"These instruments have changed since the run: {notation.listed(list(older))}. What they"
            " measured is not comparable with newer figures.",
        )
    if is_dirty(facts):
        yield (
            "Uncommitted changes",
            "The checkout had uncommitted changes: the commit named below is not exactly the"
            " code that was measured.",
        )
    if facts.exchange == "none":
        yield (
            "Records alone",
            "Nothing was sent or written, and the process was warm: a strategy costs at least this"
            " much in a pipeline.",
        )
    elif facts.exchange == "inprocess":
        yield (
            "No Spark",
            "Frames were exchanged inside one process. These figures describe strategies and"
            " stages, not Spark.",
        )
    elif facts.local:
        yield (
            "Local mode",
            "Bytes cross no network here: driver, executors and shuffle share one machine. On a"
            " cluster a strategy with fewer bytes gains more than here.",
        )
    if len(facts.strategies) > 1 and facts.summary["machine_class"]:
        yield (
            "One machine",
            f"All rounds ran on one machine of class {facts.summary['machine_class']}; ratios may"
            " differ elsewhere.",
        )


def _calibration(facts: RunValues) -> Figure | None:
    rounds = facts.calibration
    parts = sorted({part for values in rounds.values() for part in values})
    lines = []
    for i, part in enumerate(parts):
        values = {n: one[part] for n, one in rounds.items() if part in one}
        middle = median(values.values())
        if middle:
            points = tuple((float(n), value / middle) for n, value in values.items())
            lines.append(Line(part, line_role(i), points))
    if not lines or len(rounds) < 2:
        return None
    low, high = 1 - CALIBRATION_LIMIT, 1 + CALIBRATION_LIMIT
    return Figure(
        name="calibration",
        title="The calibration cell, round by round",
        description="Lines, one for each part of the calibration cell, divided by its own median: "
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


def rounds_section(facts: RunValues) -> Section | None:
    """The section, or None if nothing was timed."""
    arms = facts.timed
    if not arms:
        return None
    rows = tuple(_row(arm, facts) for arm in arms)
    figure = Figure(
        name="rounds",
        title="Every round of every arm",
        description="Points, one for each round: "
        + "; ".join(f"{row.label} {row.note}" for row in rows)
        + ".",
        drawing=PointRows(axis="seconds end to end; the upright line is the median", rows=rows),
        table=_table(arms, facts),
    )
    return Section("rounds", "Distribution of rounds", (figure,))


def _row(arm: ArmValues, facts: RunValues) -> PointRow:
    points = [
        Point(
            value,
            "marked" if number in facts.drift else "measured",
            f"{arm.name}, round {number}: {notation.seconds(value)}",
        )
        for number, value in arm.seconds_by_round.items()
    ]
    points += [
        Point(value, "cold", f"{arm.name}, cold round {number}: {notation.seconds(value)}")
        for number, value in arm.cold_seconds.items()
    ]
    spread = arm.spread
    note = notation.seconds(arm.seconds)
    if spread is not None:
        note += f", spread {notation.percent(spread)}"
    return PointRow(arm.name, tuple(points), middle=arm.seconds, note=note)


def _table(arms: Sequence[ArmValues], facts: RunValues) -> Table:
    cold = sorted({n for arm in arms for n in arm.cold_seconds})
    measured = sorted({n for arm in arms for n in arm.seconds_by_round})
    columns = [Column("arm", "arm", numeric=False)]
    columns += [Column(f"cold_{n}", f"cold {n}", unit="s") for n in cold]
    columns += [
        Column(f"round_{n}", f"round {n}{' (drifted)' if n in facts.drift else ''}", unit="s")
        for n in measured
    ]
    rows = []
    for arm in arms:
        cells = [Cell(arm.name, arm.name, header=True)]
        values = [arm.cold_seconds.get(n) for n in cold]
        cells += [Cell(notation.number(v), v, tone="muted") for v in values]
        values = [arm.seconds_by_round.get(n) for n in measured]
        cells += [Cell(notation.number(v), v) for v in values]
        rows.append(tuple(cells))
    return Table(
        "round-seconds",
        "Seconds of every round",
        tuple(columns),
        tuple(rows),
        folded="The same in figures",
    )
