"""Shows the arms: the figures of each, its multiple of the floor, its timed commits, and its checks."""

from __future__ import annotations

from statistics import median
from typing import Any

from serde_lab.analysis.ratios import Ratio
from serde_lab.analysis.rounding import text as rounded_text
from serde_lab.analysis.run_values import ArmValues, RunValues
from serde_lab.measure.phases import SERDE_WORK
from serde_lab.report import notation
from serde_lab.report.page import (
    MISSING,
    Block,
    Cell,
    Column,
    Section,
    Sentence,
    Table,
    ratio_cell,
    text_columns,
)
from serde_lab.report.run.ladder import options_in_words
from serde_lab.runs.model import Check

_COLUMNS = (
    Column("arm", "arm", numeric=False),
    Column("seconds", "seconds", about="wall time of the timed commits, median of rounds"),
    Column(
        "ratio",
        "ratio",
        about="seconds over the reference's: below 1 is faster. The geometric mean over rounds, with its"
        " 95 % interval",
    ),
    Column("rows_per_s", "rows/s"),
    Column("serde_cpu_s", "SerDe CPU", unit="s", about=f"{SERDE_WORK}, all workers"),
    Column("serde_share", "SerDe share", about="share of all slot time"),
    Column("tree_cpu_s", "all CPU", unit="s", about="lab, JVM and Python workers together"),
    Column(
        "cpu_ratio",
        "CPU ratio",
        about="CPU of all processes over the reference's, like ratio: the cost that other work changes least",
    ),
    Column("shuffle_bytes", "shuffle", about="as Spark wrote it, compressed"),
    Column("frame_bytes", "frames", about="bytes as encoded"),
    Column("peak_worker_rss_bytes", "peak worker", about="most memory of one worker"),
    Column("checks", "checks", numeric=False),
)


def arms_section(facts: RunValues) -> Section:
    rows = tuple(_row(arm, facts) for arm in facts.arms)
    table = Table("arms", "The arms, each with its median over measured rounds", _COLUMNS, rows)
    note = Sentence(
        "A control isolates one cost and does not compete: it shows how much time remains when everything"
        " else is removed.",
        "muted",
    )
    controls = any(arm.kind == "control" for arm in facts.arms)
    more = (note if controls else None, _outside(facts), _commits(facts))
    return Section.of("arms", "The arms", table, _floor(facts), *more)


def _floor(facts: RunValues) -> Table | None:
    """A row for each arm; None for a run without the control `work_floor`."""
    found = facts.derived.times_floor
    if not found:
        return None
    columns = (
        *text_columns("arm", "floor"),
        Column(
            "times", "times the floor", about="seconds over the floor's, geometric mean over rounds"
        ),
        Column("interval", "95 % interval"),
        Column("by_cpu", "by CPU", about="the same of the CPU time of all processes"),
        Column("cpu_interval", "95 % interval by CPU"),
    )
    rows = tuple(
        (
            Cell(one.arm, one.arm, header=True),
            Cell(one.floor, one.floor),
            *_with_interval(one.seconds),
            *_with_interval(one.cpu),
        )
        for one in found
    )
    caption = (
        "How many times the floor each arm takes: the floor does the same work without SerDe, shuffle and"
        " JVM, on as many cores"
    )
    return Table("times-the-floor", caption, columns, rows)


def _with_interval(ratio: Ratio | None) -> tuple[Cell, Cell]:
    if ratio is None:
        return MISSING, MISSING
    return Cell(ratio.text, ratio.value), Cell(ratio.range or notation.NOTHING, ratio.range)


def floor_sentences(facts: RunValues) -> tuple[Sentence, ...]:
    """The floor's seconds, and the strategies nearest to it and farthest; nothing for a run without one.

    Where tables of several kinds are written, each with a floor of its own, those of the first kind.
    """
    found = facts.derived.times_floor
    strategies = [one for one in found if one.kind == "strategy" and one.floor == found[0].floor]
    if not strategies:
        return ()
    floor = next(arm for arm in facts.arms if arm.name == found[0].floor)
    by_times = sorted(strategies, key=lambda one: one.seconds.value)
    shown = by_times[:1] + by_times[1:][-1:]
    said = [f"{notation.named(one.arm)} takes {one.seconds.times}" for one in shown]
    text = (
        f"The floor, {notation.named(floor.name)}, is the same work without SerDe, shuffle and JVM:"
        f" {notation.seconds(floor.seconds)}. Of it, {notation.listed(said)}."
    )
    return (Sentence(text),)


