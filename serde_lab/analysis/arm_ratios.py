"""Compares the arms of a run that write the same kind of table, from the same rows.

How many times faster an arm is than peers, and than controls that write the table; and how many times the
floor of the work, the control `work_floor`, each arm takes, by seconds and by CPU time.

How many times faster than Apache Hudi a strategy is, is also split into steps, each between two arms:

    hudi_spark -> hudi_one_exchange -> spark_native -> a strategy that Spark reads for -> the strategy
        -> the strategy whose frames cross the shuffle as bytes

Each arrow changes one thing, so the ratios of the steps multiply to the whole ratio, in every round. A run
may lack one of the last two arms; without the one before the last, the last two steps are one. A step's share
is its part of the whole on a logarithmic scale; shares add up to 1, and one below 0 costs time.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from serde_lab.analysis.cell_values import Rounds, by_round
from serde_lab.analysis.ratios import Ratio, Share, paired_logs, paired_ratio, ratio_of


@dataclass(frozen=True, slots=True)
class PeerRatio:
    """`against`'s seconds over `arm`'s, for each commit and over all: above 1 the arm is faster.

    A round's value over all commits is the geometric mean of its commits' ratios; `logs` has their
    logarithms. `cpu` is the same ratio of the CPU time of all processes over all commits, None where it was
    not measured.
    """

    arm: str
    against: str
    commits: tuple[Ratio, ...]
    mean: Ratio
    logs: tuple[float, ...]
    cpu: Ratio | None = None

    def to_json(self) -> dict[str, Any]:
        return {
            "arm": self.arm,
            "against": self.against,
            "commits": [ratio.value for ratio in self.commits],
            "mean": self.mean.value,
            "low": self.mean.low,
            "high": self.mean.high,
            "rounds": self.mean.rounds,
            "more_rounds": self.mean.more_rounds,
            "cpu": None if self.cpu is None else [self.cpu.value, self.cpu.low, self.cpu.high],
        }


def peer_ratios(arms: Sequence[Mapping[str, Any]], timed: Mapping[str, Rounds]) -> list[PeerRatio]:
    """The ratio of every strategy to every control and peer, and of every control to every peer.

    `arms` are those of a run's summary, and `timed` has the rounds of each with a timing that can be shown.
    Only arms that write the same kind of table are compared, and only if they have a round in common. Empty
    for a run without peers.
    """
    if not any(arm["kind"] == "peer" for arm in arms):
        return []
    rank = {"strategy": 0, "control": 1, "peer": 2}
    pairs = (
        (one["arm"], other["arm"])
        for one in arms
        for other in arms
        if rank[one["kind"]] < rank[other["kind"]] and one.get("table") == other.get("table")
    )
    found = (times_faster(*pair, timed) for pair in pairs)
    return [one for one in found if one is not None]


def times_faster(arm: str, against: str, timed: Mapping[str, Rounds]) -> PeerRatio | None:
    """The ratio of two arms; None if they differ in their commits, or have no common round."""
    ours, theirs = _commit_seconds(timed[arm]), _commit_seconds(timed[against])
    if not ours or ours.keys() != theirs.keys():
        return None
    logs = [paired_logs(theirs[n], ours[n]) for n in sorted(ours)]
    common = sorted(set.intersection(*(set(one) for one in logs)))
    if not common:
        return None
    of_rounds = [math.fsum(one[number] for one in logs) / len(logs) for number in common]
    commits = tuple(ratio_of([one[number] for number in common]) for one in logs)
    cpu = paired_ratio(*(by_round(timed[one], "tree_cpu_s") for one in (against, arm)))
    return PeerRatio(arm, against, commits, ratio_of(of_rounds), tuple(of_rounds), cpu)


def _commit_seconds(rounds: Rounds) -> dict[int, dict[int, float]]:
    found: dict[int, dict[int, float]] = {}
    for number, values in rounds.items():
        for commit in values.commits:
            if "seconds" in commit.metrics:
                found.setdefault(commit.n, {})[number] = commit.metrics["seconds"]
    return found


FLOOR = "work_floor"
_PART_OF_THE_WORK = ("exchange_only", "parquet_floor")
"""Controls that a multiple of the whole work says nothing about."""


@dataclass(frozen=True, slots=True)
class TimesFloor:
    """`arm` over `floor`, an arm of the control: above 1 it takes longer.

    `cpu` is the same of the CPU time of all processes, None where it was not measured.
    """

    arm: str
    kind: str
    floor: str
    seconds: Ratio
    cpu: Ratio | None

    def to_json(self) -> dict[str, Any]:
        cpu = self.cpu
        return {
            "arm": self.arm,
            "floor": self.floor,
            "times": self.seconds.value,
            "low": self.seconds.low,
            "high": self.seconds.high,
            "rounds": self.seconds.rounds,
            "cpu": None if cpu is None else [cpu.value, cpu.low, cpu.high],
        }


def times_floor(
    arms: Sequence[Mapping[str, Any]], content: Mapping[str, Any], timed: Mapping[str, Rounds]
) -> list[TimesFloor]:
    """The multiples of a run, in the order of its arms; empty without a floor that can be shown.

    `arms` are those of the run's summary, `content` is its scenario, `timed` the rounds of each arm with a
    timing that can be shown.
    """
    controls = {one.get("name"): one.get("control") for one in content.get("arm") or ()}

    def control(arm: Mapping[str, Any]) -> Any:
        return controls.get(_swept(arm).get("arm", arm["arm"]))

    floors = [arm for arm in arms if control(arm) == FLOOR]
    found = []
    for arm in arms:
        floor = next((one for one in floors if _alike(one, arm)), None)
        if floor is None or control(arm) in (FLOOR, *_PART_OF_THE_WORK):
            continue
        seconds, cpu = (
            paired_ratio(*(by_round(timed[one["arm"]], metric) for one in (arm, floor)))
            for metric in ("seconds", "tree_cpu_s")
        )
        if seconds is not None:
            found.append(TimesFloor(arm["arm"], arm["kind"], floor["arm"], seconds, cpu))
    return found


def _alike(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Whether two arms write the same kind of table, at the same value of a sweep."""
    values = [{k: v for k, v in _swept(arm).items() if k != "arm"} for arm in (one, other)]
    return one.get("table") == other.get("table") and values[0] == values[1]


