"""Defines the values of a comparison: its options, its rows with verdicts, and its summary figures."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from serde_lab.analysis.rounding import rounded_ratio
from serde_lab.errors import worst
from serde_lab.gate.compare.comparability import HostMismatch
from serde_lab.gate.compare.evidence import Evidence, NoiseFloor, SideValues
from serde_lab.gate.compare.sides import Quantity
from serde_lab.gate.compare.verdict import UNDECIDED, Judgement, Status, Verdict
from serde_lab.gate.statistics import AlphaSpending
from serde_lab.measure.metrics import METRICS, Metric

CONTENTS = Metric("contents", "1", "exact", "equal", "sum", "checks of contents")
PRIMARY = tuple(
    m.name
    for m in METRICS
    if m.gated and m.name not in ("rows_per_s", "phase_wall_s", "phase_cpu_s")
)
"""The metrics compared by default.

Rows per second would count seconds twice, and phases would spend the level on explanations.
"""


@dataclass(frozen=True, slots=True)
class CompareOptions:
    """How to compare. `metrics` empty means `PRIMARY`; `arms` empty means every arm of either side.

    `by` may hold "phase" and "commit", which add cells for each. `margin` is the change within which an
    interval shows sameness, `bytes_tolerance` the same for compressed bytes. With `spending` the level of a
    cell depends on its number of rounds (an A/B measurement that looked more than once).
    """

    arms: tuple[tuple[str, str], ...] = ()
    metrics: tuple[str, ...] = ()
    phases: tuple[str, ...] = ()
    by: frozenset[str] = frozenset()
    alpha: float = 0.05
    margin: float = 0.05
    bytes_tolerance: float = 0.005
    host_mismatch: HostMismatch = "refuse"
    yardstick: str = ""
    spending: AlphaSpending | None = None
    across_options: bool = False
    """Compare arms of one name although the scenario asks them differently: option sets of `ab`."""


@dataclass(frozen=True, slots=True)
class Row:
    """One compared cell: both samples, the evidence, and the verdict with its reasons."""

    before_arm: str
    after_arm: str
    quantity: Quantity
    metric: Metric
    judgement: Judgement
    before: SideValues | None = None
    after: SideValues | None = None
    evidence: Evidence | None = None
    floor: NoiseFloor = field(default_factory=NoiseFloor)
    alpha: float = 0.05
    scale: str = ""
    marked_rounds: tuple[int, ...] = ()
    new: bool = False
    """For a missing row: True if only `after` has the cell, False if it vanished."""

    @property
    def cell(self) -> tuple[str, str, Quantity]:
        """What is compared, which no two rows of a comparison share."""
        return self.before_arm, self.after_arm, self.quantity

    @property
    def verdict(self) -> Verdict:
        return self.judgement.verdict

    @property
    def arm(self) -> str:
        """The name to show: one arm, or `before -> after`."""
        same = self.before_arm == self.after_arm
        return self.after_arm if same else f"{self.before_arm} -> {self.after_arm}"

    @property
    def ratio(self) -> float | None:
        """After over before, rounded once; None if there is no ratio."""
        if self.evidence is not None:
            return self.evidence.ratio
        if not self.before or not self.after or not self.before.values or not self.after.values:
            return None
        return rounded_ratio(self.after.median / self.before.median) if self.before.median else None

    @property
    def unit(self) -> str:
        """The unit of the medians; a ratio to the yardstick has none."""
        return "" if self.scale or self.metric.unit == "1" else self.metric.unit


@dataclass(frozen=True, slots=True)
class Comparison:
    """All rows of two sides, with the notes that a reader needs."""

    before: str
    after: str
    scenario: str
    rows: tuple[Row, ...]
    notes: tuple[str, ...] = ()
    raised: tuple[str, ...] = ()
    """Cells of `after` that raised although other rounds of their arm succeeded."""
    family: int = 0

    def count(self, *verdicts: Verdict) -> int:
        return sum(row.verdict in verdicts for row in self.rows)

    @property
    def worse(self) -> int:
        """The number of rows that are slower or larger."""
        return self.count(Verdict.SLOWER)

    @property
    def better(self) -> int:
        """The number of rows that are faster or smaller."""
        return self.count(Verdict.FASTER)

    @property
    def undecided(self) -> int:
        return self.count(*UNDECIDED)

    @property
    def judged(self) -> int:
        """The number of measured rows that were compared; with 0 a comparison is empty, and never a pass."""
        return sum(
            row.verdict not in (Verdict.MISSING, Verdict.NOT_COMPARABLE)
            for row in self.rows
            if row.metric is not CONTENTS
        )

    def geometric_means(self) -> dict[str, float]:
        """The geometric mean of the ratios of each metric with statistics, over rows with enough rounds.

        Rows of single commits are left out, since those of the whole cells hold them.
        """
        logs: dict[str, list[float]] = {}
        for row in self.rows:
            tested = row.evidence is not None and row.evidence.testable
            if tested and row.ratio and not row.quantity.commit:
                logs.setdefault(row.metric.name, []).append(math.log(row.ratio))
        return {name: rounded_ratio(math.exp(sum(v) / len(v))) for name, v in logs.items()}

    def exit_status(self, *, strict: bool = False) -> int:
        """The exit status of `compare`, which reports and does not gate: slower alone is no failure.

        1 if nothing was compared or an arm is unchecked, 4 on a wrong answer, 5 under strict if a row is
        undecided.
        """
        statuses = [Status.PASSED]
        unchecked = self.count(Verdict.UNCHECKED)
        if unchecked or (self.judged == 0 and not self.count(Verdict.WRONG_ANSWER)):
            statuses.append(Status.FAILED)
        if self.count(Verdict.WRONG_ANSWER):
            statuses.append(Status.WRONG_ANSWER)
        if strict and self.undecided:
            statuses.append(Status.UNDECIDED)
        return int(worst(statuses))
