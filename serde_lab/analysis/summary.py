"""Summarises a run as one JSON object, which `show RUN --format json` prints and reports draw.

Figures are medians over measured rounds. An arm with a wrong or unchecked answer shows no timing. The summary
is computed from the samples each time and never stored.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from statistics import fmean
from typing import Any

import numpy as np

from serde_lab.analysis.arm_ratios import (
    HudiSteps,
    PeerRatio,
    TimesFloor,
    hudi_steps,
    peer_ratios,
    times_floor,
)
from serde_lab.analysis.cell_values import (
    CellValues,
    Rounds,
    by_round,
    cell_values,
    measured_rounds,
)
from serde_lab.analysis.codec_costs import CodecCost, codec_costs
from serde_lab.analysis.drift import calibration_rounds, other_work
from serde_lab.analysis.factor_effects import Factorial, factorial_of
from serde_lab.analysis.growth import Growth, growth
from serde_lab.analysis.ratios import paired_ratio
from serde_lab.analysis.rfc84 import Claim, claims, rfc84_json
from serde_lab.analysis.search import SearchedSide, search_of
from serde_lab.analysis.shapes import ShapeCosts, shape_costs
from serde_lab.analysis.streams import Streams, streams
from serde_lab.measure import phases
from serde_lab.measure.metrics import DETAIL_PREFIX, DRIVER_PREFIX, HOP_PREFIX, METRICS, OF_READS
from serde_lab.measure.phases import PhaseSeconds
from serde_lab.runs.model import ArmEntry, Check, Run

_TIMES = frozenset(metric.name for metric in METRICS if metric.kind == "time")
_PLAIN = tuple(  # metrics shown as one number for each arm, in the registry's order
    metric.name
    for metric in METRICS
    if metric.name not in ("seconds", "phase_wall_s", "phase_cpu_s", "rows", "rows_per_s")
)


@dataclass(frozen=True, slots=True)
class Derived:
    """The rounds of each arm whose timing can be shown, and values that only some runs have: of a sweep, of
    a codec run, with peers, of RFC-84's workload, of all combinations of factors, of a stream, of
    `[shapes]`, with a floor of the work, and of a search."""

    rounds: Mapping[str, Rounds]
    growth: tuple[Growth, ...]
    codec_costs: tuple[CodecCost, ...]
    peer_ratios: tuple[PeerRatio, ...]
    hudi_steps: HudiSteps | None
    claims: tuple[Claim, ...]
    factorial: Factorial | None
    streams: Streams | None
    shapes: ShapeCosts | None
    times_floor: tuple[TimesFloor, ...]
    search: tuple[SearchedSide, ...]


def summarise(run: Run) -> dict[str, Any]:
    """The summary alone, as `show RUN --format json` prints it."""
    return summary_of(run)[0]


def summary_of(run: Run) -> tuple[dict[str, Any], Derived]:
    """The summary of a run as one JSON object, and the derived values that are in it.

    Figures are medians over measured rounds, those of phases means. All arms are listed, in the scenario's
    order. `status` is "ok", "wrong" (a check failed: all timings are null), "unchecked" (some round, named in
    `unchecked`, had no check of contents: all timings are null too), "failed" (no round succeeded) or
    "missing" (`missing` says why). Times are in seconds, sizes in bytes, shares are of 1.
    """
    header = run.header
    rounds = {entry.arm: measured_rounds(run, entry.arm) for entry in header.arms}
    arms = [_arm(entry, run, rounds[entry.arm]) for entry in header.arms]
    timed: dict[str, Rounds] = {
        arm["arm"]: {} if arm["wrong"] or arm["unchecked"] else rounds[arm["arm"]] for arm in arms
    }
    reference = header.scenario_content.get("reference")
    _add_ratios(arms, reference, timed)
    summary = {
        "run": header.run,
        "scenario": header.scenario,
        "state": header.state,
        "started_at": header.started_at,
        "format_version": header.format_version,
        "title": header.scenario_content.get("title"),
        "question": header.scenario_content.get("question"),
        "reference": reference,
        "scenario_content": header.scenario_content,
        "environment": header.environment,
        "machine_class": header.machine_class,
        "code_version": header.code_version,
        "arms": arms,
        "checks": _aggregate(check for check in run.checks if check.arm is None),
        "calibration": _calibration(run),
        "other_work": list(other_work(run)),
        "digests": header.digests,
        "messages": list(run.messages),
        **({"cases": cases} if (cases := _cases(run)) else {}),
    }
    content = header.scenario_content
    derived = Derived(
        rounds=timed,
        growth=tuple(growth(summary, content)),
        codec_costs=tuple(codec_costs(summary, cases, timed)),
        # a search compares its candidates with their starts alone
        peer_ratios=tuple(peer_ratios([arm for arm in arms if "candidate" not in arm], timed)),
        # only a run with peers has steps
        hudi_steps=hudi_steps(arms, content, timed)
        if any(arm["kind"] == "peer" for arm in arms)
        else None,
        claims=tuple(claims(summary, content, timed)),
        factorial=factorial_of(arms, timed),
        streams=streams(arms, content, timed),
        shapes=shape_costs(arms, content, header.settings.get("points", ()), timed),
        times_floor=tuple(times_floor(arms, content, timed)),
        search=search_of(run),
    )
    more = {
        "peer_ratios": [one.to_json() for one in derived.peer_ratios],
        "hudi_steps": derived.hudi_steps.to_json() if derived.hudi_steps else [],
        "codec": [one.to_json() for one in derived.codec_costs],
        "growth": [one.to_json() for one in derived.growth],
        "factors": [asdict(one) for one in derived.factorial.effects] if derived.factorial else [],
        "rfc84": rfc84_json(derived.claims, summary, header.settings),
        "streams": derived.streams.to_json() if derived.streams else {},
        "shapes": derived.shapes.to_json() if derived.shapes else {},
        "times_floor": [one.to_json() for one in derived.times_floor],
        "search": [one.to_json() for one in derived.search],
    }
    return {**summary, **{name: found for name, found in more.items() if found}}, derived


def _arm(entry: ArmEntry, run: Run, rounds: Rounds) -> dict[str, Any]:
    values = list(rounds.values())
    # a check of this arm or of all arms, in any round, warm-up rounds too
    wrong = any(check.arm in (entry.arm, None) and check.failed for check in run.checks)
    not_checked = run.unchecked(entry.arm)
    hidden = wrong or bool(not_checked)
    errors = [c.error for c in run.cells if c.arm == entry.arm and c.status == "failed"]
    summary: dict[str, Any] = {
        "arm": entry.arm,
        "kind": entry.kind,
        "strategy": entry.strategy,
        **({"swept": entry.swept} if entry.swept else {}),
        **({"candidate": entry.candidate} if entry.candidate else {}),
        **({"table": own} if (own := _own_table(entry, run.header.scenario_content)) else {}),
        "options": entry.options,
        "fairness": entry.fairness,
        "status": "wrong" if wrong else _status(entry, rounds, not_checked, errors),
        "wrong": wrong,
        "unchecked": not_checked or None,
        "missing": None,
        "error": (errors[0] or "the cell failed without a message") if errors else None,
        "rounds": len(rounds),
        "round_numbers": list(rounds),
        "rows": _median(_of(values, "rows")),
        "seconds": _values(values, "seconds", hidden),
        "rows_per_s": None if hidden else _median(_of(values, "rows_per_s")),
        "commits": _commits(values, run, hidden),
        "phases": None if hidden else _phases([value.phases for value in values]),
    }
    for name in _PLAIN:
        timing = name in _TIMES
        summary[name] = None if hidden and timing else _median(_of(values, name))
    # what SerDe others have runs inside their tasks and is not measured
    if entry.kind != "strategy":
        summary["serde_cpu_s"] = summary["serde_share"] = None
        for commit in summary["commits"]:
            commit["serde_cpu_s"] = None
    summary["spark"] = None if hidden else _details(values, DETAIL_PREFIX)
    summary["driver"] = None if hidden else _details(values, DRIVER_PREFIX)
    by_hop = _details(values, HOP_PREFIX)
    # only if records cross more than one hop; the counts are shown even if the answer is wrong
    if by_hop:
        summary["hop"] = by_hop
    summary["warmup_seconds"] = [] if hidden else _warmups(run, entry.arm)
    summary["fresh_s"] = _fresh_s(summary)
    summary["checks"] = _aggregate(check for check in run.checks if check.arm == entry.arm)
    if summary["status"] == "missing":
        summary["missing"] = entry.missing or "no round of this arm was measured"
    return summary


def _fresh_s(arm: Mapping[str, Any]) -> float | None:
    """Seconds with everything in: the starts of session and workers, and a cold round.

    A warm round stands in for the cold one if none was measured. None if the session's start is not known.
    """
    if arm["session_start_s"] is None or arm["seconds"] is None:
        return None
    cold = arm["warmup_seconds"] or arm["seconds"]["values"]
    return float(arm["session_start_s"] + (arm["worker_start_s"] or 0.0) + np.median(cold))


def _status(entry: ArmEntry, rounds: Rounds, unchecked: str, errors: Sequence[object]) -> str:
    if unchecked:
        return "unchecked"
    if rounds:
        return "ok"
    return "failed" if errors and not entry.missing else "missing"


def _commits(values: Sequence[CellValues], run: Run, hidden: bool) -> list[dict[str, Any]]:
    content = run.header.scenario_content
    if content.get("stream"):
        return []  # `streams` has the micro-batches, of which there may be thousands
    operations = [case["name"] for case in _cases(run)] or [
        one.get("operation") for one in content.get("commit", ())
    ]
    # commits are numbered over all tables, if there are several
    tables = run.header.settings.get("tables") or {}
    if tables:
        operations = list(run.header.settings["operations"].values())
    by_number: dict[int, list[Any]] = {}
    for value in values:
        for commit in value.commits:
            by_number.setdefault(commit.n, []).append(commit)
    return [
        {
            "n": n,
            **({"table": tables[str(n)]} if str(n) in tables else {}),
            "operation": operations[n - 1] if 0 < n <= len(operations) else None,
            "rows": _median(_of(commits, "rows")),
            "seconds": _values(commits, "seconds", hidden),
            "serde_cpu_s": None if hidden else _median(_of(commits, "serde_cpu_s")),
            "frame_bytes": _median(_of(commits, "frame_bytes")),
            **{
                name: None if hidden else _median(found)
                for name in OF_READS
                if (found := _of(commits, name))
            },
            "phases": None if hidden else _phases([commit.phases for commit in commits]),
        }
        for n, commits in sorted(by_number.items())
    ]


def _cases(run: Run) -> list[dict[str, Any]]:
    """The cases of a codec run that its commits stand for, in order; empty for other runs."""
    return list(run.header.settings.get("cases") or ())


def _phases(rounds: Sequence[Any]) -> dict[str, dict[str, float]]:
    """Means by phase, which add up to the mean of the whole; a phase missing from a round took 0 s in it."""
    names = sorted({name for one in rounds for name in one}, key=phases.order)
    none = PhaseSeconds(0.0, 0.0)
    return {
        name: {
            "wall_s": fmean(one.get(name, none).wall_s for one in rounds),
            "cpu_s": fmean(one.get(name, none).cpu_s for one in rounds),
        }
        for name in names
    }


def _of(values: Iterable[Any], name: str) -> list[float]:
    return [value.metrics[name] for value in values if name in value.metrics]


def _values(values: Sequence[Any], name: str, hidden: bool) -> dict[str, Any] | None:
    """Median and raw values by round; None if hidden or never measured."""
    raw = _of(values, name)
    return None if hidden or not raw else {"median": _median(raw), "values": raw}


def _median(values: Sequence[float]) -> float | int | None:
    """The median; whole numbers stay whole."""
    if not values:
        return None
    median = float(np.median(values))
    whole = all(isinstance(value, int) for value in values) and median.is_integer()
    return int(median) if whole else median


def _details(values: Sequence[CellValues], prefix: str) -> dict[str, float | int | None]:
    names = sorted({n for value in values for n in value.metrics if n.startswith(prefix)})
    return {name.removeprefix(prefix): _median(_of(values, name)) for name in names}


def _warmups(run: Run, arm: str) -> list[float]:
    cells = [c for c in run.cells if c.arm == arm and c.warmup and c.status == "ok"]
    return _of([cell_values(cell) for cell in sorted(cells, key=lambda c: c.round)], "seconds")


def _aggregate(checks: Iterable[Check]) -> list[dict[str, Any]]:
    """One entry for each check name, with the detail of its first failure: passed is true if it passed every
    time, and null if it never failed, but could not be made every time."""
    by_name: dict[str, list[Check]] = {}
    for check in checks:
        by_name.setdefault(check.name, []).append(check)
    result = []
    for name, found in by_name.items():
        failed = [check for check in found if check.failed]
        not_made = [check for check in found if check.passed is None]
        result.append(
            {
                "name": name,
                "passed": False if failed else None if not_made else True,
                "detail": (failed or not_made or found)[0].detail,
                "times": len(found),
                "failed": len(failed),
                **({"not_made": len(not_made)} if not_made else {}),
            }
        )
    return result


def _calibration(run: Run) -> dict[str, dict[str, Any]]:
    by_part: dict[str, dict[int, float]] = {}
    for number, parts in calibration_rounds(run, warmup=True).items():
        for part, value in parts.items():
            by_part.setdefault(part, {})[number] = value
    return {
        part: {"rounds": list(values), "values": list(values.values()), "unit": "s"}
        for part, values in by_part.items()
    }


def _own_table(entry: ArmEntry, content: Mapping[str, Any]) -> dict[str, Any]:
    """The properties in which an arm's table files differ from those of the other arms."""
    name = entry.swept["arm"] if entry.swept else entry.arm
    arms = (arm for arm in content.get("arm", ()) if arm.get("name") == name)
    return next((arm.get("table") or {} for arm in arms), {})


def _add_ratios(
    arms: list[dict[str, Any]], reference: str | None, timed: Mapping[str, Rounds]
) -> None:
    """Add the ratio of seconds to the reference's, the geometric mean over common rounds, its 95 % interval
    (null for a single round), the number of common rounds, and how many more would decide it: below 1 is
    faster than the reference.
    The same for the CPU time of all processes, under names that begin with `cpu_`.

    All are None for an arm that writes another kind of table than the reference.
    """
    base = next((arm for arm in arms if arm["arm"] == reference), None)
    for arm in arms:
        alike = base is not None and arm.get("table") == base.get("table")
        for of, metric in (("", "seconds"), ("cpu_", "tree_cpu_s")):
            found = None
            if base is not None and alike:
                found = paired_ratio(*(by_round(timed[one["arm"]], metric) for one in (arm, base)))
            arm[f"{of}ratio_to_reference"] = None if found is None else found.value
            measured = found is not None and found.low is not None
            arm[f"{of}ratio_interval"] = [found.low, found.high] if found and measured else None
            arm[f"{of}ratio_rounds"] = None if found is None else found.rounds
            arm[f"{of}more_rounds"] = None if found is None else found.more_rounds
