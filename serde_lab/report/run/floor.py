"""Says how many times the floor of the work each arm takes."""

from __future__ import annotations

from serde_lab.analysis.ratios import Ratio
from serde_lab.analysis.run_values import RunValues
from serde_lab.report import notation
from serde_lab.report.page import Cell, Column, Sentence, Table, text_columns


def floor_table(facts: RunValues) -> Table | None:
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
            *_ratio(one.seconds),
            *_ratio(one.cpu),
        )
        for one in found
    )
    caption = (
        "How many times the floor each arm takes: the floor does the same work without SerDe, shuffle and"
        " JVM, on as many cores"
    )
    return Table("times-the-floor", caption, columns, rows)


def _ratio(ratio: Ratio | None) -> tuple[Cell, Cell]:
    if ratio is None:
        absent = Cell(notation.NOTHING, tone="muted")
        return absent, absent
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
    said = [f"{notation.named(one.arm)} takes {_times(one.seconds)}" for one in shown]
    text = (
        f"The floor, {notation.named(floor.name)}, is the same work without SerDe, shuffle and JVM:"
        f" {notation.seconds(floor.seconds)}. Of it, {notation.listed(said)}."
    )
    return (Sentence(text),)


def _times(ratio: Ratio) -> str:
    return f"{ratio.text} times" + (f" (95 % interval {ratio.range})" if ratio.range else "")
