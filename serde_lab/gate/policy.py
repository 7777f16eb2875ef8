"""Reads the limits of a gate from the scenario's `[gate]` table, with overrides by arm, phase and metric.

The keys:

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

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from serde_lab.errors import RunError, ScenarioError
from serde_lab.gate.compare.rows import Row
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
    def from_table(cls, table: Mapping[str, Any], where: str = "[gate]") -> Policy:
        """Read a `[gate]` table; raises ScenarioError naming the key and the known ones."""
        values = {key: value for key, value in table.items() if value is not None}
        overrides = values.pop("limit", values.pop("limits", ()))
        _check_keys(values, cls, where)
        for key in ("relative", "absolute", "bytes", "memory", "alpha"):
            if key in values:
                values[key] = _share(values[key], f"{where} {key}")
        if "metrics" in values:
            values["metrics"] = tuple(values["metrics"])
        policy = cls(**values, limits=tuple(_override(one, where) for one in overrides))
        for name in (*policy.metrics, *(one.metric for one in policy.limits if one.metric)):
            try:
                metric(name)
            except RunError as exc:
                raise ScenarioError(f"{where}: {exc.message}") from exc
        return policy

    def limits_of(self, row: Row) -> Limits:
        """The limits of one row, after all matching overrides."""
        if row.metric.kind == "memory":
            relative, absolute = self.memory, float(MEMORY_ABSOLUTE_BYTES)
        else:
            relative, absolute = self.relative, self.absolute if row.metric.unit == "s" else 0.0
        for one in self.limits:
            if one.fits(row.after_arm, row.quantity.metric, row.quantity.phase):
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


def _override(table: Mapping[str, Any], where: str) -> LimitOverride:
    values = {key: value for key, value in table.items() if value is not None}
    where = f"{where.rstrip(']')}.limit]"
    _check_keys(values, LimitOverride, where)
    for key in ("relative", "absolute"):
        if key in values:
            values[key] = _share(values[key], f"{where} {key}")
    return LimitOverride(**values)


def _check_keys(table: Mapping[str, Any], kind: type, where: str) -> None:
    known = sorted(field.name for field in fields(kind))
    for key in table:
        if key not in known:
            raise ScenarioError(f"{where} has no key {key!r}; known are {', '.join(known)}")


def _share(value: object, where: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1e12:
        raise ScenarioError(f"{where} is {value!r}; expected a number from 0")
    return float(value)
