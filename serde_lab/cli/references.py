"""Implements `references`: remakes the runs that documents quote, where they have become stale.

A quoted run is stale if an instrument behind its quoted columns changed, if its scenario did, or if it was
made beside other work. Every other run stays. What an earlier call has measured, whole or in part, is used.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from math import ceil
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from serde_lab.cli.console import emit_line, say
from serde_lab.errors import LabError, RunError, worst

if TYPE_CHECKING:
    from serde_lab.runs.model import Run, RunHeader
    from serde_lab.scenario.model import Scenario

DOCUMENTS = ("README.md", "DEVELOPERS.md", "docs/*.md")
_CELL_S = 60


@dataclass(frozen=True, slots=True)
class Reference:
    """A quoted run, why it is stale ("" if it is fresh), and the minutes that it took."""

    run: Path
    stale: str
    minutes: int


def register(app: typer.Typer) -> None:
    """Add this module's command."""
    app.command("references")(references)


def references(
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Say what is stale and how long it takes; no run.")
    ] = False,
    folder: Annotated[Path, typer.Option(help="The checkout whose documents quote runs.")] = Path(),
) -> int:
    """Remake the stale runs that documents quote.

    Says beforehand what is stale and how many minutes it takes. A call that was stopped goes on where it
    stopped. Exits with 1 if a run failed or was made beside other work: its old quotation stays, marked.
    """
    documents = sorted({path for pattern in DOCUMENTS for path in folder.glob(pattern)})
    found = quoted(documents)
    for one in found:
        time = f" (about {one.minutes} minutes)" if one.stale else ""
        emit_line(f"{one.run}: {one.stale or 'fresh'}{time}")
    stale = [one for one in found if one.stale]
    total = sum(one.minutes for one in stale)
    emit_line(f"{len(stale)} of {len(found)} runs to remake, about {total} minutes")
    if dry_run:
        return 0
    return worst([_remade(one, documents) for one in stale])


def quoted(documents: Iterable[Path]) -> list[Reference]:
    """The runs that `documents` quote, each once. Raises RunError for a run that is missing or damaged."""
    from serde_lab.report.quotation import quotations
    from serde_lab.runs.directory import load_run

    metrics: dict[Path, dict[str, None]] = {}
    for document in documents:
        for path, shown in quotations(document):
            metrics.setdefault(path, {}).update(dict.fromkeys(shown))
    found = []
    for path, names in metrics.items():
        run = load_run(path)
        found.append(Reference(path, "; ".join(_why_stale(run, names)), _minutes(run)))
    return found


def _why_stale(run: Run, metrics: Iterable[str] | None = None) -> Iterator[str]:
    """Why a run is stale for these metrics, or for any."""
    from serde_lab.analysis.calibration import other_work
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
        yield "its scenario changed"


def _scenario(header: RunHeader) -> Scenario:
    """The scenario of a run as it is today, with the run's own changes."""
    from serde_lab.scenario.loading import load_scenario

    return load_scenario(header.scenario, overrides=_overrides(header))


def _overrides(header: RunHeader) -> list[str]:
    changes: Mapping[str, object] = header.settings.get("overrides") or {}
    return [f"{key}={value}" for key, value in changes.items()]


def _arms(header: RunHeader) -> tuple[str, ...]:
    """The scenario's arms that a run measured; () for all of them, as they were then."""
    named = tuple(dict.fromkeys(str((e.swept or {}).get("arm", e.arm)) for e in header.arms))
    every = [arm.get("name") for arm in header.scenario_content.get("arm", ())]
    return () if set(named) == set(every) else named


def _minutes(run: Run) -> int:
    """From the start of the run to the start of its last cell, and one cell more."""
    last = max((cell.started_at for cell in run.cells), default=run.header.started_at)
    begun, ended = (datetime.fromisoformat(time) for time in (run.header.started_at, last))
    return max(1, ceil(((ended - begun).total_seconds() + _CELL_S) / 60))


def _remade(reference: Reference, documents: Sequence[Path]) -> int:
    """Measure a run again and quote the new one; returns the exit status."""
    from serde_lab.analysis.calibration import other_work
    from serde_lab.cli.console import RunProgress
    from serde_lab.lab.run_settings import RunSettings
    from serde_lab.lab.runner import resumed, run_scenario
    from serde_lab.report.render import render_quotations
    from serde_lab.runs.directory import load_header, load_run

    header = load_header(reference.run)
    results = reference.run.parent.parent
    begun = _begun(reference.run, header)
    new = begun
    if begun is None or load_header(begun).state != "complete":
        settings = RunSettings(
            results=results,
            overrides=tuple(_overrides(header)),
            arms=_arms(header),
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
    for document in documents:
        text = document.read_text(encoding="utf-8")
        old_name, new_name = (f"{header.scenario}/{run.name}" for run in (reference.run, new))
        if old_name in text:
            document.write_text(text.replace(old_name, new_name), encoding="utf-8")
            render_quotations(document)
    emit_line(f"{new} is quoted instead of {reference.run}")
    return 0


def _begun(old: Path, header: RunHeader) -> Path | None:
    """The newest later run that asks the same as `old`, whole or interrupted; None without one."""
    from serde_lab.runs.directory import load_header, load_run

    def alike(path: Path) -> bool:
        try:
            later = load_header(path)
        except RunError:
            return False
        same = (_overrides(later), _arms(later), later.settings.get("isolate_peers")) == (
            _overrides(header),
            _arms(header),
            header.settings.get("isolate_peers"),
        )
        return same and later.state != "running" and not list(_why_stale(load_run(path)))

    later = sorted(path for path in old.parent.iterdir() if path.name > old.name)
    return next((path for path in reversed(later) if alike(path)), None)
