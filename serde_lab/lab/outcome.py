"""The outcome of a run as an exit status: the worst of what happened, in one fixed order.

Owns the precedence 1, 2, 4, 3, 5 of the contract. Must not know what happened.
"""

from __future__ import annotations

from collections.abc import Iterable

_WORST_FIRST = (130, 1, 2, 4, 3, 5, 0)


def worst(statuses: Iterable[int]) -> int:
    """The status that wins; 0 of nothing. Ctrl-C stands above all, since the run did not end."""
    found = set(statuses)
    return next((status for status in _WORST_FIRST if status in found), max(found, default=0))
