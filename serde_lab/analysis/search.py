"""Says how far the search of a run has come: the fate of each candidate, the combination, its confirmation.

Candidates are tried by successive halving over paired rounds. A candidate is compared with its start in
rounds in which both were measured, by seconds and by the CPU time of all processes. Below 1 it is better. The
number of rounds grows from rung to rung, and the worse half of the candidates is dropped in each (Jamieson
and Talwalkar 2016), except those of which the rounds so far cannot say that they are not the best.

Everything follows from the samples and the scenario, so that an interrupted search continues where it was,
and a report shows the same as the run did.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate
from typing import Any

from serde_lab.analysis.cell_values import Rounds, by_round, measured_rounds
from serde_lab.analysis.ratios import Ratio, paired_ratio
from serde_lab.runs.model import ArmEntry, Run


@dataclass(frozen=True, slots=True)
class CandidateRatios:
    """The ratios of a candidate to its start: of seconds, and of CPU time, None where it was not measured."""

    wall: Ratio
    cpu: Ratio | None = None

    @property
    def known(self) -> tuple[Ratio, ...]:
        """The ratios that were measured."""
        return (self.wall,) if self.cpu is None else (self.wall, self.cpu)

    @property
    def worse(self) -> bool:
        """Whether an interval lies above 1, as it is shown."""
        return any(ratio.decided and ratio.value > 1 for ratio in self.known)

    @property
    def better(self) -> bool:
        """Whether an interval lies below 1, and none above, as they are shown."""
        below = any(ratio.decided and ratio.value < 1 for ratio in self.known)
        return below and not self.worse

    @property
    def score(self) -> float:
        """The better of its ratios."""
        return min(ratio.value for ratio in self.known)

    @property
    def at_best(self) -> float:
        """The lower end of its intervals: 0 if a single round shows no spread."""
        return min(0.0 if ratio.low is None else ratio.low for ratio in self.known)

    @property
    def text(self) -> str:
        """Both ratios in words."""
        said = (
            f"{ratio.text} of the {name}" + (f" ({ratio.range})" if ratio.range else "")
            for name, ratio in zip(("seconds", "CPU"), self.known, strict=False)
        )
        return ", ".join(said)

    def to_json(self) -> dict[str, Any]:
        """For `search.json`: value, low and high of each ratio."""
        wall, cpu = (
            None if one is None else [one.value, one.low, one.high] for one in (self.wall, self.cpu)
        )
        return {"seconds": wall, "cpu": cpu}


@dataclass(frozen=True, slots=True)
class Fate:
    """Whether a candidate goes on to the next rung, and why."""

    stays: bool
    why: str


def halve(entrants: Mapping[str, CandidateRatios], spare: int) -> dict[str, Fate]:
    """The fate of each entrant of a rung, by name.

    One whose interval lies above 1 is dropped. Of the rest the better half stays, and so does every other
    that an interval supports already. Of the others, those that might still be the best stay, the better
    ones first, as long as the rung's budget (`spare`) has room for them.
    """
    fates = {
        name: Fate(False, f"worse than its start: {one.text}")
        for name, one in entrants.items()
        if one.worse
    }
    ranked = sorted((n for n in entrants if n not in fates), key=lambda name: entrants[name].score)
    half = (len(entrants) + 1) // 2
    for place, name in enumerate(ranked):
        one, best = entrants[name], entrants[ranked[0]].score
        if place < half:
            fates[name] = Fate(True, "in the better half")
        elif one.better:
            fates[name] = Fate(True, "an interval supports it")
        elif one.at_best > best:
            fates[name] = Fate(False, f"in the worse half, and not the best: {one.text}")
        elif spare > 0:
            spare -= 1
            fates[name] = Fate(True, "in the worse half, but might be the best")
        else:
            fates[name] = Fate(
                False, f"the budget has no room, though it might be the best: {one.text}"
            )
    return {name: fates[name] for name in entrants}


def decide(entrants: Mapping[str, CandidateRatios]) -> dict[str, Fate]:
    """The fate of each entrant of the last rung: only those that an interval supports stay."""
    return {
        name: Fate(True, f"supported: {one.text}")
        if one.better
        else Fate(False, f"no interval supports it: {one.text}")
        for name, one in entrants.items()
    }


BEST = "best"
"""A start's combination of winners is the arm `START-best`."""