def _outside(facts: RunValues) -> Table | None:
    """What the clock leaves out; None for a run that starts neither session nor workers."""
    columns = (
        Column("arm", "arm", numeric=False),
        Column("seconds", "warm", unit="s", about="what the clock counts"),
        Column(
            "worker_start_s", "workers' start", unit="s", about="Python workers, anew each cell"
        ),
        Column("session_start_s", "session's start", unit="s", about="once for all arms"),
        Column(
            "cold",
            "cold round",
            unit="s",
            about="the warm-up; all arms but its first meet a session that others have warmed",
        ),
        Column("fresh_s", "all together", unit="s", about="both starts and a cold round"),
    )
    rows = []
    for arm in facts.timed:
        workers_s, session_s = arm.figure("worker_start_s"), arm.figure("session_start_s")
        if workers_s is None and session_s is None:
            continue
        cold = arm.cold_seconds.values()
        times = (arm.seconds, workers_s, session_s, median(cold) if cold else None)
        shown = (_figure("seconds", value) for value in (*times, arm.figure("fresh_s")))
        rows.append((Cell(arm.name, arm.name, header=True), *shown))
    if not rows:
        return None
    caption = "Seconds of a warm round, and what its clock leaves out"
    return Table("outside", caption, columns, tuple(rows), folded="What the clock leaves out")


_OF_READS = (
    Column(
        "first_row_s",
        "first row",
        unit="s",
        about="from the call to the first row, in a read of its own",
    ),
    Column(
        "read_while_writing_s",
        "while writing",
        unit="s",
        about="the same read while another process commits to the table, median of three",
    ),
    Column("commits_meanwhile", "commits meanwhile", about="commits completed during those reads"),
)
"""Columns of metrics that only reads have."""


def _of_read(column: Column, value: float | None) -> Cell:
    return MISSING if value is None else _figure("seconds" if column.unit else "count", value)


def _commits(facts: RunValues) -> Table | None:
    """A table of the timed commits, if a cell has several; reads have columns of their own."""
    of_reads = [
        column
        for column in _OF_READS
        if any(column.key in commit for arm in facts.timed for commit in arm.summary["commits"])
    ]
    rows = tuple(
        (
            Cell(arm.name, arm.name, header=True),
            Cell(str(commit["n"]), commit["n"]),
            Cell(
                str(commit["operation"] or notation.NOTHING),
                commit["operation"],
                str(commit.get("table", "")),
            ),
            Cell(rounded_text("count", commit["rows"]), commit["rows"]),
            _figure("seconds", commit["seconds"]["median"]),
            _figure("seconds", commit["serde_cpu_s"]),
            *(_of_read(column, commit.get(column.key)) for column in of_reads),
        )
        for arm in facts.timed
        for commit in arm.summary["commits"]
        if commit["seconds"] is not None
    )
    if len(rows) <= len(facts.timed):
        return None
    columns = (
        Column("arm", "arm", numeric=False),
        Column("commit", "commit"),
        Column("operation", "operation", numeric=False),
        Column("rows", "rows"),
        Column("seconds", "seconds"),
        Column("serde_cpu_s", "SerDe CPU", unit="s"),
        *of_reads,
    )
    caption = "Each timed commit, medians over measured rounds"
    return Table("commits", caption, columns, rows, folded="Each timed commit by itself")


def _row(arm: ArmValues, facts: RunValues) -> tuple[Cell, ...]:
    seconds = list(arm.seconds_by_round.values())
    between = notation.between(min(seconds), max(seconds)) if len(seconds) > 1 else ""
    per_record = arm.per_record("serde_cpu_s")
    of_reference = " · reference" if arm is facts.reference else ""
    return (
        Cell(arm.name, arm.name, options_in_words(arm) + of_reference, header=True),
        Cell(rounded_text("seconds", arm.seconds), arm.seconds, between)
        if arm.seconds is not None
        else Cell(arm.absence, None, _reason(arm), "bad" if arm.wrong or arm.unchecked else "warn"),
        ratio_cell(arm.ratio_to_reference),
        _figure("rows_per_s", arm.figure("rows_per_s")),
        Cell(
            rounded_text("seconds", arm.figure("serde_cpu_s")),
            arm.figure("serde_cpu_s"),
            "" if per_record is None else f"{notation.number(1e6 * per_record)} µs/record",
        ),
        _figure("share", arm.figure("serde_share")),
        _figure("seconds", arm.figure("tree_cpu_s")),
        ratio_cell(arm.cpu_ratio_to_reference),
        _bytes(arm, "shuffle_bytes"),
        _bytes(arm, "frame_bytes"),
        Cell(
            notation.size(arm.figure("peak_worker_rss_bytes")),
            arm.figure("peak_worker_rss_bytes"),
        ),
        _checks(arm),
    )


