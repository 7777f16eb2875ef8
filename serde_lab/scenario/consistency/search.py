"""Checks `[search]`: its candidates, where they start from, and what they change."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from serde_lab.scenario.hudi_options import settings_problems, with_settings
from serde_lab.scenario.model import RECORD_PEERS, Scenario
from serde_lab.scenario.problems import Problem, unknown_arm

FEWEST_CONFIRMING = 6
"""The fewest rounds in which a combination is compared with its start."""


def check(scenario: Scenario) -> Iterator[Problem]:
    """Problems of `[search]`."""
    search = scenario.search
    if search is None:
        return
    for section in ("stream", "sweep", "shapes"):
        if getattr(scenario, section) is not None:
            yield Problem("search", f"cannot be combined with [{section}]")
    if scenario.datasets:
        yield Problem("search", "cannot be combined with [[dataset]]")
    if scenario.measure.rounds < FEWEST_CONFIRMING:
        yield Problem(
            "measure.rounds",
            f"found {scenario.measure.rounds}, but a search confirms its result in at least"
            f" {FEWEST_CONFIRMING} rounds",
        )
    names = [arm.name for arm in scenario.arms]
    taken = Counter([*names, *(f"{start}-best" for start in search.starts)])
    taken.update(one.arm_name for one in search.candidates)
    for number, one in enumerate(search.candidates, 1):
        key = f"search.candidate.{one.name or number}"
        yield from unknown_arm(f"{key}.arm", one.arm, names)
        if one.arm not in names:
            continue
        if taken[one.arm_name] > 1:
            yield Problem(key, f"two arms would be called {one.arm_name!r}")
        start = scenario.arm(one.arm)
        if start.kind == "control" or start.peer in RECORD_PEERS:
            yield Problem(f"{key}.arm", f"{start.subject} takes no settings")
            continue
        tried = with_settings(start, one.arm_name, one.settings)
        own = tried.model_copy(update={"settings": one.settings})
        yield from settings_problems(key, own, scenario)
        if tried.stated_settings == start.stated_settings:
            yield Problem(f"{key}.settings", f"changes nothing in arm {one.arm!r}")
    yield from _factors(scenario)


def _factors(scenario: Scenario) -> Iterator[Problem]:
    """Winners of different factors are combined, so they may not set the same key."""
    owners: dict[tuple[str, str], str] = {}
    for one in scenario.search.candidates if scenario.search else ():
        for key in one.settings:
            owner = owners.setdefault((one.arm, key), one.changed_factor)
            if owner != one.changed_factor:
                yield Problem(
                    f"search.candidate.{one.name}.settings.{key}",
                    f"is set by factors {owner!r} and {one.changed_factor!r} of arm {one.arm!r}; give both"
                    " candidates the same factor",
                )
