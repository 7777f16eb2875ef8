"""The exit statuses of verdicts, and which of several wins.

0  all right
1  the tool failed, nothing was compared, or what was asked for is missing
2  wrong usage (raised as an error, never decided)
3  a regression
4  a wrong answer
5  not decidable, under strict
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import IntEnum


class Status(IntEnum):
    """Exit statuses; 2 (wrong usage) is raised as an error, never decided."""

    PASSED = 0
    FAILED = 1
    USAGE = 2
    REGRESSION = 3
    WRONG_ANSWER = 4
    UNDECIDED = 5


PRECEDENCE = (
    Status.FAILED,
    Status.USAGE,
    Status.WRONG_ANSWER,
    Status.REGRESSION,
    Status.UNDECIDED,
    Status.PASSED,
)


def worst(statuses: Iterable[int]) -> Status:
    """The status that wins, in the order 1, 2, 4, 3, 5, 0; 0 of nothing."""
    found = {Status(status) for status in statuses}
    return next((status for status in PRECEDENCE if status in found), Status.PASSED)