@dataclass(frozen=True, slots=True)
class Trial:
    """A candidate and what became of it: `rung` is the last that it entered, from 1.

    `fate` is None as long as that rung is not decided. `chosen`: it is part of the combination.
    """

    arm: str
    name: str
    factor: str
    settings: Mapping[str, str]
    rung: int
    rounds: int
    evidence: CandidateRatios | None
    fate: Fate | None
    chosen: bool = False

    def to_json(self) -> dict[str, Any]:
        return {
            "arm": self.arm,
            "candidate": self.name,
            "factor": self.factor,
            "settings": dict(self.settings),
            "rung": self.rung,
            "rounds": self.rounds,
            "ratios": None if self.evidence is None else self.evidence.to_json(),
            "won": None if self.fate is None else self.fate.stays,
            "why": "" if self.fate is None else self.fate.why,
            "chosen": self.chosen,
        }


@dataclass(frozen=True, slots=True)
class SearchedSide:
    """The search from one start. `rungs` are the arms that entered each rung, as far as it is decided.

    `settings` are those of the combination; empty as long as it is not known, and if no candidate won.
    `confirmation` compares the combination with the start in rounds of their own.
    """

    start: str
    trials: tuple[Trial, ...]
    rungs: tuple[tuple[str, ...], ...]
    ended: bool
    settings: Mapping[str, str] = field(default_factory=dict)
    confirmation: CandidateRatios | None = None
    rounds: int = 0
    problem: str = ""

    @property
    def best(self) -> str:
        """The arm of the combination."""
        return f"{self.start}-{BEST}"

    @property
    def confirmed(self) -> bool:
        """Whether the combination is better than the start."""
        return bool(self.confirmation and self.confirmation.better and not self.problem)

    @property
    def verdict(self) -> str:
        """The outcome in words."""
        if not self.ended:
            return "the search has not ended"
        if not self.settings:
            return "no candidate is better, so the start stays"
        if self.problem:
            return f"the combination is no choice, so the start stays: {self.problem}"
        if self.confirmation is None:
            return "the combination is not measured yet"
        words = "is confirmed" if self.confirmed else "is not confirmed, so the start stays"
        return f"the combination {words}: {self.confirmation.text}"

    def to_json(self) -> dict[str, Any]:
        return {
            "start": self.start,
            "rungs": [list(rung) for rung in self.rungs],
            "trials": [trial.to_json() for trial in self.trials],
            "settings": dict(self.settings),
            "confirmation": None if self.confirmation is None else self.confirmation.to_json(),
            "rounds": self.rounds,
            "confirmed": self.confirmed,
            "verdict": self.verdict,
        }


def search_of(run: Run) -> tuple[SearchedSide, ...]:
    """The search from each start of a run; empty for a run without a search."""
    search = run.header.scenario_content.get("search")
    if not search:
        return ()
    by_start: dict[str, list[ArmEntry]] = {}
    for entry in run.header.arms:
        if entry.candidate is not None:
            by_start.setdefault(str(entry.candidate["start"]), []).append(entry)
    return tuple(_side(run, search, start, entries) for start, entries in by_start.items())


