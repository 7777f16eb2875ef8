"""Builds and prints the tables that end a command about a run, and writes the run's report."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from serde_lab.analysis.codec_costs import records_of
from serde_lab.analysis.ratios import Ratio, stated_ratio
from serde_lab.analysis.rounding import NOTHING, text
from serde_lab.analysis.run_values import RunValues, run_values
from serde_lab.cli.console import Format, emit_line, print_rows, print_table, say
from serde_lab.report.page import Table
from serde_lab.report.run.run_page import run_page
from serde_lab.runs.model import Run

REFERENCE = "reference"

COLUMNS = ("arm", "seconds", "ratio", "CPU ratio", "rows/s", "SerDe CPU", "shuffle", "checks")
"""A cell has one or two lines: the range of seconds below their median, the 95 % interval below each ratio,
the SerDe share below the CPU. The CPU ratio is that of all processes."""

RAW_COLUMNS = (
    *("arm", "kind", "status", "rounds", "seconds", "seconds_min", "seconds_max", "ratio"),
    *("rows_per_s", "serde_cpu_s", "serde_share", "shuffle_bytes"),
    *("ratio_low", "ratio_high", "cpu_ratio", "cpu_ratio_low", "cpu_ratio_high"),
    *("checks_passed", "checks_failed", "note"),
)

Lines = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ArmRow:
    """One arm: its raw figures under `RAW_COLUMNS`, None where one is missing or cannot be trusted.

    `serde_share` is the share of all slot time spent in SerDe; `ratio` is seconds over the reference's
    seconds, `cpu_ratio` the same of the CPU time of all processes; `note` says in words what is wrong or
    missing.
    """

    figures: Mapping[str, Any]
    to_reference: Ratio | None
    cpu_to_reference: Ratio | None

    def cells(self) -> tuple[Lines, ...]:
        """The rounded texts under `COLUMNS`, each cell as its lines."""
        of = self.figures
        note = REFERENCE if of["note"] == REFERENCE else of["kind"].replace("strategy", "")
        low, high = (text("seconds", of[name]) for name in ("seconds_min", "seconds_max"))
        several = of["rounds"] > 1 and of["seconds"]
        serde_cpu, shuffle = of["serde_cpu_s"], of["shuffle_bytes"]
        passed, failed = of["checks_passed"], of["checks_failed"]
        return (
            (of["arm"], note),
            (text("seconds", of["seconds"]), f"{low}–{high}" if several else ""),
            *(
                (NOTHING, "") if ratio is None else (ratio.text, ratio.range)
                for ratio in (self.to_reference, self.cpu_to_reference)
            ),
            (text("rows_per_s", of["rows_per_s"]), ""),
            (f"{text('seconds', serde_cpu)} s", text("share", of["serde_share"]))
            if serde_cpu is not None
            else (NOTHING, ""),
            (NOTHING if shuffle is None else f"{text('megabytes', shuffle / 1e6)} MB", ""),
            (f"{passed} passed", f"{failed} failed" if failed else "")
            if passed or failed
            else ("none", ""),
        )

    def raw(self) -> tuple[object, ...]:
        """The unrounded values under `RAW_COLUMNS`: seconds, bytes, shares of 1."""
        return tuple(self.figures[name] for name in RAW_COLUMNS)

    @property
    def remark(self) -> str:
        """A line that says what is wrong, unchecked, missing or failed; "" if the arm is fine."""
        note: str = self.figures["note"]
        return "" if self.figures["status"] == "ok" and note in ("", REFERENCE) else note

    @property
    def doubt(self) -> str:
        """A line that says how many rounds more would decide the arm's ratio; "" if it is decided."""
        found = self.to_reference
        if found is None or not found.doubt or self.figures["note"] == REFERENCE:
            return ""
        return f"{found.text}" + (f" ({found.range}), " if found.range else ", ") + found.doubt


