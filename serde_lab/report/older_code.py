"""Says which figures of a run come from older measuring code than that of this version.

A table is stale if an instrument that its columns use has changed since its run, or if the run does not
record its instruments. It is marked, wherever it is quoted, until `make references` remakes its run.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cache

from serde_lab.measure.instruments import differing_instruments, instruments
from serde_lab.measure.metrics import METRICS
from serde_lab.report.page import Table
from serde_lab.runs.model import RunHeader

UNKNOWN = "the run records no instruments"

_SERDE = ("serde_cpu_s", "frame_bytes")
_OF_TABLE: Mapping[str, tuple[str, ...]] = {
    "times-faster": ("seconds",),
    "round-seconds": ("seconds",),
    "phase-seconds": ("phase_wall_s", "phase_cpu_s"),
    "serde-microseconds": ("phase_cpu_s",),
    "merge-microseconds": ("phase_cpu_s",),
    "codec-record-costs": ("phase_cpu_s", "frame_bytes"),
    "codec-all-types": ("phase_cpu_s", "frame_bytes"),
    "codec-widths": ("phase_cpu_s", "frame_bytes"),
    "outside": ("seconds", "worker_start_s", "session_start_s"),
    "topology-ratios": ("serde_cpu_s",),
    "topology-gains": ("seconds",),
    "topologies": (*_SERDE, "index_cpu_s"),
    "growth": ("seconds",),
    "rfc84": ("seconds", "phase_cpu_s", "frame_bytes"),
    "prediction": _SERDE,
}
"""The metrics of a table's columns that are not named after one."""

_OF_COLUMN: Mapping[str, tuple[str, ...]] = {
    "ratio": ("seconds",),
    "cpu_ratio": ("tree_cpu_s",),
    "by_cpu": ("tree_cpu_s",),
    "cold": ("seconds",),
    "fresh_s": ("seconds",),
    "value": (),
}
_NAMES = tuple(metric.name for metric in METRICS)


def metrics_of(table: Table) -> tuple[str, ...]:
    """The metrics that a table shows; all of them if that is not known."""
    found: dict[str, None] = {}
    for column in table.columns:
        if not column.numeric:
            continue
        own = (column.key,) if column.key in _NAMES else _OF_COLUMN.get(column.key)
        found |= dict.fromkeys(own if own is not None else _OF_TABLE.get(table.name, _NAMES))
    return tuple(found)


def older_instruments(header: RunHeader, metrics: Iterable[str] = _NAMES) -> tuple[str, ...]:
    """The instruments of these metrics that have changed since the run; `UNKNOWN` if it records none."""
    measured = header.code_version.get("instruments")
    if not measured:
        return (UNKNOWN,)
    today = _today(str((header.scenario_content.get("measure") or {}).get("exchange") or "spark"))
    changed = (name for one in metrics for name in differing_instruments(measured, today, one))
    return tuple(dict.fromkeys(changed))


_today = cache(instruments)
