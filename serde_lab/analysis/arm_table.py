"""Builds the table of arms that ends a run, as plain data for the terminal and the report.

Columns and rounding are set here, so that both show the same table.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from serde_lab.analysis.ratios import Ratio, stated_ratio
from serde_lab.analysis.rounding import NOTHING, text

REFERENCE = "reference"

COLUMNS = ("arm", "seconds", "ratio", "CPU ratio", "rows/s", "SerDe CPU", "shuffle", "checks")
"""A cell has one or two lines: the range of seconds below their median, the 95 % interval below each ratio,
the SerDe share below the CPU. The CPU ratio is that of all processes."""

RAW_COLUMNS = (
    *("arm", "kind", "status", "rounds", "seconds", "seconds_min", "seconds_max", "ratio"),
    *(
        "rows_per_s",
        "serde_cpu_s",
        "serde_share",
        "shuffle_bytes",
        "ratio_low",
        "ratio_high",
        "cpu_ratio",
        "cpu_ratio_low",
        "cpu_ratio_high",
        "checks_passed",
        "checks_failed",
    ),
    "note",
)

Lines = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ArmRow:
    """One arm's raw figures; None where a figure is missing or cannot be trusted.

    `serde_share` is the share of all slot time spent in SerDe; `to_reference` is seconds over the reference's
    seconds, `cpu_to_reference` the same of the CPU time of all processes; `note` says in words what is wrong
    or missing.
    """

    arm: str
    kind: str
    status: str
    rounds: int
    seconds: float | None
    seconds_min: float | None
    seconds_max: float | None
    to_reference: Ratio | None
    cpu_to_reference: Ratio | None
    rows_per_s: float | None
    serde_cpu_s: float | None
    serde_share: float | None
    shuffle_bytes: float | None
    checks_passed: int
    checks_failed: int
    note: str

    def cells(self) -> tuple[Lines, ...]:
        """The rounded texts under `COLUMNS`, each cell as its lines."""
        shuffle_mb = None if self.shuffle_bytes is None else self.shuffle_bytes / 1e6
        low, high = text("seconds", self.seconds_min), text("seconds", self.seconds_max)
        role = "" if self.kind == "strategy" else self.kind
        return (
            (self.arm, self.note if self.note == REFERENCE else role),
            (
                text("seconds", self.seconds),
                f"{low}–{high}" if self.rounds > 1 and self.seconds else "",
            ),
            *(
                (NOTHING, "") if ratio is None else (ratio.text, ratio.range)
                for ratio in (self.to_reference, self.cpu_to_reference)
            ),
            (text("rows_per_s", self.rows_per_s), ""),
            (f"{text('seconds', self.serde_cpu_s)} s", text("share", self.serde_share))
            if self.serde_cpu_s is not None
            else (NOTHING, ""),
            (f"{text('megabytes', shuffle_mb)} MB" if shuffle_mb is not None else NOTHING, ""),
            self._checks(),
        )

    def raw(self) -> tuple[object, ...]:
        """The unrounded values under `RAW_COLUMNS`: seconds, bytes, shares of 1."""
        of_ratio: dict[str, float | None] = {}
        for name, ratio in (("ratio", self.to_reference), ("cpu_ratio", self.cpu_to_reference)):
            of_ratio[name] = None if ratio is None else ratio.value
            of_ratio[f"{name}_low"] = None if ratio is None else ratio.low
            of_ratio[f"{name}_high"] = None if ratio is None else ratio.high
        return tuple(
            of_ratio[name] if name in of_ratio else getattr(self, name) for name in RAW_COLUMNS
        )

    @property
    def remark(self) -> str:
        """A line that says what is wrong, unchecked, missing or failed; "" if the arm is fine."""
        return "" if self.status == "ok" and self.note in ("", REFERENCE) else self.note

    @property
    def doubt(self) -> str:
        """A line that says how many rounds more would decide the arm's ratio; "" if it is decided."""
        found = self.to_reference
        if found is None or not found.doubt or self.note == REFERENCE:
            return ""
        return f"{found.text}" + (f" ({found.range}), " if found.range else ", ") + found.doubt

    def _checks(self) -> Lines:
        if not self.checks_passed and not self.checks_failed:
            return ("none", "")
        failed = f"{self.checks_failed} failed" if self.checks_failed else ""
        return (f"{self.checks_passed} passed", failed)


def arm_rows(summary: Mapping[str, Any]) -> list[ArmRow]:
    """The rows of the arms of `summarise`, in their order. All rounding follows `analysis.rounding`."""
    return [_row(arm, summary.get("reference")) for arm in summary["arms"]]


def _row(arm: Mapping[str, Any], reference: str | None) -> ArmRow:
    seconds = arm["seconds"] or {"median": None, "values": [None]}
    failed = sum(check["failed"] for check in arm["checks"])
    return ArmRow(
        arm=arm["arm"],
        kind=arm["kind"],
        status=arm["status"],
        rounds=arm["rounds"],
        seconds=seconds["median"],
        seconds_min=min(seconds["values"]),
        seconds_max=max(seconds["values"]),
        to_reference=stated_ratio(arm),
        cpu_to_reference=stated_ratio(arm, "cpu_"),
        rows_per_s=arm["rows_per_s"],
        serde_cpu_s=arm["serde_cpu_s"],
        serde_share=arm["serde_share"],
        shuffle_bytes=arm["shuffle_bytes"],
        checks_passed=sum(
            check["times"] - check["failed"] - check.get("not_made", 0) for check in arm["checks"]
        ),
        checks_failed=failed,
        note=_note(arm, reference),
    )


def _note(arm: Mapping[str, Any], reference: str | None) -> str:
    if arm["wrong"]:
        failed = next((c for c in arm["checks"] if c["failed"]), None)
        why = f": {failed['name']}: {failed['detail']}" if failed else ""
        return f"wrong answer{why}"
    if arm["unchecked"]:
        return f"unchecked: {arm['unchecked']}"
    if arm["status"] == "missing":
        return f"missing: {arm['missing']}"
    if arm["error"]:
        return f"failed: {arm['error']}"
    return REFERENCE if arm["arm"] == reference else ""
