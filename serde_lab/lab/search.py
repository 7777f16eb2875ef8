"""Searches for better settings of arms: successive halving over paired rounds, then a confirmation.

Each candidate changes one factor of its start. A rung measures the candidates that are left together with
their starts, and drops the worse ones (`analysis.search`). The winners of all factors are combined, and the
combination is compared with its start in rounds of its own. Arms whose session settings differ run in
sessions side by side, as many as the machine's memory holds; if there are more, the rung has several heats.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path

import psutil

from serde_lab.analysis.search import BEST, SearchedSide, search_of
from serde_lab.files import write_whole
from serde_lab.lab.cells.peer_arms import SessionPlan, plan_peers, session_settings
from serde_lab.lab.header import arm_entry
from serde_lab.lab.plan import CellPlan, cells_of
from serde_lab.lab.rounds import Cells, Rounds, rows_kind
from serde_lab.lab.run_points import PreparedPoint
from serde_lab.lab.run_settings import Progress, RunSettings
from serde_lab.lab.session.run_session import heap_of
from serde_lab.lab.session.session import heap_bytes
from serde_lab.runs.directory import SEARCH_FILE, load_run
from serde_lab.runs.writer import RunWriter
from serde_lab.scenario.hudi_options import candidate_arms, with_settings
from serde_lab.scenario.model import Arm, Scenario

OpenCells = Callable[
    [PreparedPoint, Sequence[CellPlan], RunSettings, Path, Progress], AbstractContextManager[Cells]
]

_OF_MEMORY = 0.8
"""The share of the machine's memory that the heaps of sessions side by side may take."""


Pair = tuple[Arm, Arm]
"""A start, and an arm that is compared with it."""


Heat = tuple[Arm, ...]
"""Arms that are measured in the same rounds, each candidate with its start."""


class Search:
    """The search of a prepared point, whose cells `open_cells` makes; `rounds` measures and checks them."""

    def __init__(
        self,
        point: PreparedPoint,
        settings: RunSettings,
        writer: RunWriter,
        rounds: Rounds,
        open_cells: OpenCells,
    ) -> None:
        self.point, self.settings, self.writer = point, settings, writer
        self._rounds, self._open_cells = rounds, open_cells
        self._first_round = 0
        self._heaps = heaps_of(point.scenario, settings)

    def run(self, work: Path, progress: Progress) -> tuple[Arm, ...]:
        """Measure whatever the run still lacks; returns all its arms, combinations included."""
        scenario, search = self.point.scenario, self.point.scenario.search
        assert search is not None
        arms = {arm.name: arm for arm in self.point.here}
        sides = self._sides()
        for rung, count in enumerate(search.rounds):
            entrants = [
                (arms[side.start], arms[name])
                for side in sides
                for name in (side.rungs[rung] if rung < len(side.rungs) else ())
                if name in arms
            ]
            self._measure(entrants, count, work, progress)
            sides = self._sides()
            for side in sides:
                for text in _news(side, rung + 1):
                    progress.message(text)
        pairs = [
            (arms[side.start], with_settings(arms[side.start], side.best, side.settings))
            for side in sides
            if side.settings
        ]
        self._add([best for _, best in pairs])
        stated = {arm.name for arm in scenario.arms}
        beside = [arm for arm in self.point.here if arm.name in stated]
        # arms that are no starts are measured here only
        if pairs or any(arm.name not in search.starts for arm in beside):
            self._measure(pairs, scenario.measure.rounds, work, progress, beside)
        for side in self._sides():
            progress.message(f"{side.start}: {side.verdict}")
        return self._rounds.arms

    def _sides(self) -> tuple[SearchedSide, ...]:
        """How far the search has come; `search.json` of the run says the same."""
        sides = search_of(load_run(self.writer.path))
        text = json.dumps([side.to_json() for side in sides], indent=2, ensure_ascii=False)
        write_whole(self.writer.path / SEARCH_FILE, f"{text}\n".encode())
        return sides

    def _add(self, combined: Sequence[Arm]) -> None:
        """Let the run know the combinations; their tables must hold the rows of the other tables."""
        data = self.point.inputs.record_schema.data
        self.writer.add_arms([arm_entry(self.point.scenario, arm, data) for arm in combined])
        kinds = {arm.name: rows_kind(self.point.scenario, arm) for arm in combined}
        self._rounds.kinds = {**self._rounds.kinds, **kinds}
        self._rounds.arms = (*self.point.arms, *combined)

    def _measure(
        self,
        entrants: Sequence[Pair],
        rounds: int,
        work: Path,
        progress: Progress,
        beside: Sequence[Arm] = (),
    ) -> None:
        """Measure the heats one after the other, each in sessions of its own."""
        scenario = with_rounds(self.point.scenario, rounds)
        for heat in heats(entrants, self._heaps, beside):
            cells = cells_of(scenario, heat, self._first_round)
            self._first_round += scenario.measure.all_rounds
            todo = [
                cell
                for cell in cells
                if cell.name not in self.writer.complete_cells
                and cell.arm not in self._rounds.given_up
            ]
            if not todo:
                continue
            place = work / f"from-round-{cells[0].round}"
            place.mkdir(exist_ok=True)
            point = self._point_of(heat)
            with self._open_cells(point, todo, self.settings, place, progress) as opened:
                self._rounds.run(todo, opened)
            shutil.rmtree(place, ignore_errors=True)

    def _point_of(self, heat: Heat) -> PreparedPoint:
        peers = plan_peers(
            self.point.scenario,
            heat,
            jar=self.settings.hudi_jar,
            isolated=self.point.peers.isolated,
        )
        # garbage is collected before each cell of a search with peers, be they in this heat or not
        peers = replace(peers, with_peers=self.point.peers.with_peers)
        return replace(self.point, arms=heat, peers=peers)


