"""The registry of metrics: the meaning of each value in `samples.jsonl`, and how values are compared.

Each metric has a name, unit, kind, better direction, and a rule that combines the values of several commits
into one value of a cell. Rounds are always combined by their median.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from serde_lab.errors import RunError

Kind = Literal["time", "exact", "compressed", "memory"]
Better = Literal["lower", "higher", "equal"]
OverCommits = Literal["sum", "max", "last", "mean"]

DETAIL_PREFIX = "spark."
"""Figures of Spark's event log: details of the waits, never added to phases and never gated."""

DRIVER_PREFIX = "driver."
"""Figures of the coordinator: details of idle.driver, never added to phases and never gated."""

HOP_PREFIX = "hop."
"""What each stage sent over the hop after it: details of frames and their bytes, never gated."""


OF_READS = ("first_row_s", "read_while_writing_s", "commits_meanwhile")
"""What is measured beside a timed read, outside its clock; never gated."""


@dataclass(frozen=True, slots=True)
class Metric:
    """One measured quantity.

    `kind`: "time" needs statistics; "exact" is deterministic, so that any difference counts; "compressed" is
    deterministic except for variations of the codec, and compared with a small tolerance; "memory" needs
    statistics and a wide limit. `better` is "equal" if neither direction is better. `gated` is False for
    metrics that explain others and are never judged by themselves.
    """

    name: str
    unit: str
    kind: Kind
    better: Better
    over_commits: OverCommits
    label: str
    gated: bool = True


@dataclass(frozen=True, slots=True)
class Sample:
    """One measured value, in the unit of its metric.

    `commit` counts from 1, None for the whole cell; `phase` is set for `phase_wall_s` and `phase_cpu_s`.
    """

    metric: str
    value: float
    commit: int | None = None
    phase: str | None = None

    @property
    def unit(self) -> str:
        """The unit that the registry gives the metric. Raises RunError for an unknown metric."""
        return metric(self.metric).unit


METRICS = (
    Metric("seconds", "s", "time", "lower", "sum", "wall time"),
    Metric("phase_wall_s", "s", "time", "lower", "sum", "wall time of a phase"),
    Metric("phase_cpu_s", "s", "time", "lower", "sum", "CPU time of a phase"),
    Metric("serde_cpu_s", "s", "time", "lower", "sum", "CPU time of SerDe"),
    Metric("index_cpu_s", "s", "time", "lower", "sum", "CPU time of index records", False),
    Metric("serde_share", "share", "time", "lower", "mean", "SerDe's share of slot time", False),
    Metric("rows_per_s", "1/s", "time", "higher", "mean", "rows a second"),
    Metric("unattributed_share", "share", "time", "lower", "mean", "unattributed share", False),
    Metric("worker_start_s", "s", "time", "lower", "sum", "start of workers, not in a cell", False),
    Metric("session_start_s", "s", "time", "lower", "max", "start of the Spark session", False),
    Metric("spin_s", "s", "time", "lower", "max", "fixed work before the cell", False),
    Metric("others_share", "share", "time", "lower", "max", "share of other processes", False),
    Metric("first_row_s", "s", "time", "lower", "sum", "time to the first row of a read", False),
    Metric(
        "read_while_writing_s", "s", "time", "lower", "sum", "a read while commits go on", False
    ),
    Metric("commits_meanwhile", "1", "time", "equal", "sum", "commits during those reads", False),
    Metric("rows", "1", "exact", "equal", "sum", "rows"),
    Metric("frames", "1", "exact", "lower", "sum", "frames"),
    Metric("frame_bytes", "B", "exact", "lower", "sum", "bytes of frames"),
    Metric("index_records", "1", "exact", "lower", "sum", "index records", False),
    Metric("shuffle_records", "1", "exact", "lower", "sum", "shuffle records"),
    Metric("hops", "1", "exact", "lower", "sum", "hops"),
    Metric("files", "1", "exact", "lower", "sum", "files written"),
    Metric("mini_batches", "1", "exact", "lower", "sum", "mini-batches of file groups", False),
    Metric("slots", "1", "exact", "equal", "max", "task slots"),
    Metric("shuffle_bytes", "B", "compressed", "lower", "sum", "bytes written to the shuffle"),
    Metric("shuffle_read_bytes", "B", "compressed", "lower", "sum", "bytes read from the shuffle"),
    Metric("table_bytes", "B", "compressed", "lower", "last", "bytes of the table"),
    Metric("tree_cpu_s", "s", "time", "lower", "sum", "CPU time of all processes", False),
    Metric(
        "tree_worker_cpu_s",
        "s",
        "time",
        "lower",
        "sum",
        "CPU time of Python workers and what they started",
        False,
    ),
    Metric("tree_peak_bytes", "B", "memory", "lower", "max", "peak memory of all processes", False),
    Metric("peak_worker_rss_bytes", "B", "memory", "lower", "max", "peak memory of a worker"),
)

_BY_NAME = {metric.name: metric for metric in METRICS}


def metric(name: str) -> Metric:
    """The metric called `name`; any name under `spark.`, `driver.` or `hop.` is an ungated detail.

    Raises RunError that lists the known metrics.
    """
    if name.startswith((DETAIL_PREFIX, DRIVER_PREFIX, HOP_PREFIX)):
        return _detail(name)
    try:
        return _BY_NAME[name]
    except KeyError:
        known = ", ".join(sorted(_BY_NAME))
        raise RunError(f"{name!r} is no metric of serde_lab; known are {known}") from None


def _detail(name: str) -> Metric:
    label = name.replace(".", ": ").replace("_", " ")
    if name.endswith("_s"):
        return Metric(name, "s", "time", "lower", "sum", label, gated=False)
    if name.endswith("peak_bytes"):
        return Metric(name, "B", "memory", "lower", "max", label, gated=False)
    if name.endswith("_bytes"):
        return Metric(name, "B", "compressed", "lower", "sum", label, gated=False)
    return Metric(name, "1", "exact", "lower", "sum", label, gated=False)


OPEN_TABLES = f"{DETAIL_PREFIX}open_tables_s"
"""The metric of opening all tables before queries are asked: deciding which files are read."""


def query_metric(query: str) -> str:
    """The metric of a query's seconds, from its text to its last row."""
    return f"{DETAIL_PREFIX}query_{query}_s"
