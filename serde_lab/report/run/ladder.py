"""Shows the ladder: from arm to arm, the factor that changed and its effect.

A step has a single cause only if one factor changed, whatever the scenario calls it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from serde_lab.report import notation
from serde_lab.report.page import Cell, Column, Figure, Section, Sentence, Table
from serde_lab.report.plots.drawings import Step, Steps
from serde_lab.report.run.factors import Difference, differences
from serde_lab.report.run.facts import ArmFacts, RunFacts


@dataclass(frozen=True, slots=True)
class Rung:
    """A step of the ladder. `told` is the change that the scenario states."""

    before: ArmFacts
    after: ArmFacts
    found: tuple[Difference, ...]
    told: str

    @property
    def sound(self) -> bool:
        """Whether one factor changed, and the scenario states no other."""
        return len(self.found) == 1 and (not self.told or self.found[0].factor in self.told)

    @property
    def change(self) -> str:
        """The change in words."""
        if not self.found:
            return "nothing: an A/A step, it shows the noise"
        if len(self.found) == 1:
            return f"{self.found[0].factor}: {self.found[0].words}"
        return f"{notation.listed([d.factor for d in self.found])} at once: no single cause"


def ladder_section(facts: RunFacts) -> Section | None:
    """The section, or None with fewer than two strategies."""
    arms = [arm for arm in facts.arms if arm.kind == "strategy"]
    if len(arms) < 2:
        return None
    rungs = [
        Rung(before, after, differences(before, after), after.changes)
        for before, after in pairwise(arms)
    ]
    blocks: list[Figure | Table | Sentence] = [_lead(rungs)]
    if any(arm.seconds is not None for arm in arms):
        blocks.append(_figure(arms, rungs))
    blocks.append(_table(rungs))
    is_ladder = any(arm.changes for arm in arms)
    heading = "The ladder: what each step changes" if is_ladder else "What changes from arm to arm"
    return Section("ladder", heading, tuple(blocks))


def _lead(rungs: Sequence[Rung]) -> Sentence:
    mixed = [rung for rung in rungs if len(rung.found) > 1]
    lying = [rung for rung in rungs if len(rung.found) == 1 and not rung.sound]
    if not mixed and not lying:
        return Sentence("Every step changes one factor, so that every step has one cause.")
    parts = []
    if mixed:
        names = notation.listed(
            [f"{notation.named(r.before.name)} to {notation.named(r.after.name)}" for r in mixed]
        )
        one = len(mixed) == 1
        parts.append(
            f"{'A step changes' if one else f'{len(mixed)} steps change'} several factors at once"
            f" ({names}): no figure of {'it' if one else 'theirs'} says that a format is faster."
        )
    for rung in lying:
        parts.append(
            f"The scenario says that {notation.named(rung.after.name)} changes {rung.told!r}; its"
            f" options differ from those of {notation.named(rung.before.name)} in {rung.found[0].factor}."
        )
    return Sentence(" ".join(parts), "warn")


def _figure(arms: Sequence[ArmFacts], rungs: Sequence[Rung]) -> Figure:
    steps = []
    for i, arm in enumerate(arms):
        rung = rungs[i - 1] if i else None
        steps.append(
            Step(
                label=arm.name,
                value=arm.seconds,
                value_text=notation.seconds(arm.seconds)
                if arm.seconds is not None
                else arm.absence,
                change=f"{rung.change} · {_effect(rung)}" if rung else "",
                sound=rung is None or rung.sound,
            )
        )
    return Figure(
        name="ladder",
        title="Seconds from step to step",
        description="Bars in the order of the ladder: "
        + "; ".join(
            f"{step.label} {step.value_text}" + (f" ({step.change})" if step.change else "")
            for step in steps
        )
        + ".",
        drawing=Steps(axis="seconds end to end, median of rounds", steps=tuple(steps)),
    )


def _effect(rung: Rung) -> str:
    before, after = rung.before.seconds, rung.after.seconds
    if not before or not after:
        return "no timing to compare"
    return _times(after / before, "the time")


def _times(ratio: float, of: str) -> str:
    return f"{notation.number(ratio)}× {of}"


def _table(rungs: Sequence[Rung]) -> Table:
    columns = (
        Column("step", "step", numeric=False),
        Column("factor", "factor", numeric=False),
        Column("seconds_ratio", "seconds", about="after over before: below 1 is faster"),
        Column("serde_ratio", "SerDe CPU", about="after over before"),
        Column("frame_bytes_ratio", "frame bytes", about="after over before"),
        Column("shuffle_bytes_ratio", "shuffle bytes", about="after over before"),
    )
    return Table(
        "ladder-steps",
        "What each step of the ladder changes: after over before",
        columns,
        tuple(_row(rung) for rung in rungs),
        sortable=False,
    )


def _row(rung: Rung) -> tuple[Cell, ...]:
    factors = notation.listed([d.factor for d in rung.found]) or "none"
    words = "; ".join(d.words for d in rung.found)
    if rung.after.note:
        words = f"{words}: {rung.after.note}" if words else rung.after.note
    return (
        Cell(f"{rung.before.name} → {rung.after.name}", None, header=True),
        Cell(factors, factors, words, "" if rung.sound else "warn"),
        _ratio(rung.before.seconds, rung.after.seconds),
        _ratio(rung.before.figure("serde_cpu_s"), rung.after.figure("serde_cpu_s")),
        _ratio(rung.before.per_record("frame_bytes"), rung.after.per_record("frame_bytes")),
        _ratio(rung.before.per_record("shuffle_bytes"), rung.after.per_record("shuffle_bytes")),
    )


def _ratio(before: float | None, after: float | None) -> Cell:
    if not before or after is None:
        return Cell(notation.NOTHING, None, tone="muted")
    return Cell(notation.ratio(after / before), after / before)
