"""Successive halving over paired rounds: which candidates of a search go on, and why the others do not.

A candidate is compared with its start in rounds in which both were measured, by seconds and by the CPU time
of all processes. Below 1 it is better. The number of rounds grows from rung to rung, and the worse half of
the candidates is dropped in each (Jamieson and Talwalkar 2016), except those of which the rounds so far
cannot say that they are not the best.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from serde_lab.analysis.ratios import Ratio


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
        """Whether an interval lies above 1."""
        return any(ratio.low is not None and ratio.low > 1 for ratio in self.known)

    @property
    def better(self) -> bool:
        """Whether an interval lies below 1, and none above."""
        below = any(ratio.high is not None and ratio.high < 1 for ratio in self.known)
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
