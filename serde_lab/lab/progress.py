"""Defines the interface through which a run reports its progress."""

from __future__ import annotations

from typing import Protocol


class Progress(Protocol):
    """Receives the events of a run; every method returns at once."""

    def message(self, text: str) -> None:
        """A message worth a line of its own."""

    def plan(self, cells: int, done: int) -> None:
        """The number of cells, and how many of them were measured before."""

    def cell_started(self, arm: str, round: int, warmup: bool) -> None:
        """A cell's clock is about to start."""

    def cell_ended(self, arm: str, round: int, seconds: float | None, note: str) -> None:
        """A cell has ended; `seconds` is None if it failed, and `note` says why."""


class Silent:
    """Ignores all events."""

    def message(self, text: str) -> None: ...

    def plan(self, cells: int, done: int) -> None: ...

    def cell_started(self, arm: str, round: int, warmup: bool) -> None: ...

    def cell_ended(self, arm: str, round: int, seconds: float | None, note: str) -> None: ...
