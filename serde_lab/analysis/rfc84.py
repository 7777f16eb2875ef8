"""Sets the figures published for RFC-84 beside those of a run of the same workload.

The published figures are those of the RFC's prototype on Flink (Apache Hudi's pull request 12722: 60 million
rows of lineitem with 20 million keys, MOR upsert, 8 write tasks). Input is a run's summary.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from serde_lab.analysis.rounding import text

COLUMNS = ("quantity", "before", "after", "unit", "change", "RFC-84")
SOURCE = "apache/hudi pull request 12722"


@dataclass(frozen=True, slots=True)
class Claim:
    """One quantity: `before` with Avro, `after` with the typed row, and the change that RFC-84 reports."""

    quantity: str
    before: float
    after: float
    unit: str
    rfc_change: float

    @property
    def change(self) -> float:
        """The relative change: after / before - 1."""
        return self.after / self.before - 1

    def cells(self) -> tuple[str, ...]:
        """Rounded texts under `COLUMNS`."""
        quantity = "megabytes" if self.unit == "MB" else "seconds"
        return (
            self.quantity,
            text(quantity, self.before),  # type: ignore[arg-type]
            text(quantity, self.after),  # type: ignore[arg-type]
            self.unit,
            percentage(self.change),
            percentage(self.rfc_change),
        )

    def to_json(self) -> dict[str, Any]:
        """For `show --format json`."""
        return {**asdict(self), "change": self.change}


def is_rfc84(content: Mapping[str, Any]) -> bool:
    """Whether a scenario asks for this workload: lineitem with its keys on a third of their range."""
    return bool((content.get("data") or {}).get("key_range", "whole") != "whole")


def claims(summary: Mapping[str, Any], content: Mapping[str, Any]) -> list[Claim]:
    """The four quantities, from the first arm of `avro` and the first arm of `internal_row`.

    Empty for another workload, or if one of the two arms has no valid timing.
    """
    if not is_rfc84(content):
        return []
    before, after = (_first(summary, name) for name in ("avro", "internal_row"))
    if before is None or after is None:
        return []
    pairs = (
        ("serialise, CPU", _cpu_s(before, _WRITE), _cpu_s(after, _WRITE), "s", -0.799),
        ("deserialise, CPU", _cpu_s(before, _READ), _cpu_s(after, _READ), "s", -0.958),
        (
            "bytes between operators",
            (before["frame_bytes"] or 0) / 1e6,
            (after["frame_bytes"] or 0) / 1e6,
            "MB",
            -0.299,
        ),
        (
            "total time",
            before["seconds"]["median"],
            after["seconds"]["median"],
            "s",
            -0.311,
        ),
    )
    return [Claim(name, b, a, unit, rfc) for name, b, a, unit, rfc in pairs if b > 0]


def rounds_said(summary: Mapping[str, Any]) -> str:
    """The number of rounds that the figures rest on, in words; one round is a single sample."""
    rounds = min((arm["rounds"] for arm in summary["arms"] if arm["rounds"]), default=0)
    return "a single sample" if rounds == 1 else f"medians of {rounds} rounds"


def rfc84_json(
    summary: Mapping[str, Any], content: Mapping[str, Any], settings: Mapping[str, Any]
) -> dict[str, Any]:
    """For `show --format json`; empty for another workload."""
    found = claims(summary, content)
    if not found:
        return {}
    return {
        "source": SOURCE,
        "samples": rounds_said(summary),
        "rows": settings.get("rows"),
        "different_keys": settings.get("different_keys"),
        "claims": [claim.to_json() for claim in found],
    }


def percentage(share: float) -> str:
    """A change in per cent, one decimal, with its sign."""
    return f"{100 * share:+.1f} %".replace("-", "\N{MINUS SIGN}")


_WRITE = ("from_arrow", "encode")
_READ = ("decode", "to_arrow")


def _first(summary: Mapping[str, Any], strategy: str) -> Mapping[str, Any] | None:
    arms = (arm for arm in summary["arms"] if arm["strategy"] == strategy)
    return next((arm for arm in arms if arm["seconds"] is not None), None)


def _cpu_s(arm: Mapping[str, Any], verbs: tuple[str, ...]) -> float:
    """CPU seconds of these verbs over all stages; serialising includes the strategy's conversions."""
    return sum(
        float(times["cpu_s"])
        for name, times in (arm["phases"] or {}).items()
        if name.rpartition(".")[2] in verbs
    )
