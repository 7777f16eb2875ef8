"""Checks `[[arm]]`: its kind, its options, and the one factor that it changes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping

from serde_lab.scenario.consistency.wording import unknown_arm
from serde_lab.scenario.model import Arm, Scenario
from serde_lab.scenario.problems import Problem

EXECUTIONS: Mapping[str, tuple[str, ...]] = {
    "pickle": ("row",),
    "avro": ("row", "batch"),
    "internal_row": ("row", "batch"),
    "arrow": ("batch",),
}
"""Executions of the built-in strategies, so that `validate` need not import them; a test compares."""

NEEDS_SPARK = ("spark_native", "parquet_floor")


_FACTORS: Mapping[str, str] = {
    "execution": "execution",
    "rows_per_frame": "framing",
    "max_frame_bytes": "framing",
    "integrity": "integrity",
}


def check(scenario: Scenario) -> Iterator[Problem]:
    """Problems of `[[arm]]`."""
    names = [arm.name for arm in scenario.arms]
    for name, times in Counter(names).items():
        if times > 1:
            yield Problem(f"arm.{name}", f"{times} arms have this name")
    for number, arm in enumerate(scenario.arms):
        key = f"arm.{arm.name}"
        yield from _kind(key, arm, scenario)
        if arm.options.execution is not None:
            allowed = EXECUTIONS.get(arm.subject, ("row", "batch"))
            if arm.options.execution not in allowed:
                yield Problem(
                    f"{key}.options.execution",
                    f"{arm.strategy} cannot work by {arm.options.execution!r}, only by "
                    f"{' or '.join(map(repr, allowed))}",
                )
        yield from _step(key, arm, scenario.arms[:number])
    yield from unknown_arm("reference", scenario.reference, names)


def _kind(key: str, arm: Arm, scenario: Scenario) -> Iterator[Problem]:
    kinds = [kind for kind in ("strategy", "control", "peer") if getattr(arm, kind) is not None]
    if len(kinds) != 1:
        found = f"has {' and '.join(kinds)}" if kinds else "has none"
        yield Problem(key, f"{found} of strategy, control and peer, expected exactly one")
        return
    if arm.kind != "strategy" and arm.options.given:
        yield Problem(f"{key}.options", f"a {arm.kind} takes no options")
    if arm.kind != "strategy" and arm.merging is not None:
        yield Problem(f"{key}.merging", f"a {arm.kind} merges as [table] says")
    exchange = scenario.measure.exchange
    needs_spark = arm.control in NEEDS_SPARK or arm.kind == "peer"
    if needs_spark and exchange != "spark":
        yield Problem(
            key,
            f"{arm.subject} needs Spark, but measure.exchange is {exchange!r}; take one of them out",
        )
    elif arm.kind != "strategy" and exchange == "none":
        yield Problem(key, "measure.exchange 'none' encodes and decodes only: it takes strategies")
    if arm.frames_of is None:
        return
    if arm.control != "exchange_only":
        yield Problem(f"{key}.frames_of", "belongs to control = 'exchange_only' only")
        return
    strategies = [other.name for other in scenario.arms if other.kind == "strategy"]
    yield from unknown_arm(f"{key}.frames_of", arm.frames_of, strategies)


def _step(key: str, arm: Arm, before: Iterable[Arm]) -> Iterator[Problem]:
    """`changes` must be the one factor in which an arm differs from the strategy arm before it."""
    if arm.changes is None:
        return
    earlier = [other for other in before if other.kind == "strategy"]
    if arm.kind != "strategy" or not earlier:
        yield Problem(
            f"{key}.changes",
            "says what differs from the strategy arm before it, and there is none"
            if arm.kind == "strategy"
            else f"belongs to strategies, not to a {arm.kind}",
        )
        return
    found = factors(earlier[-1], arm)
    if set(found) != {arm.changes}:
        said = "; ".join(f"{factor} ({', '.join(keys)})" for factor, keys in found.items())
        yield Problem(
            f"{key}.changes",
            f"says {arm.changes!r}, but what differs from arm {earlier[-1].name!r} is "
            f"{said or 'nothing'}",
        )


def factors(before: Arm, after: Arm) -> dict[str, list[str]]:
    """The factors in which two strategy arms of a file differ, each with the keys that differ.

    A key that only one of the two gives counts as a difference, because each strategy has its own default.
    """
    found: dict[str, list[str]] = {}
    if before.strategy != after.strategy:
        found["representation"] = ["strategy"]
    # compare only given keys: a missing key has the value of [table], not its default
    for factor in ("merging", "table"):
        sections = [getattr(arm, factor) for arm in (before, after)]
        one, other = ({} if section is None else section.given for section in sections)
        if one != other:
            found[factor] = [factor]
    if before.topology != after.topology:
        found["topology"] = ["topology"]
    given, later = before.options.given, after.options.given
    for key in sorted(given.keys() | later.keys()):
        own = key not in _FACTORS
        if own and before.strategy != after.strategy:
            continue  # two strategies' own options, which count as representation anyway
        if given.get(key) != later.get(key):
            found.setdefault(_FACTORS.get(key, "representation"), []).append(key)
    return found
