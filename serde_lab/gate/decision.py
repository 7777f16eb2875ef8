"""Turns a comparison into a gate's findings and one exit status, by the limits of a policy.

    1  nothing was compared, an arm vanished or raised, or its contents went unchecked
    4  a wrong answer
    3  a regression: significant, above the noise floor, and beyond both limits
    5  nothing wrong, but something could not be decided (only under `strict`, else 0)

The worst status wins, in the order 1, 2, 4, 3, 5. A cell passes because its interval excludes a regression
larger than the limits, not because no regression was found; no time passes if the machine itself moved by
more than that between two runs.

The limits come from the scenario's `[gate]` table, with overrides by arm, phase and metric:

    [gate]
    relative = 0.05      a regression is larger than this share ...
    absolute = 0.02      ... and, for times, than this many seconds
    bytes = 0.005        compressed bytes may grow by this share; exact quantities never
    memory = 0.3         peak memory may grow by this share, and by 32 MiB
    alpha = 0.05         the level of significance, over all cells
    metrics = ["seconds", "serde_cpu_s", "frame_bytes", ...]   the gated metrics, by default all
    control = "spark_native"   across machine classes, times are ratios to this arm's time

    [[gate.limit]]       applies only to what it names; the last match wins
    arm = "avro"
    phase = "map.encode"
    metric = "phase_cpu_s"
    relative = 0.2
    absolute = 0.005
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Literal

from serde_lab.analysis.rounding import (
    rounded_change,
    rounded_ratio,
    shown_change,
    shown_ratio,
    shown_value,
)
from serde_lab.errors import RunError, ScenarioError, worst
from serde_lab.gate.compare.rows import Comparison, Row
from serde_lab.gate.compare.steadiness import CALIBRATED
from serde_lab.gate.compare.verdict import Inequality, Status, Verdict, changed, less, more
from serde_lab.measure.metrics import metric

MEMORY_ABSOLUTE_BYTES = 32 * 2**20


@dataclass(frozen=True, slots=True)
class Limits:
    """The allowed change of one cell; a regression exceeds both limits."""

    relative: float
    absolute: float


@dataclass(frozen=True, slots=True)
class LimitOverride:
    """One `[[gate.limit]]`: the cells it applies to (empty means all), and the limits it sets."""

    arm: str = ""
    phase: str = ""
    metric: str = ""
    relative: float | None = None
    absolute: float | None = None

    def fits(self, arm: str, metric_name: str, phase: str) -> bool:
        return (
            self.arm in ("", arm) and self.metric in ("", metric_name) and self.phase in ("", phase)
        )


@dataclass(frozen=True, slots=True)
class Policy:
    """The limits of a gate. Relative limits are shares, `absolute` is in seconds."""

    relative: float = 0.05
    absolute: float = 0.02
    bytes: float = 0.005
    memory: float = 0.3
    alpha: float = 0.05
    metrics: tuple[str, ...] = ()
    control: str = ""
    limits: tuple[LimitOverride, ...] = ()

    @classmethod
    def from_table(cls, table: Mapping[str, Any]) -> Policy:
        """Read a `[gate]` table; raises ScenarioError naming the key and the known ones."""
        overrides = table.get("limit") or table.get("limits") or ()
        rest = {key: value for key, value in table.items() if key not in ("limit", "limits")}
        values = _given(rest, cls, "[gate]")
        if "metrics" in values:
            values["metrics"] = tuple(values["metrics"])
        limits = [LimitOverride(**_given(one, LimitOverride, "[gate.limit]")) for one in overrides]
        policy = cls(**values, limits=tuple(limits))
        for name in (*policy.metrics, *(one.metric for one in policy.limits if one.metric)):
            try:
                metric(name)
            except RunError as exc:
                raise ScenarioError(f"[gate]: {exc.message}") from exc
        return policy

    def limits_of(self, row: Row) -> Limits:
        """The limits of one row, after all matching overrides; one without a metric is for times alone."""
        if row.metric.kind == "memory":
            relative, absolute = self.memory, float(MEMORY_ABSOLUTE_BYTES)
        else:
            relative, absolute = self.relative, self.absolute if row.metric.unit == "s" else 0.0
        for one in self.limits:
            fits = one.fits(row.after_arm, row.quantity.metric, row.quantity.phase)
            if fits and (one.metric or row.metric.kind == "time"):
                relative = relative if one.relative is None else one.relative
                absolute = absolute if one.absolute is None else one.absolute
        return Limits(relative, absolute)

    @property
    def phase_metrics(self) -> tuple[str, ...]:
        """The phase metrics that an override names: only these are gated by phase."""
        asked = {one.metric or "phase_cpu_s" for one in self.limits if one.phase}
        return tuple(sorted(asked))

    @property
    def phases(self) -> tuple[str, ...]:
        return tuple(sorted({one.phase for one in self.limits if one.phase}))


_SHARES = ("relative", "absolute", "bytes", "memory", "alpha")


def _given(table: Mapping[str, Any], kind: type, where: str) -> dict[str, Any]:
    """The keys that a table gives, all of them fields of `kind`, with its shares as floats."""
    values = {key: value for key, value in table.items() if value is not None}
    known = sorted(field.name for field in fields(kind))
    for key in values:
        if key not in known:
            raise ScenarioError(f"{where} has no key {key!r}; known are {', '.join(known)}")
    for key in [key for key in _SHARES if key in values]:
        value = values[key]
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1e12:
            raise ScenarioError(f"{where} {key} is {value!r}; expected a number from 0")
        values[key] = float(value)
    return values


Level = Literal["failed", "wrong answer", "regression", "undecided", "passed"]

WORST_FIRST: tuple[Level, ...] = ("failed", "wrong answer", "regression", "undecided", "passed")

_STATUS: dict[Level, Status] = {
    "failed": Status.FAILED,
    "wrong answer": Status.WRONG_ANSWER,
    "regression": Status.REGRESSION,
    "undecided": Status.UNDECIDED,
    "passed": Status.PASSED,
}


@dataclass(frozen=True, slots=True)
class GateFinding:
    """The gate's finding on one row, or on the whole comparison if `row` is None."""

    level: Level
    text: str
    row: Row | None = None
    inequalities: tuple[Inequality, ...] = ()

    @property
    def status(self) -> Status:
        """The exit status of this finding alone, under strict."""
        return _STATUS[self.level]


