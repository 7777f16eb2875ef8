"""Shows the ladder: from arm to arm, the factors that changed and their effect.

Factors are representation, execution, framing, integrity, topology, source, shuffle, settings and table. A
step has a single cause only if one factor changed, whatever the scenario calls it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise, permutations
from typing import Any

from serde_lab.analysis.ratios import Ratio, paired_ratio
from serde_lab.analysis.run_values import ArmValues, RunValues
from serde_lab.report import notation
from serde_lab.report.page import (
    MISSING,
    Cell,
    Column,
    Figure,
    Section,
    Sentence,
    Table,
    ratio_cell,
    text_columns,
)
from serde_lab.report.plots.drawings import Step, Steps


@dataclass(frozen=True, slots=True)
class LadderStep:
    """A step of the ladder. `stated` is the change that the scenario states."""

    before: ArmValues
    after: ArmValues
    found: tuple[Difference, ...]
    stated: str

    def ratio(self, metric: str) -> Ratio | None:
        """After over before; None without a common round."""
        return paired_ratio(self.after.by_round(metric), self.before.by_round(metric))

    @property
    def sound(self) -> bool:
        """Whether one factor changed, and the scenario states no other."""
        return len(self.found) == 1 and (not self.stated or self.found[0].factor in self.stated)

    @property
    def change(self) -> str:
        if not self.found:
            return "nothing, so the difference is noise (A/A)"
        if len(self.found) == 1:
            return f"{self.found[0].factor}: {self.found[0].words}"
        return f"{notation.listed([d.factor for d in self.found])} at once, so there is no single cause"


def ladder_section(facts: RunValues) -> Section | None:
    """The section, or None with fewer than two strategies."""
    arms = facts.strategy_arms
    if len(arms) < 2:
        return None
    steps = [
        LadderStep(before, after, differences(before, after), after.changes)
        for before, after in pairwise(arms)
    ]
    blocks: list[Figure | Table | Sentence] = [_lead(steps)]
    if any(arm.seconds is not None for arm in arms):
        blocks.append(_figure(arms, steps))
    blocks.append(_table(steps))
    is_ladder = any(arm.changes for arm in arms)
    heading = "The ladder: what each step changes" if is_ladder else "What changes from arm to arm"
    return Section("ladder", heading, tuple(blocks))


def _lead(steps: Sequence[LadderStep]) -> Sentence:
    mixed = [step for step in steps if len(step.found) > 1]
    lying = [step for step in steps if len(step.found) == 1 and not step.sound]
    if not mixed and not lying:
        return Sentence("Every step changes one factor, so each step has one cause.")
    parts = []
    if mixed:
        names = notation.listed(
            [f"{notation.named(r.before.name)} to {notation.named(r.after.name)}" for r in mixed]
        )
        one = len(mixed) == 1
        parts.append(
            f"{'A step changes' if one else f'{len(mixed)} steps change'} several factors at once"
            f" ({names}): {'its' if one else 'their'} figures do not show that a format is faster."
        )
    for step in lying:
        parts.append(
            f"The scenario says that {notation.named(step.after.name)} changes {step.stated!r}; its"
            f" options differ from those of {notation.named(step.before.name)} in {step.found[0].factor}."
        )
    return Sentence(" ".join(parts), "warn")


def _figure(arms: Sequence[ArmValues], steps: Sequence[LadderStep]) -> Figure:
    drawn = []
    for i, arm in enumerate(arms):
        step = steps[i - 1] if i else None
        drawn.append(
            Step(
                label=arm.name,
                value=arm.seconds,
                value_text=notation.seconds(arm.seconds)
                if arm.seconds is not None
                else arm.absence,
                change=f"{step.change} · {_effect(step)}" if step else "",
                sound=step is None or step.sound,
            )
        )
    return Figure(
        name="ladder",
        title="Seconds from step to step",
        description="Bars in the order of the ladder: "
        + "; ".join(
            f"{bar.label} {bar.value_text}" + (f" ({bar.change})" if bar.change else "")
            for bar in drawn
        )
        + ".",
        drawing=Steps(axis="seconds end to end, median of rounds", steps=tuple(drawn)),
    )


def _effect(step: LadderStep) -> str:
    ratio = step.ratio("seconds")
    if ratio is None:
        return "no timing to compare"
    return f"{ratio.text} times the time" + (f" ({ratio.range})" if ratio.range else "")


def _table(steps: Sequence[LadderStep]) -> Table:
    columns = (
        *text_columns("step", "factor"),
        Column("seconds_ratio", "seconds", about="after over before, with 95 % interval"),
        Column("serde_ratio", "SerDe CPU", about="after over before, with 95 % interval"),
        Column("frame_bytes_ratio", "frame bytes", about="after over before"),
        Column("shuffle_bytes_ratio", "shuffle bytes", about="after over before"),
    )
    return Table(
        "ladder-steps",
        "What each step of the ladder changes: after over before",
        columns,
        tuple(_row(step) for step in steps),
        sortable=False,
    )


def _row(step: LadderStep) -> tuple[Cell, ...]:
    factors = notation.listed([d.factor for d in step.found]) or "none"
    words = "; ".join(d.words for d in step.found)
    if step.after.note:
        words = f"{words}: {step.after.note}" if words else step.after.note
    return (
        Cell(f"{step.before.name} → {step.after.name}", None, header=True),
        Cell(factors, factors, words, "" if step.sound else "warn"),
        *(ratio_cell(step.ratio(metric)) for metric in ("seconds", "serde_cpu_s")),
        *(_bytes(step, metric) for metric in ("frame_bytes", "shuffle_bytes")),
    )


def _bytes(step: LadderStep, metric: str) -> Cell:
    before, after = step.before.per_record(metric), step.after.per_record(metric)
    if not before or after is None:
        return MISSING
    return Cell(notation.ratio(after / before), after / before)


def columns_sentences(
    candidates: Sequence[ArmValues], alike: Sequence[ArmValues]
) -> tuple[Sentence, ...]:
    """What whole columns give: each pair with one of `candidates` whose arms differ in execution alone."""
    said = []
    for by_row, by_column in permutations(alike, 2):
        if by_row not in candidates and by_column not in candidates:
            continue
        ratio = paired_ratio(by_row.seconds_by_round, by_column.seconds_by_round)
        differ = differences(by_row, by_column)
        if ratio is not None and differ == (Difference("execution", "row to batch"),):
            names = notation.named(by_column.name), notation.named(by_row.name)
            doubt = f" ({ratio.doubt})" if ratio.doubt else ""
            said.append(f"{names[0]} is {ratio.times} as fast as {names[1]}{doubt}")
    if not said:
        return ()
    return (Sentence(f"Whole columns in place of rows: {notation.listed(said)}."),)


_FRAMING = ("rows_per_frame", "max_frame_bytes")
_COMMON = frozenset({"execution", "integrity", "topology", *_FRAMING})
_UNSTATED = {"source_reader": "auto", "shuffle": "dataframe"}
"""The values of options that runs record only where they differ from these."""
_SETTINGS = ("hoodie.", "spark.")
"""How the keys of an arm's `settings` begin; options of strategies begin otherwise."""