def _side(
    run: Run, search: Mapping[str, Any], start: str, entries: Sequence[ArmEntry]
) -> SearchedSide:
    starts = _sound(run, start)
    rounds = {entry.arm: _sound(run, entry.arm) for entry in entries}
    trials: dict[str, Trial] = {}
    rungs: list[tuple[str, ...]] = []
    entrants = list(entries)
    needed = list(accumulate(search["rounds"]))
    ended = True
    for rung, enough in enumerate(needed, start=1):
        if not entrants:
            break
        rungs.append(tuple(entry.arm for entry in entrants))
        seen = {arm: _evidence(rounds[arm], starts, enough) for arm in rungs[-1]}
        whole = {arm: one for arm, one in seen.items() if one and one.wall.rounds >= enough}
        out = {arm: _problem_of(run, arm, start) for arm in rungs[-1] if arm not in whole}
        ended = all(out.values())
        fates = {arm: Fate(False, problem) for arm, problem in out.items()}
        if ended:
            fates |= decide(whole) if enough == needed[-1] else halve(whole, search["spare"])
        for entry in entrants:
            fate = fates[entry.arm] if ended else None
            trials[entry.arm] = _trial(entry, rung, seen[entry.arm], fate)
        if not ended:
            break
        entrants = [entry for entry in entrants if fates[entry.arm].stays]
    chosen = _chosen(trials.values()) if ended else ()
    trials |= {one.arm: replace(one, chosen=True) for one in chosen}
    settings = {key: value for one in chosen for key, value in one.settings.items()}
    side = SearchedSide(start, tuple(trials.values()), tuple(rungs), ended, settings)
    if not settings:
        return side
    of_best = _sound(run, side.best)
    return replace(
        side,
        confirmation=_evidence(of_best, starts, len(of_best)),
        rounds=len(of_best),
        problem=_problem_of(run, side.best, side.start),
    )


def _trial(entry: ArmEntry, rung: int, found: CandidateRatios | None, fate: Fate | None) -> Trial:
    candidate = entry.candidate or {}
    return Trial(
        arm=entry.arm,
        name=str(candidate["name"]),
        factor=str(candidate["factor"]),
        settings=dict(candidate["settings"]),
        rung=rung,
        rounds=0 if found is None else found.wall.rounds,
        evidence=found,
        fate=fate,
    )


def _chosen(trials: Iterable[Trial]) -> tuple[Trial, ...]:
    """The best winner of each factor."""
    won: dict[str, Trial] = {}
    for one in trials:
        if one.fate is None or not one.fate.stays or one.evidence is None:
            continue
        other = won.get(one.factor)
        if other is None or other.evidence is None or one.evidence.score < other.evidence.score:
            won[one.factor] = one
    return tuple(won.values())


def _sound(run: Run, arm: str) -> dict[int, Any]:
    """The measured rounds of an arm in which no check of it failed."""
    failed = {check.round for check in run.checks if check.arm == arm and check.failed}
    return {n: values for n, values in measured_rounds(run, arm).items() if n not in failed}


def _evidence(rounds: Rounds, starts: Rounds, enough: int) -> CandidateRatios | None:
    """The ratios over the first `enough` rounds; None without a round in which the start was measured.

    Either of the two may decide, so their intervals are those of both together.
    """
    first = dict(list(rounds.items())[:enough])
    wall, cpu = (
        paired_ratio(*(by_round(one, metric) for one in (first, starts)), among=2)
        for metric in ("seconds", "tree_cpu_s")
    )
    return None if wall is None else CandidateRatios(wall, cpu)


def _problem_of(run: Run, arm: str, start: str) -> str:
    """Why an arm or its start is not measured any further; "" if nothing is wrong with both."""
    return _problem(run, arm) or _problem(run, start, "its start ")


def _problem(run: Run, arm: str, whose: str = "") -> str:
    """Why an arm is not measured any further; "" if nothing is wrong with it."""
    for check in run.checks:
        if check.arm == arm and check.failed:
            return f"{whose}wrote a wrong table or other files: {check.name}: {check.detail}"
    for cell in run.cells:
        if cell.arm == arm and cell.status == "failed":
            return f"{whose}raised: {cell.error or 'no message'}"
    missing = next((entry.missing for entry in run.header.arms if entry.arm == arm), None)
    return f"{whose}could not be measured: {missing}" if missing else ""
