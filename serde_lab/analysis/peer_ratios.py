"""Computes how many times faster an arm is than peers, and than controls that write the table.

The ratios are per commit, with their geometric mean. Input is the summary of a run with peers.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from serde_lab.analysis.rounding import text


@dataclass(frozen=True, slots=True)
class PeerRatio:
    """`against`'s median seconds over `arm`'s, for each commit: above 1 the arm is faster."""

    arm: str
    against: str
    commits: tuple[float, ...]

    @property
    def mean(self) -> float:
        """The geometric mean over the commits."""
        return float(np.exp(np.mean(np.log(self.commits))))

    def cells(self) -> tuple[str, ...]:
        """Rounded texts: the arm, the arm it is compared with, each commit, the mean."""
        ratios = (*self.commits, self.mean)
        return (self.arm, self.against, *(text("ratio", ratio) for ratio in ratios))

    def to_json(self) -> dict[str, Any]:
        """For `show --format json`."""
        return {**asdict(self), "commits": list(self.commits), "mean": self.mean}


def peer_ratios(summary: Mapping[str, Any]) -> list[PeerRatio]:
    """The ratio of every strategy to every control and peer, and of every control to every peer.

    Only arms that write the same kind of table are compared. Arms without a timing, or with a wrong answer,
    are left out. Empty for a run without peers.
    """
    arms = summary["arms"]
    if not any(arm["kind"] == "peer" for arm in arms):
        return []
    seconds = {arm["arm"]: _commits(arm) for arm in arms}
    rank = {"strategy": 0, "control": 1, "peer": 2}
    return [
        PeerRatio(one["arm"], other["arm"], _ratios(seconds[one["arm"]], seconds[other["arm"]]))
        for one in arms
        for other in arms
        if rank[one["kind"]] < rank[other["kind"]]
        and one.get("table") == other.get("table")
        and seconds[one["arm"]]
        and len(seconds[one["arm"]]) == len(seconds[other["arm"]])
    ]


def headings(ratios: list[PeerRatio]) -> tuple[str, ...]:
    """The columns of `PeerRatio.cells`."""
    commits = max((len(one.commits) for one in ratios), default=0)
    return ("arm", "against", *(f"commit {n}" for n in range(1, commits + 1)), "geometric mean")


def _commits(arm: Mapping[str, Any]) -> tuple[float, ...]:
    """Median seconds of each commit; () if any is missing."""
    found = [one["seconds"]["median"] if one["seconds"] else 0.0 for one in arm["commits"]]
    return tuple(found) if all(found) else ()


def _ratios(arm: tuple[float, ...], other: tuple[float, ...]) -> tuple[float, ...]:
    return tuple(theirs / ours for ours, theirs in zip(arm, other, strict=True))
