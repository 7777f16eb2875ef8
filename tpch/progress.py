"""How a long piece of work tells its caller how far it is, without knowing who shows it."""

from __future__ import annotations

from typing import Protocol


class Progress(Protocol):
    """Called with a task's name, what is done and how much there is, in any one unit (rows, bytes).

    A task's last call has `done == total`. Calls come a few times a second, never once a row.
    """

    def __call__(self, task: str, done: int, total: int) -> None: ...


def silent(task: str, done: int, total: int) -> None:
    """Show nothing."""