@dataclass(frozen=True, slots=True)
class GateResult:
    """The findings on all rows, and the exit status they lead to."""

    comparison: Comparison
    findings: tuple[GateFinding, ...]
    strict: bool = False
    confirmed: bool = False
    """Whether failing cells were measured again and failed again."""

    @property
    def exit_status(self) -> int:
        """0, 1, 3, 4 or 5; undecided findings count only under strict."""
        status = worst(finding.status for finding in self.findings)
        return int(status if self.strict or status != Status.UNDECIDED else Status.PASSED)

    def of_level(self, level: Level) -> tuple[GateFinding, ...]:
        return tuple(finding for finding in self.findings if finding.level == level)

    def level_of(self, row: Row) -> Level:
        """The gate's verdict on one row of the comparison; a gate shows no other."""
        return next(f.level for f in self.findings if f.row is not None and f.row.cell == row.cell)

    @property
    def failing_arms(self) -> tuple[str, ...]:
        """Arms with a regression in a noisy quantity, which a second measurement may clear."""
        return tuple(
            sorted(
                {
                    finding.row.after_arm
                    for finding in self.of_level("regression")
                    if finding.row is not None and finding.row.evidence is not None
                }
            )
        )


def decide(comparison: Comparison, policy: Policy, *, strict: bool = False) -> GateResult:
    """Compare every row of a comparison with the limits."""
    findings = [GateFinding("failed", raised) for raised in comparison.raised]
    findings += [_finding(row, policy) for row in comparison.rows]
    wrong = any(finding.level == "wrong answer" for finding in findings)
    if comparison.judged == 0 and not wrong:
        reasons = [f.text for f in findings if f.level != "passed"] or ["there is no row"]
        findings.insert(0, GateFinding("failed", f"nothing was compared: {reasons[0]}"))
    return GateResult(comparison, tuple(findings), strict)