@dataclass(frozen=True, slots=True)
class Difference:
    """One factor in which two arms differ, with a description of the change."""

    factor: str
    words: str


def differences(before: ArmValues, after: ArmValues) -> tuple[Difference, ...]:
    """Every factor in which `after` differs from `before`; a peer or a control differs as a whole."""
    if before.kind != "strategy" or after.kind != "strategy":
        return (Difference("the whole arm", f"{before.name} to {after.name}"),)
    one, other = before.options, after.options
    found = []
    if _representation(before) != _representation(after):
        words = f"{_said(before)} to {_said(after)}"
        found.append(Difference("representation", words))
    # an option that is not recorded, or empty, has the strategy's own default
    same_strategy = before.strategy == after.strategy
    for factor, keys in (
        ("execution", ("execution",)),
        ("framing", _FRAMING),
        ("integrity", ("integrity",)),
        ("topology", ("topology",)),
        ("source", ("source_reader",)),
        ("shuffle", ("shuffle",)),
        ("settings", tuple(dict.fromkeys(k for k in (*one, *other) if k.startswith(_SETTINGS)))),
    ):
        changed = [key for key in keys if one.get(key) != other.get(key)]
        unknown = [key for key in keys if not one.get(key) and not other.get(key)]
        if changed:
            words = ", ".join(_changed(key, one, other) for key in changed)
            found.append(Difference(factor, words))
        elif factor == "execution" and unknown and not same_strategy:
            found.append(Difference(factor, "not recorded: each strategy's own default"))
    if before.merging != after.merging:
        words = f"{_merging(before)} to {_merging(after)}"
        found.append(Difference("merging", words))
    if before.table != after.table:
        words = f"{_files(before) or 'as [table] says'} to {_files(after) or 'as [table] says'}"
        found.append(Difference("table", words))
    return tuple(found)


def options_in_words(arm: ArmValues) -> str:
    """The strategy and its options in one line: internal_row · batch · 1,000 a frame."""
    if arm.kind != "strategy":
        return " · ".join(part for part in (arm.kind, _files(arm)) if part)
    options = arm.options
    parts = [arm.strategy]
    if options.get("execution"):
        parts.append(str(options["execution"]))
    if "rows_per_frame" in options:
        parts.append(_framing(options["rows_per_frame"]))
    if options.get("integrity") not in (None, "none"):
        parts.append(str(options["integrity"]))
    if options.get("topology"):
        parts.append(str(options["topology"]))
    parts += [f"{key}={value}" for key, value in options.items() if key not in _COMMON]
    parts.append(_files(arm))
    return " · ".join(part for part in parts if part)


def _merging(arm: ArmValues) -> str:
    return ", ".join(f"{key}={value}" for key, value in arm.merging.items()) or "as [table] says"


def _files(arm: ArmValues) -> str:
    return ", ".join(str(value) for value in arm.table.values())


def _representation(arm: ArmValues) -> tuple[object, ...]:
    own = {key: value for key, value in arm.options.items() if _is_own(key)}
    return arm.strategy, tuple(sorted((key, repr(value)) for key, value in own.items()))


def _is_own(option: str) -> bool:
    """Whether an option is the strategy's own."""
    return option not in _COMMON | _UNSTATED.keys() and not option.startswith(_SETTINGS)


def _said(arm: ArmValues) -> str:
    own = [f"{key}={value}" for key, value in arm.options.items() if _is_own(key)]
    return f"{arm.strategy} ({', '.join(own)})" if own else arm.strategy


def _changed(key: str, one: Mapping[str, Any], other: Mapping[str, Any]) -> str:
    if key == "rows_per_frame":
        return f"{_framing(one.get(key))} to {_framing(other.get(key))}"
    before, after = (arm.get(key, _UNSTATED.get(key)) for arm in (one, other))
    words = f"{_value(before)} to {_value(after)}"
    return words if key in ("execution", "integrity", "topology") else f"{key} {words}"


def _framing(rows: object) -> str:
    if rows == 0:
        return "whole batch per frame"
    if isinstance(rows, int):
        return f"{notation.plural(rows, 'record')} per frame"
    return "default framing"


def _value(value: object) -> str:
    return "default" if value in (None, "") else str(value)
