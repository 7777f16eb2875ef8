"""Implements `references`: measures the runs that documents quote again, where they have become stale.

A run is stale if an instrument behind its quoted columns changed, its scenario did, or it was made beside
other work. What an earlier call has measured, whole or in part, is used.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from math import ceil
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from serde_lab.cli.console import emit_line, say
from serde_lab.errors import LabError, RunError, UsageError, worst
from serde_lab.files import alone_in

if TYPE_CHECKING:
    from serde_lab.runs.model import Run, RunHeader
    from serde_lab.scenario.model import Scenario

DOCUMENTS = ("README.md", "DEVELOPERS.md", "docs/*.md")
_CELL_S = 60
_CHANGED = "its scenario changed"


def register(app: typer.Typer) -> None:
    app.command("references")(references)


@dataclass(frozen=True, slots=True)
class Reference:
    """A quoted run, why it is stale ("" if it is fresh), and the minutes that it takes.

    The minutes are the run's own, or a larger estimate if the scenario has changed since.
    """

    run: Path
    stale: str
    minutes: int


def references(
    scenarios: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="SCENARIO",
            help="Only the runs of these scenarios; by default all.",
            show_default=False,
        ),
    ] = None,
    dry_run: Annotated[
        bool,
        typer.Option(
            "--dry-run", help="Print what is stale and how long it takes; measure nothing."
        ),
    ] = False,
    folder: Annotated[Path, typer.Option(help="The checkout whose documents quote runs.")] = Path(),
) -> int:
    """Measure again the stale runs that documents quote.

    First says what is stale and how many minutes it takes. The next call continues where this one was
    stopped. Exits with 1 if a run failed or was made beside other work: its old quotation stays, marked.
    """
    documents = sorted({path for pattern in DOCUMENTS for path in folder.glob(pattern)})
    found = quoted(documents, scenarios or ())
    if not found:
        raise UsageError(f"no document of {folder.absolute()} quotes a run: {', '.join(DOCUMENTS)}")
    for one in found:
        time = f" (about {one.minutes} minutes)" if one.stale else ""
        emit_line(f"{one.run}: {one.stale or 'fresh'}{time}")
    stale = [one for one in found if one.stale]
    total = sum(one.minutes for one in stale)
    emit_line(f"{len(stale)} of {len(found)} runs to measure again, about {total} minutes")
    if dry_run or not stale:
        return 0
    with alone_in(stale[0].run.parent.parent, wait=False):
        return worst([_remade(one, documents) for one in stale])


def quoted(documents: Iterable[Path], scenarios: Collection[str] = ()) -> list[Reference]:
    """The runs that `documents` quote, each once; those of `scenarios` alone, if any are named.

    Raises RunError for a run that is missing or damaged, UsageError for a scenario of which none is quoted.
    """
    from serde_lab.report.quotations import quotations
    from serde_lab.runs.directory import load_run

    metrics: dict[Path, dict[str, None]] = {}
    for document in documents:
        for path, shown in quotations(document):
            # documents of two folders name one run by two paths
            metrics.setdefault(Path(os.path.normpath(path)), {}).update(dict.fromkeys(shown))
    known = {path.parent.name for path in metrics}
    if unknown := sorted(set(scenarios) - known):
        quoted_ones = ", ".join(sorted(known))
        raise UsageError(f"no run of {', '.join(unknown)} is quoted; quoted are {quoted_ones}")
    found = []
    for path, names in metrics.items():
        if scenarios and path.parent.name not in scenarios:
            continue
        run = load_run(path)
        reasons = list(_why_stale(run, names))
        minutes = _taken(run)
        if _CHANGED in reasons:
            minutes = max(minutes, _estimated(run.header))
        found.append(Reference(path, "; ".join(reasons), minutes))
    return found


def _why_stale(run: Run, metrics: Iterable[str] | None = None) -> Iterator[str]:
    """Why a run is stale for these metrics, or for any."""
    from serde_lab.analysis.drift import other_work
    from serde_lab.report.run.provenance import older_instruments
    from serde_lab.scenario.identity import asked, asked_of

    older = older_instruments(run.header, *([] if metrics is None else [metrics]))
    if older:
        yield f"older measuring code: {', '.join(older)}"
    yield from other_work(run)
    try:
        scenario = _scenario(run.header)
    except LabError as exc:
        yield f"its scenario cannot be loaded: {exc}"
        return
    if asked(scenario) != asked_of(run.header.scenario_content):
        yield _CHANGED


def _scenario(header: RunHeader) -> Scenario:
    """The scenario of a run as it is today, with the run's own changes."""
    from serde_lab.scenario.loading import load_scenario

    return load_scenario(header.scenario, overrides=_overrides(header))


