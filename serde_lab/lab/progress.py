"""What a run tells of itself while it goes on.

Owns the interface between the runner and whoever shows progress; must not print.
"""

from __future__ import annotations

from typing import Protocol


class Progress(Protocol):
    """Hears what happens; every method returns at once."""

    def message(self, text: str) -> None:
        """Something worth a line of its own."""

    def plan(self, cells: int, done: int) -> None:
        """How many cells there are, and how many of them were measured before."""

    def cell_started(self, arm: str, round: int, warmup: bool) -> None:
        """A cell's clock is about to start."""

    def cell_ended(self, arm: str, round: int, seconds: float | None, note: str) -> None:
        """A cell is through; `seconds` is None when it failed, `note` says why."""


class Silent:
    """Shows nothing."""

    def message(self, text: str) -> None: ...

    def plan(self, cells: int, done: int) -> None: ...

    def cell_started(self, arm: str, round: int, warmup: bool) -> None: ...

    def cell_ended(self, arm: str, round: int, seconds: float | None, note: str) -> None: ...
