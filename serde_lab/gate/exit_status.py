"""Names the exit statuses of verdicts; `errors` ranks them if several apply.

0  all right
1  the tool failed, nothing was compared, or what was asked for is missing
2  wrong usage (raised as an error, never decided)
3  a regression
4  a wrong answer
5  not decidable, under strict
"""

from __future__ import annotations

from enum import IntEnum


class Status(IntEnum):
    """Exit statuses; 2 (wrong usage) is raised as an error, never decided."""

    PASSED = 0
    FAILED = 1
    USAGE = 2
    REGRESSION = 3
    WRONG_ANSWER = 4
    UNDECIDED = 5
