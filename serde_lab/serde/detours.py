"""Which verbs of a strategy leave its representation, by looking at what it overrides.

So no list can be out of date. The way that they take is `through_arrow`'s. Must not know any strategy.
"""

from __future__ import annotations

from serde_lab.serde.interface import BoundSerde

_OVERRIDDEN_BY = {
    "rewrite": "project",
    "join": "project",
    "update_metadata": "update_metadata",
}
"""The method by which a bound SerDe does a verb on its own representation."""


def verbs_through_arrow(bound: BoundSerde) -> frozenset[str]:
    """The verbs for which records of `bound` leave their representation."""
    return frozenset(
        verb
        for verb, method in _OVERRIDDEN_BY.items()
        if getattr(type(bound), method) is getattr(BoundSerde, method)
    )