def arm_rows(summary: Mapping[str, Any]) -> list[ArmRow]:
    """The rows of the arms of `summarise`, in their order. All rounding follows `analysis.rounding`."""
    return [_row(arm, summary.get("reference")) for arm in summary["arms"]]


def _row(arm: Mapping[str, Any], reference: str | None) -> ArmRow:
    seconds = arm["seconds"] or {"median": None, "values": [None]}
    ratios = {name: stated_ratio(arm, of) for name, of in (("ratio", ""), ("cpu_ratio", "cpu_"))}
    figures = {
        **{name: arm.get(name) for name in RAW_COLUMNS},
        "seconds": seconds["median"],
        "seconds_min": min(seconds["values"]),
        "seconds_max": max(seconds["values"]),
        "checks_passed": sum(
            check["times"] - check["failed"] - check.get("not_made", 0) for check in arm["checks"]
        ),
        "checks_failed": sum(check["failed"] for check in arm["checks"]),
        "note": _note(arm, reference),
    }
    for name, ratio in ratios.items():
        if ratio is not None:
            figures |= {name: ratio.value, f"{name}_low": ratio.low, f"{name}_high": ratio.high}
    return ArmRow(figures, *ratios.values())


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


_OF_A_REPORT = (
    "times-the-floor",
    "outside",
    "search-outcome",
    "search-trials",
    "times-faster",
    "hudi-steps",
    "growth",
    "shapes",
    "stream-latency",
    "rfc84",
    "codec-record-costs",
    "codec-types",
    "codec-widths",
)


def print_run(run: Run, form: Format) -> None:
    """One row per arm: seconds with their range, ratio to the reference, SerDe CPU, shuffle, checks.

    Problems of an arm, and the rounds that an undecided ratio needs, follow on separate lines, then those
    tables of the report that some runs have: of the floor of the work, of what the clock leaves out, of
    peers, a sweep, a stream, of RFC-84's workload. A codec run has only such tables. CSV is a single table
    of raw values.
    """
    values = run_values(run)
    if form == "csv":
        print_rows(*raw_table(values), form)
        return
    name = f"{run.header.scenario} {run.header.run}"
    arms = arm_rows(values.summary)
    if not values.derived.codec_costs:
        print_rows(COLUMNS, [row.cells() for row in arms], form, title=name)
    elif form == "table":
        emit_line(name)
    for row in arms:
        if row.remark or row.doubt:
            emit_line(f"{row.figures['arm']}: {row.remark or row.doubt}")
    for table in report_tables(run):
        print_table(table, form, table.caption)


def raw_table(values: RunValues) -> tuple[Sequence[str], Sequence[Sequence[object]]]:
    """The main table with unrounded values, and units in its headings."""
    costs = records_of(values.derived.codec_costs)
    if not costs:
        return RAW_COLUMNS, [row.raw() for row in arm_rows(values.summary)]
    columns = ("arm", "rows", "write_us", "read_us", "both_us", "bytes")
    return columns, [[getattr(cost, name) for name in columns] for cost in costs]


def report_tables(run: Run) -> list[Table]:
    """The tables of the run's report that a terminal shows too."""
    return [table for table in run_page(run).tables() if table.name in _OF_A_REPORT]


def say_messages(run: Run) -> None:
    """Say what was left out when the run was read."""
    for message in run.messages:
        say(f"serde-lab: {message}", style="yellow")


def write_report(
    run: Run, reports: Path, out: Path | None, format: str, figures: Path | None
) -> Path:
    """Write the report of a run, and return its absolute path."""
    from serde_lab.report.render import figures as write_figures
    from serde_lab.report.render import render_run

    where = run.path.resolve()  # `.` has no name
    target = out or reports / f"{where.parent.name}-{where.name}.{format}"
    render_run(run, target, format)
    if figures is not None:
        for path in write_figures(run, figures):
            say(f"figure: {path}")
    return target.absolute()
