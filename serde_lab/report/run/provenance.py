"""Shows where a result comes from: environment, settings, data, raw values, and how to repeat it.

A table is stale if an instrument that its columns use has changed since its run, or if the run does not
record its instruments. It is marked, wherever it is quoted, until `make references` remakes its run.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path

from serde_lab.analysis.cell_values import CommitValues, cell_values
from serde_lab.analysis.run_values import RunValues
from serde_lab.measure import phases
from serde_lab.measure.code_version import differing_instruments, instruments
from serde_lab.measure.metrics import METRICS
from serde_lab.measure.phases import PhaseSeconds
from serde_lab.report import notation
from serde_lab.report.page import (
    Block,
    Cell,
    Column,
    Commands,
    Facts,
    Section,
    Sentence,
    Table,
    text_columns,
)
from serde_lab.runs.model import Run, RunHeader

_LONG_TEXT = 400

_FIRST = (
    ("cpu.model", "processor"),
    ("cpu.cores", "cores"),
    ("memory.bytes", "memory"),
    ("disk.filesystem", "file system"),
    ("os.distribution", "operating system"),
    ("os.kernel", "kernel"),
    ("python.version", "Python"),
    ("java.version", "Java"),
    ("packages.pyspark", "pyspark"),
    ("packages.pyarrow", "pyarrow"),
    ("packages.numpy", "numpy"),
    ("packages.fastavro", "fastavro"),
    ("packages.hudi", "hudi-rs"),
)
"""The environment keys that are not folded."""


def environment_section(facts: RunValues) -> Section:
    """Machine, versions, code, settings, data and the scenario in full."""
    header = facts.run.header
    found = dict(flattened(header.environment))
    first = ((label, found.get(key, "")) for key, label in _FIRST)
    shown = tuple((key, value) for key, value in first if value)
    # the section on peers shows the options of writes
    settings = {k: v for k, v in header.settings.items() if k != "write_options"}
    blocks: list[Block] = [Facts((("machine class", header.machine_class), *shown))]
    for title, value in (
        ("The environment in full", header.environment),
        ("Code version", header.code_version),
        ("Spark settings", header.spark_conf),
        ("Settings of the run", {"seed": header.seed, **settings}),
        ("Checksums of the data", header.data_checksums),
        ("The scenario in full", header.scenario_content),
    ):
        facts_found = tuple(flattened(value))
        if facts_found:
            blocks.append(Facts(facts_found, folded=title))
    return Section("environment", "Environment", tuple(blocks))


def flattened(value: object, key: str = "") -> Iterator[tuple[str, str]]:
    """Nested mappings and lists as pairs of a dotted key and a text."""
    if isinstance(value, Mapping):
        for name, inner in value.items():
            yield from flattened(inner, f"{key}.{name}" if key else str(name))
    elif isinstance(value, list | tuple) and any(isinstance(v, Mapping | list) for v in value):
        for i, inner in enumerate(value, 1):
            yield from flattened(inner, f"{key}[{i}]")
    elif isinstance(value, list | tuple):
        yield key, ", ".join(map(str, value))
    elif isinstance(value, int) and not isinstance(value, bool) and key.endswith("bytes"):
        yield key, f"{notation.size(value)} ({notation.count(value)})"
    elif value is not None:
        text = str(value)
        yield key, text if len(text) <= _LONG_TEXT else text[:_LONG_TEXT] + "…"


def raw_section(facts: RunValues, *, phase_tables: bool = True) -> Section:
    """Every sample of the shown metrics; without `phase_tables` if the page would grow too large."""
    records = list(_records(facts))
    blocks: list[Block] = [
        Sentence(
            "One row for each commit of a cell, and one for values of the whole cell."
            + (
                " Cells of wrong or unchecked arms are left out."
                if any(arm.wrong or arm.unchecked for arm in facts.arms)
                else ""
            )
        ),
        _metric_table(records),
    ]
    if phase_tables:
        tables = (_phase_table(records, clock) for clock in ("wall", "cpu"))
        blocks += [table for table in tables if table is not None]
    else:
        blocks.append(
            Sentence(
                "The phases of single commits are left out to keep the page small; they"
                f" are in {facts.run.path / 'samples.jsonl'}.",
                "muted",
            )
        )
    return Section("raw", "Raw values", tuple(blocks))


_Record = tuple[tuple[Cell, ...], CommitValues]


def _records(facts: RunValues) -> Iterator[_Record]:
    hidden = {arm.name for arm in facts.arms if arm.wrong or arm.unchecked}
    for cell in facts.run.cells:
        if cell.arm in hidden:
            continue
        values = cell_values(cell)
        kind = "failed" if cell.status == "failed" else "cold" if cell.warmup else "measured"
        head = (
            Cell(cell.arm, cell.arm, header=True),
            Cell(str(cell.round), cell.round),
            Cell(str(cell.order), cell.order),
            Cell(kind, kind, tone={"failed": "bad", "cold": "muted"}.get(kind, "")),  # type: ignore[arg-type]
        )
        # a stream's micro-batches are in their own section, since there may be thousands
        for commit in () if facts.content.get("stream") else values.commits:
            yield (*head, Cell(str(commit.n), commit.n)), commit
        own = {s.metric: s.value for s in cell.samples if s.commit is None and s.phase is None}
        walls = {s.phase for s in cell.samples if s.commit is None and s.phase}
        whole = {name: values.phases[name] for name in walls if name in values.phases}
        if own or whole or not values.commits:
            yield (*head, Cell("whole", "whole")), CommitValues(0, own, whole)


_HEAD = (
    Column("arm", "arm", numeric=False),
    Column("round", "round"),
    Column("order", "order", about="place in the round"),
    *text_columns("kind", "commit"),
)


def _metric_table(records: Sequence[_Record]) -> Table:
    names = dict.fromkeys(name for _, values in records for name in values.metrics)
    columns = (*_HEAD, *(Column(name, name) for name in names))
    rows = tuple(
        (*head, *(_value(values.metrics.get(name)) for name in names)) for head, values in records
    )
    folded = f"{notation.plural(len(rows), 'row')} of measured values"
    return Table("raw-values", "Every measured value", columns, rows, folded=folded)


def _phase_table(records: Sequence[_Record], clock: str) -> Table | None:
    found = [(head, values) for head, values in records if values.phases]
    names = sorted({name for _, values in found for name in values.phases}, key=phases.order)
    if not names:
        return None
    columns = (*_HEAD, *(Column(name, name, unit="s") for name in names))
    none = PhaseSeconds(0.0, 0.0)
    rows = []
    for head, values in found:
        times = [values.phases.get(name, none) for name in names]
        rows.append((*head, *(_value(t.wall_s if clock == "wall" else t.cpu_s) for t in times)))
    name = "wall time" if clock == "wall" else "CPU time"
    return Table(
        f"raw-phases-{clock}",
        f"Every phase's {name}, in slot seconds",
        columns,
        tuple(rows),
        folded=f"{notation.plural(len(rows), 'row')} of phases, {name} in slot seconds",
    )


def _value(value: float | None) -> Cell:
    if value is None:
        return Cell("", None)
    return Cell(f"{value:.6g}" if value != int(value) else f"{int(value)}", value)


def commands_section(facts: RunValues) -> Section:
    """The shell lines that repeat this run and remake this page."""
    # not above: it loads pyarrow, which nothing else here needs
    from serde_lab.scenario.loading import scenario_folder

    header = facts.run.header
    lines: list[tuple[str, str]] = []
    commit = header.code_version.get("git_commit")
    if isinstance(commit, str) and commit:
        changed = ", which also had uncommitted changes" if is_dirty(facts) else ""
        lines.append(
            (f"git checkout {shlex.quote(commit)}", f"the code that was measured{changed}")
        )
    bundled = (scenario_folder() / f"{header.scenario}.toml").is_file()
    scenario = header.scenario if bundled else f"{header.scenario}.toml"
    about = "the run" if bundled else "the run, where this file is"
    words = ["python", "-m", "serde_lab", "run", scenario, *_options(header)]
    lines.append((shlex.join(words), about))
    name = shlex.quote(str(_place(facts.run)))
    lines.append((f"python -m serde_lab report {name}", "this page"))
    lines.append((f"python -m serde_lab show {name} --format json", "its figures, for scripts"))
    note = Sentence(
        f"Seed {header.seed} fixes the data, the updates and the order of the arms; the scenario stands"
        " in full under Environment.",
        "muted",
    )
    return Section("remake", "Remake it", (Commands(tuple(lines)), note))


def _options(header: RunHeader) -> Iterator[str]:
    """The options of `run` that the run was made with."""
    settings = header.settings
    for key, value in (settings.get("overrides") or {}).items():
        yield from ("--set", f"{key}={value}")
    for arm in header.arms_asked_for:
        yield from ("--strategy", arm)
    if settings.get("master"):
        yield from ("--master", str(settings["master"]))
    for key, value in (settings.get("conf") or {}).items():
        yield from ("--conf", f"{key}={value}")
    if settings.get("isolate_peers"):
        yield "--isolate-peers"


def _place(run: Run) -> Path:
    """The run's folder from here; as in the folder `results` if it lies elsewhere."""
    here = Path.cwd()
    if run.path.resolve().is_relative_to(here):
        return run.path.resolve().relative_to(here)
    return Path("results") / run.header.scenario / run.header.run


def is_dirty(facts: RunValues) -> bool:
    """Whether the measured code had uncommitted changes."""
    return facts.run.header.code_version.get("git_dirty") is True


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
    "stream-latency": ("seconds", "phase_wall_s"),
    "stream-parts": ("driver.execute_s",),
    "stream-instants": ("seconds",),
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
    today = _today(header.exchange)
    changed = (name for one in metrics for name in differing_instruments(measured, today, one))
    return tuple(dict.fromkeys(changed))


_today = cache(instruments)
