"""Builds phrases and problems that several rules use."""

from __future__ import annotations

from collections.abc import Iterator

from serde_lab.scenario.problems import Problem, listed, suggestion


def a(operation: str) -> str:
    """`operation` with its indefinite article."""
    return f"{'an' if operation[0] in 'aeiu' else 'a'} {operation}"


def unknown_arm(key: str, name: str, known: list[str]) -> Iterator[Problem]:
    """A problem if there is no arm of that name."""
    if name not in known:
        yield Problem(
            key, f"there is no arm {name!r}; arms are {listed(known)}{suggestion(name, known)}"
        )