def _swept(arm: Mapping[str, Any]) -> Mapping[str, Any]:
    return arm.get("swept") or {}


SLOWEST, ONE_EXCHANGE, NATIVE = "hudi_spark", "hudi_one_exchange", "spark_native"
STEPS = (
    ("one exchange fewer", "Hudi without the exchange that combines duplicates"),
    (
        "Arrow and C++",
        "the lab's writer, in Python over Arrow, in place of Hudi's; records stay Spark's",
    ),
    ("records in frames", "the strategy's own records, many in a frame, in place of Spark's rows"),
    ("reading the source", "tasks read the Parquet files themselves, not Spark"),
    ("plain bytes", "frames cross Spark's shuffle as the bytes of an RDD, not as a column"),
)
"""Each step's name, and what changes in it."""
TWO_STEPS = (
    "reading, and plain bytes",
    "tasks read the Parquet files themselves, and frames cross Spark's shuffle as bytes",
)
"""The last two steps in one, for a run without the arm between them."""


@dataclass(frozen=True, slots=True)
class HudiStep:
    """One step: how many times faster `arm` is than `against`, over all commits; `share` of the whole."""

    name: str
    about: str
    arm: str
    against: str
    ratio: Ratio
    share: Share

    def to_json(self) -> dict[str, Any]:
        return {
            "step": self.name,
            "arm": self.arm,
            "against": self.against,
            "times_faster": self.ratio.value,
            "low": self.ratio.low,
            "high": self.ratio.high,
            "share": self.share.value,
            "share_low": self.share.low,
            "share_high": self.share.high,
        }


@dataclass(frozen=True, slots=True)
class HudiSteps:
    """The steps from the peer to the strategy, in order, and the whole that they multiply to."""

    steps: tuple[HudiStep, ...]
    whole: HudiStep

    def to_json(self) -> list[dict[str, Any]]:
        """The steps, then the whole."""
        return [one.to_json() for one in (*self.steps, self.whole)]


def hudi_steps(
    arms: Sequence[Mapping[str, Any]], content: Mapping[str, Any], timed: Mapping[str, Rounds]
) -> HudiSteps | None:
    """The steps of a run; None if it lacks one of the arms, or a round in which all were timed.

    `arms` are those of the run's summary, `content` is its scenario, `timed` the rounds of each arm with a
    timing that can be shown. The strategy is the first that has an arm for which Spark reads and one that
    reads for itself, both with the scenario's own table.
    """
    there = {str(arm["arm"]) for arm in arms if not arm.get("table")}
    # of several arms of one subject, the first counts
    found = {
        str(one.get("peer") or one.get("control")): str(one["name"])
        for one in reversed(content.get("arm") or ())
        if one.get("name") in there
    }
    steps, strategy = _of_strategy(arms, there)
    if not strategy or not {SLOWEST, ONE_EXCHANGE, NATIVE} <= found.keys():
        return None
    chain = (found[SLOWEST], found[ONE_EXCHANGE], found[NATIVE], *strategy)
    common = set.intersection(*(set(timed[name]) for name in chain))
    rounds = {name: {n: timed[name][n] for n in sorted(common)} for name in chain}
    ratios = [times_faster(arm, against, rounds) for against, arm in pairwise(chain)]
    whole = times_faster(chain[-1], chain[0], rounds)
    if whole is None or None in ratios:
        return None
    of_steps = tuple(
        HudiStep(*said, one.arm, one.against, one.mean, Share.of(one.logs, whole.logs))
        for said, one in zip(steps, ratios, strict=True)
        if one is not None
    )
    all_of_it = HudiStep("in all", "", whole.arm, whole.against, whole.mean, Share(1.0))
    return HudiSteps(of_steps, all_of_it)


def _of_strategy(
    arms: Sequence[Mapping[str, Any]], there: Set[str]
) -> tuple[tuple[tuple[str, str], ...], tuple[str, ...]]:
    """The steps, and the chain of one strategy's arms among those that are `there`.

    Spark reads the source of the first arm; the tasks of the second read it; frames of the third also cross
    as bytes. One of the last two may be missing; without both there are neither steps nor a chain.
    """
    for arm in arms:
        options = arm["options"] or {}
        if arm["arm"] not in there or options.get("source_reader") != "spark":
            continue
        alike = {key: value for key, value in options.items() if key != "source_reader"}
        itself, as_bytes = (
            [
                str(other["arm"])
                for other in arms
                if other["arm"] in there
                and other["strategy"] == arm["strategy"]
                and other["options"] == wanted
            ][:1]
            for wanted in (alike, {**alike, "shuffle": "rdd"})
        )
        chain = (str(arm["arm"]), *itself, *as_bytes)
        if itself:
            return STEPS[: len(chain) + 2], chain
        if as_bytes:
            return (*STEPS[:3], TWO_STEPS), chain
    return (), ()
