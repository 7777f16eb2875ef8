"""The table of arms that ends a run, as plain data: the terminal and the report draw the same.

Owns columns and their rounding. Must not know terminals, HTML or colours.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from serde_lab.runs.rounding import text

COLUMNS = (
    "arm",
    "seconds",
    "rows/s",
    "SerDe CPU s",
    "SerDe share",
    "shuffle MB",
    "ratio",
    "note",
)


@dataclass(frozen=True, slots=True)
class ArmRow:
    """One arm: raw figures, None where there is nothing to show or to believe.

    `serde_share` is the share of all slot time that the four verbs and route take; `ratio` is
    seconds over the reference's seconds; `note` says in words what is wrong or missing.
    """

    arm: str
    kind: str
    status: str
    seconds: float | None
    rows_per_s: float | None
    serde_cpu_s: float | None
    serde_share: float | None
    shuffle_mb: float | None
    ratio: float | None
    note: str

    def cells(self) -> tuple[str, ...]:
        """The rounded texts under `COLUMNS`."""
        return (
            self.arm,
            text("seconds", self.seconds),
            text("rows_per_s", self.rows_per_s),
            text("seconds", self.serde_cpu_s),
            text("share", self.serde_share),
            text("megabytes", self.shuffle_mb),
            text("ratio", self.ratio),
            self.note,
        )


def arm_rows(summary: Mapping[str, Any]) -> list[ArmRow]:
    """The rows of `summarise`'s arms, in their order; all rounding is `runs.rounding`'s."""
    return [_row(arm, summary.get("reference")) for arm in summary["arms"]]


def _row(arm: Mapping[str, Any], reference: str | None) -> ArmRow:
    shuffle_bytes = arm["shuffle_bytes"]
    return ArmRow(
        arm=arm["arm"],
        kind=arm["kind"],
        status=arm["status"],
        seconds=arm["seconds"]["median"] if arm["seconds"] else None,
        rows_per_s=arm["rows_per_s"],
        serde_cpu_s=arm["serde_cpu_s"],
        serde_share=arm["serde_share"],
        shuffle_mb=None if shuffle_bytes is None else shuffle_bytes / 1e6,
        ratio=arm["ratio_to_reference"],
        note=_note(arm, reference),
    )


def _note(arm: Mapping[str, Any], reference: str | None) -> str:
    if arm["wrong"]:
        failed = next((c for c in arm["checks"] if not c["passed"]), None)
        why = f": {failed['name']}: {failed['detail']}" if failed else ""
        return f"wrong answer{why}"
    if arm["unchecked"]:
        return f"unchecked: {arm['unchecked']}"
    if arm["status"] == "missing":
        return f"missing: {arm['missing']}"
    if arm["error"]:
        return f"failed: {arm['error']}"
    if arm["arm"] == reference:
        return "reference"
    return "" if arm["kind"] == "strategy" else str(arm["kind"])