def _finding(row: Row, policy: Policy) -> GateFinding:
    because = row.judgement.because
    reasons = row.judgement.inequalities
    match row.verdict:
        case Verdict.WRONG_ANSWER:
            return GateFinding("wrong answer", because, row)
        case Verdict.UNCHECKED:
            return GateFinding("failed", f"unchecked: {because}", row)
        case Verdict.MISSING:
            # A vanished cell fails; a new cell has nothing to be compared with.
            return GateFinding("undecided" if row.new else "failed", because, row)
        case Verdict.NOT_COMPARABLE | Verdict.INSUFFICIENT:
            return GateFinding("undecided", f"{row.verdict}: {because}", row, reasons)
    if row.evidence is not None:
        return _noisy(row, policy.limits_of(row))
    if row.verdict is Verdict.SLOWER:
        return GateFinding("regression", because, row, reasons)
    if row.verdict is Verdict.INCONCLUSIVE:
        return GateFinding("undecided", because, row, reasons)
    return GateFinding("passed", because, row, reasons)


def _noisy(row: Row, limits: Limits) -> GateFinding:
    """A regression beyond the limits; passed if the interval excludes one, undecided if it does not."""
    found = row.evidence
    assert found is not None
    interval = found.interval
    if interval is None:
        level: Level = "passed" if row.verdict is Verdict.SAME else "undecided"
        return GateFinding(level, row.judgement.because, row)
    # A ratio to a control arm has no seconds: the wide floor serves as the relative limit.
    relative = max(limits.relative, row.floor.change) if row.scale else limits.relative
    absolute = 0.0 if row.scale else limits.absolute
    lower_is_better = row.metric.better != "higher"
    worse_by = changed(interval.ratio) if (interval.ratio > 1) == lower_is_better else 0.0
    step = found.step
    beyond: tuple[Inequality, ...] = (
        more("change for the worse against the relative limit", worse_by, relative),
        more("change against the absolute limit", step, absolute),
    )
    if row.scale:
        # machines differ by more than a sample shows: the whole interval must lie beyond the limit
        best = interval.low if lower_is_better else 1 / interval.high
        what = "better end of the interval against the limit"
        beyond += (more(what, rounded_ratio(best), rounded_ratio(1 + relative)),)
    if row.verdict is Verdict.SLOWER and all(limit.holds for limit in beyond):
        by = f"{shown_change(worse_by)} and {shown_value(step, row.scale or row.metric.unit)}"
        text = f"{row.judgement.because}; worse by {by}"
        return GateFinding("regression", text, row, (*row.judgement.inequalities, *beyond))
    end = interval.high
    if not lower_is_better:
        end = 1 / interval.low if interval.low else math.inf
    # The larger limit counts, since a regression must exceed both.
    median = found.before.median
    bound = rounded_ratio(max(1 + relative, 1 + absolute / median if median else 1.0))
    excluded = less("worse end of the interval against the limits", rounded_ratio(end), bound)
    reasons = (*row.judgement.inequalities, *beyond, excluded)
    # The interval may rest on marked rounds alone: then it excludes nothing. Nor does it if the machine
    # itself moved by more than the limits between the two runs, which no interval of rounds shows.
    shaken = row.verdict is Verdict.INCONCLUSIVE and bool(row.marked_rounds)
    if row.floor.source == CALIBRATED and not row.scale:
        still = less(
            "noise floor (calibration) against the limits",
            row.floor.change,
            rounded_change(bound - 1),
        )
        reasons = (*reasons, still)
        shaken = shaken or not still.holds
    passed = row.verdict is Verdict.FASTER or (excluded.holds and not shaken)
    words = "is excluded" if passed else "is not excluded"
    text = f"a regression beyond {shown_ratio(bound)} {words}; {row.judgement.because}"
    return GateFinding("passed" if passed else "undecided", text, row, reasons)