def _reason(arm: ArmValues) -> str:
    if arm.wrong:
        failed = [check for check in arm.summary["checks"] if check["failed"]]
        return "; ".join(f"{check['name']}: {check['detail']}" for check in failed)
    return str(arm.unchecked or arm.summary["error"] or arm.summary["missing"] or "")


def _figure(quantity: Any, value: float | None) -> Cell:
    return Cell(rounded_text(quantity, value), value)


def _bytes(arm: ArmValues, metric: str) -> Cell:
    value, each = arm.figure(metric), arm.per_record(metric)
    note = "" if each is None else f"{notation.number(each)} B/record"
    return Cell(notation.size(value), value, note)


def _checks(arm: ArmValues) -> Cell:
    checks = arm.summary["checks"]
    if not checks:
        return Cell("none", "none", tone="warn")
    times = sum(check["times"] for check in checks)
    failed = sum(check["failed"] for check in checks)
    if failed:
        text = f"{notation.count(failed)} of {notation.count(times)} failed"
        return Cell(text, text, tone="bad")
    not_made = sum(check.get("not_made", 0) for check in checks)
    if not_made == times:
        return Cell("none made", "none", tone="warn")
    note = f"{notation.count(not_made)} not made" if not_made else ""
    return Cell(f"{notation.count(times - not_made)} passed", "passed", note, tone="good")


def checks_sentences(facts: RunValues) -> tuple[Sentence, ...]:
    """Whether every arm is right, as far as it was checked; nothing if the alarms say which is not."""
    checks = facts.run.checks
    if not checks:
        return (
            Sentence("No contents were checked, so nobody knows whether any arm is right.", "bad"),
        )
    if any(check.failed for check in checks) or any(arm.unchecked for arm in facts.arms):
        return ()
    passed = [check for check in checks if check.passed]
    said = f"{_right(facts)}: all {notation.count(len(passed))} checks of contents passed."
    not_made = sorted({check.name for check in checks if check.passed is None})
    if not_made:
        said += f" Not made here: {notation.listed(not_made)}."
    return (Sentence(said, "good"),)


def _right(facts: RunValues) -> str:
    whole = all(arm.rounds and not arm.summary["error"] for arm in facts.arms)
    every = "Every arm" if whole else "Every measured cell"
    if facts.exchange == "none":
        return f"{every} returned every record"
    if facts.content.get("queries"):
        return f"{every} wrote the right tables, and every query had the right answer"
    if facts.content.get("dataset"):
        return f"{every} wrote the right tables"
    if {arm.did for arm in facts.timed} == {"read"}:
        return f"{every} read the right rows"
    return f"{every} wrote the right table"


def checks_section(facts: RunValues) -> Section:
    """Failed checks first and in full; the complete list is folded."""
    checks = facts.run.checks
    failed = [check for check in checks if check.failed]
    blocks: list[Block] = []
    if not checks:
        blocks.append(Sentence("No check of contents was made.", "bad"))
    elif failed:
        blocks.append(
            Sentence(
                f"{notation.count(len(failed))} of {notation.count(len(checks))} checks failed.",
                "bad",
            )
        )
        blocks.append(_table("failed-checks", "The checks that failed", failed, ""))
    else:
        passed = [check for check in checks if check.passed]
        names = notation.listed(sorted({check.name for check in passed}))
        blocks.append(
            Sentence(f"All {notation.count(len(passed))} checks passed: {names}.", "good")
            if passed
            else Sentence("No check of contents could be made.", "bad")
        )
        not_made = [check for check in checks if check.passed is None]
        if not_made:
            blocks.append(
                _table("checks-not-made", "The checks that could not be made", not_made, "")
            )
    if checks:
        folded = f"All {notation.plural(len(checks), 'check')}"
        blocks.append(_table("checks", "Every check of contents", list(checks), folded))
    return Section("checks", "Checks of contents", tuple(blocks))


_VERDICTS = {
    True: Cell("passed", "passed", tone="good"),
    False: Cell("failed", "failed", tone="bad"),
    None: Cell("not made", "not made", tone="warn"),
}


def _table(name: str, caption: str, checks: list[Check], folded: str) -> Table:
    columns = (
        *text_columns("check", "arm"),
        Column("round", "round"),
        *text_columns("verdict", "detail"),
    )
    rows = tuple(
        (
            Cell(check.name, check.name, header=True),
            Cell(check.arm or "all arms", check.arm),
            Cell(notation.NOTHING if check.round is None else str(check.round), check.round),
            _VERDICTS[check.passed],
            Cell(check.detail, check.detail),
        )
        for check in checks
    )
    return Table(name, caption, columns, rows, folded=folded)
