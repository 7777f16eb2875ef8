"""Builds the table of arms: one row per arm, with the figures that `runs` computes."""

from __future__ import annotations

from typing import Any

from serde_lab.analysis.rounding import text as rounded_text
from serde_lab.report import notation
from serde_lab.report.page import Cell, Column, Section, Sentence, Table
from serde_lab.report.run.factors import options_in_words
from serde_lab.report.run.facts import ArmFacts, RunFacts

_COLUMNS = (
    Column("arm", "arm", numeric=False),
    Column("seconds", "seconds", about="wall time of the timed commits, median of rounds"),
    Column("ratio", "ratio", about="seconds over the reference's: below 1 is faster"),
    Column("rows_per_s", "rows/s"),
    Column("serde_cpu_s", "SerDe CPU", unit="s", about="the four verbs and route, all workers"),
    Column("serde_share", "SerDe share", about="share of all slot time"),
    Column("shuffle_bytes", "shuffle", about="as Spark wrote it, compressed"),
    Column("frame_bytes", "frames", about="bytes as encoded"),
    Column("peak_worker_rss_bytes", "peak worker", about="most memory of one worker"),
    Column("checks", "checks", numeric=False),
)


def arms_section(facts: RunFacts) -> Section:
    """Each arm with its figures."""
    rows = tuple(_row(arm, facts) for arm in facts.arms)
    table = Table("arms", "The arms, each with its median over measured rounds", _COLUMNS, rows)
    notes = []
    if any(arm.kind == "control" for arm in facts.arms):
        notes.append(
            Sentence(
                "A control isolates one cost and is no contender: it shows what is left of the"
                " time when the rest is taken away.",
                "muted",
            )
        )
    commits = _commits(facts)
    return Section("arms", "The arms", (table, *notes, *([commits] if commits else [])))


def _commits(facts: RunFacts) -> Table | None:
    """A table of the timed commits, if a cell has several."""
    rows = tuple(
        (
            Cell(arm.name, arm.name, header=True),
            Cell(str(commit["n"]), commit["n"]),
            Cell(str(commit["operation"] or notation.NOTHING), commit["operation"]),
            Cell(rounded_text("count", commit["rows"]), commit["rows"]),
            _figure("seconds", commit["seconds"]["median"]),
            _figure("seconds", commit["serde_cpu_s"]),
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
    )
    caption = "Each timed commit, medians over measured rounds"
    return Table("commits", caption, columns, rows, folded="Each timed commit by itself")


def _row(arm: ArmFacts, facts: RunFacts) -> tuple[Cell, ...]:
    absent = Cell(notation.NOTHING, tone="muted")
    ratio = arm.summary["ratio_to_reference"]
    seconds = list(arm.seconds_by_round.values())
    between = notation.between(min(seconds), max(seconds)) if len(seconds) > 1 else ""
    per_record = arm.per_record("serde_cpu_s")
    share = arm.figure("serde_share")
    return (
        _name(arm, facts),
        Cell(rounded_text("seconds", arm.seconds), arm.seconds, between)
        if arm.seconds is not None
        else Cell(arm.absence, None, _reason(arm), "bad" if arm.wrong or arm.unchecked else "warn"),
        absent if ratio is None else Cell(rounded_text("ratio", ratio), ratio, _times(ratio)),
        _figure("rows_per_s", arm.figure("rows_per_s")),
        Cell(
            rounded_text("seconds", arm.figure("serde_cpu_s")),
            arm.figure("serde_cpu_s"),
            "" if per_record is None else f"{notation.number(1e6 * per_record)} µs/record",
        ),
        _figure("share", share),
        _bytes(arm, "shuffle_bytes"),
        _bytes(arm, "frame_bytes"),
        Cell(
            notation.size(arm.figure("peak_worker_rss_bytes")),
            arm.figure("peak_worker_rss_bytes"),
        ),
        _checks(arm),
    )


def _name(arm: ArmFacts, facts: RunFacts) -> Cell:
    note = options_in_words(arm)
    if arm is facts.reference:
        note += " · reference"
    return Cell(arm.name, arm.name, note, header=True)


def _reason(arm: ArmFacts) -> str:
    if arm.wrong:
        failed = [check for check in arm.summary["checks"] if not check["passed"]]
        return "; ".join(f"{check['name']}: {check['detail']}" for check in failed)
    return str(arm.unchecked or arm.summary["error"] or arm.summary["missing"] or "")


def _times(ratio: float) -> str:
    if ratio <= 0 or rounded_text("ratio", ratio) == "1.000":
        return ""
    if ratio < 1:
        return f"{notation.number(1 / ratio)}× faster"
    # all digits of the ratio that stands above it
    return f"{rounded_text('ratio', ratio)}× slower"


def _figure(quantity: Any, value: float | None) -> Cell:
    return Cell(rounded_text(quantity, value), value)


def _bytes(arm: ArmFacts, metric: str) -> Cell:
    value, each = arm.figure(metric), arm.per_record(metric)
    note = "" if each is None else f"{notation.number(each)} B/record"
    return Cell(notation.size(value), value, note)


def _checks(arm: ArmFacts) -> Cell:
    checks = arm.summary["checks"]
    if not checks:
        return Cell("none", "none", tone="warn")
    times = sum(check["times"] for check in checks)
    failed = sum(check["failed"] for check in checks)
    if failed:
        text = f"{notation.count(failed)} of {notation.count(times)} failed"
        return Cell(text, text, tone="bad")
    return Cell(f"{notation.count(times)} passed", "passed", tone="good")
