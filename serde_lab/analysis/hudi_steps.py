"""Splits how many times faster than Apache Hudi an arm is into steps, each between two arms of the run.

    hudi_spark -> hudi_one_exchange -> spark_native -> a strategy that Spark reads for -> the strategy
        -> the strategy whose frames cross the shuffle as bytes

Each arrow changes one thing, so the ratios of the steps multiply to the whole ratio, in every round. A run
may lack one of the last two arms; without the one before the last, the last two steps are one. A step's share
is its part of the whole on a logarithmic scale; shares add up to 1, and one below 0 costs time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from serde_lab.analysis.arm_ratios import times_faster
from serde_lab.analysis.cell_values import Rounds
from serde_lab.analysis.ratios import Ratio, Share

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
        """For `show --format json`."""
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
        """For `show --format json`: the steps, then the whole."""
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