def _news(side: SearchedSide, rung: int) -> Iterator[str]:
    """What a rung that has just been decided says of each of its candidates."""
    for trial in side.trials:
        if trial.rung == rung and trial.fate is not None and not trial.fate.stays:
            yield f"{trial.arm} is dropped in rung {rung}: {trial.fate.why}"
        elif trial.rung == rung and trial.fate is not None:
            yield f"{trial.arm} has won: {trial.fate.why}"


def with_rounds(scenario: Scenario, rounds: int) -> Scenario:
    """The scenario with another number of measured rounds."""
    measure = scenario.measure.model_copy(update={"rounds": rounds})
    return scenario.model_copy(update={"measure": measure})


@dataclass(frozen=True, slots=True)
class Heaps:
    """The heap of an arm's session, and how many bytes of heaps may live at one time."""

    usual: int
    most: int

    def of(self, arm: Arm) -> int:
        """The bytes of the heap of the session that `arm` needs."""
        stated = session_settings(arm).get("spark.driver.memory")
        return self.usual if stated is None else heap_bytes(stated)


def heaps_of(scenario: Scenario, settings: RunSettings) -> Heaps:
    """The heaps that this machine has room for."""
    usual = heap_bytes(heap_of(scenario, settings, SessionPlan(frozenset())))
    return Heaps(usual, int(_OF_MEMORY * psutil.virtual_memory().total))


def heats(entrants: Sequence[Pair], heaps: Heaps, beside: Sequence[Arm] = ()) -> list[Heat]:
    """Divide `entrants` among heats whose heaps fit the memory together; each start is in every heat of its
    candidates. The arms `beside` join the first heat that has room for them.

    A session that is too large beside its start's is measured with it all the same: the session's own check
    refuses what the machine cannot hold.
    """
    found: list[dict[str, Arm]] = []
    for pair in entrants:
        _place({arm.name: arm for arm in pair}, found, heaps)
    for arm in beside:
        if not any(arm.name in one for one in found):
            _place({arm.name: arm}, found, heaps)
    return [tuple(one.values()) for one in found]


def _place(wanted: dict[str, Arm], found: list[dict[str, Arm]], heaps: Heaps) -> None:
    for one in found:
        if _together(one | wanted, heaps) <= heaps.most:
            one |= wanted
            return
    found.append(wanted)


def _together(arms: Mapping[str, Arm], heaps: Heaps) -> int:
    """The heaps of all sessions that these arms need."""
    sessions = {tuple(sorted(session_settings(a).items())): heaps.of(a) for a in arms.values()}
    return sum(sessions.values())


@dataclass(frozen=True, slots=True)
class PlannedRung:
    """At most what a rung measures: its candidates, rounds and heats, and the start of each cell's arm, which
    says how long the cell takes."""

    name: str
    candidates: int
    rounds: int
    heats: int
    cells: tuple[str, ...]
    sessions: int


def planned_search(
    scenario: Scenario, arms: Sequence[Arm], settings: RunSettings
) -> list[PlannedRung]:
    """At most what a search from `arms` measures: every candidate is right, and each rung keeps as many as it
    may, those with sessions of their own first."""
    search = scenario.search
    assert search is not None
    heaps = heaps_of(scenario, settings)
    left = {
        start.name: sorted(
            ((start, arm) for arm in candidate_arms(scenario, [start])),
            key=lambda pair: session_settings(pair[0]) == session_settings(pair[1]),
        )
        for start in arms
    }
    rungs = []
    for number, rounds in enumerate(search.rounds, start=1):
        entrants = [pair for pairs in left.values() for pair in pairs]
        made = heats(entrants, heaps)
        rungs.append(_planned(scenario, f"rung {number}", rounds, entrants, made))
        left = {
            start: pairs[: (len(pairs) + 1) // 2 + search.spare] for start, pairs in left.items()
        }
    best = [
        (start, last.model_copy(update={"name": f"{start.name}-{BEST}"}))
        for pairs in left.values()
        for start, last in pairs[:1]
    ]
    made = heats(best, heaps, arms)
    return [*rungs, _planned(scenario, "confirmation", scenario.measure.rounds, best, made)]


def _planned(
    scenario: Scenario, name: str, rounds: int, entrants: Sequence[Pair], made: Sequence[Heat]
) -> PlannedRung:
    start_of = {arm.name: start.name for start, arm in entrants}
    cells = tuple(
        start_of.get(arm.name, arm.name)
        for heat in made
        for arm in heat
        for _ in range(scenario.measure.warmup + rounds)
    )
    sessions = sum(len({tuple(session_settings(arm).items()) for arm in heat}) for heat in made)
    return PlannedRung(name, len(entrants), rounds if made else 0, len(made), cells, sessions)