def _overrides(header: RunHeader) -> list[str]:
    return [f"{key}={value}" for key, value in (header.settings.get("overrides") or {}).items()]


def _estimated(header: RunHeader) -> int:
    """Minutes of the scenario as it is today, from its number of rows."""
    from serde_lab.lab.estimates import estimate_run
    from serde_lab.lab.runner import chosen_points

    points = chosen_points(_scenario(header), header.arms_asked_for)
    # no earlier run of it: that one asked for something else
    seconds, _ = estimate_run(points, Path(os.devnull))
    return max(1, ceil(seconds / 60))


def _taken(run: Run) -> int:
    """From the start of the run to the start of its last cell, and one cell more."""
    last = max((cell.started_at for cell in run.cells), default=run.header.started_at)
    begun, ended = (datetime.fromisoformat(time) for time in (run.header.started_at, last))
    return max(1, ceil(((ended - begun).total_seconds() + _CELL_S) / 60))


def _remade(reference: Reference, documents: Sequence[Path]) -> int:
    """Measure a run again and quote the new one; returns the exit status."""
    from serde_lab.analysis.drift import other_work
    from serde_lab.cli.console import RunProgress
    from serde_lab.lab.run_settings import RunSettings
    from serde_lab.lab.runner import resumed, run_scenario
    from serde_lab.report.quotations import quote_instead
    from serde_lab.runs.directory import load_header, load_run

    header = load_header(reference.run)
    results = reference.run.parent.parent
    begun = _begun(reference.run, header)
    new = begun
    if begun is None or load_header(begun).state != "complete":
        settings = RunSettings(
            results=results,
            overrides=tuple(_overrides(header)),
            arms=header.arms_asked_for,
            isolate_peers=bool(header.settings.get("isolate_peers")),
            require_peers=any(entry.kind == "peer" for entry in header.arms),
        )
        scenario = _scenario(header) if begun is None else resumed(begun)
        with RunProgress(scenario.name) as progress:
            outcome = run_scenario(scenario, settings, progress, begun)
        if outcome.exit_status:
            say(f"{outcome.path} failed: {reference.run} stays quoted")
            return outcome.exit_status
        new = outcome.path
    assert new is not None
    if disturbed := other_work(load_run(new)):
        say(f"{new} cannot be quoted: {'; '.join(disturbed)}; {reference.run} stays quoted")
        return 1
    old_name, new_name = (f"{header.scenario}/{run.name}" for run in (reference.run, new))
    for document in documents:
        quote_instead(document, old_name, new_name)
    emit_line(f"{new} is quoted instead of {reference.run}")
    return 0


def _begun(old: Path, header: RunHeader) -> Path | None:
    """The newest later run that asks the same as `old`, whole or interrupted; None without one."""
    from serde_lab.measure.code_version import code_version
    from serde_lab.runs.directory import load_header, load_run

    def asks(one: RunHeader) -> tuple[object, ...]:
        return _overrides(one), one.arms_asked_for, one.settings.get("isolate_peers")

    def alike(path: Path) -> bool:
        try:
            later = load_header(path)
        except RunError:
            return False
        if later.state == "running" or asks(later) != asks(header):
            return False
        # only the code that began a run goes on with it
        code = code_version(later.scenario_content["measure"]["exchange"])
        goes_on = later.state == "complete" or later.code_version == code
        return goes_on and not list(_why_stale(load_run(path)))

    later = sorted(path for path in old.parent.iterdir() if path.name > old.name)
    return next((path for path in reversed(later) if alike(path)), None)
