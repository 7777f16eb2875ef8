"""A storage that misbehaves as a script says: refuses a step, runs full, goes down, loses an answer."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal

from tests.faults.killed_driver import StepStorage

Mode = Literal["once", "full", "down", "late"]
"""`once`: refuses the step, and nothing else. `full`: from the step on, every put. `down`: from the step
on, everything. `late`: the step takes effect, and then its answer is lost."""


class ScriptedStorage(StepStorage):
    """Raises `fault` at the step `number`."""

    fault: BaseException
    number: int
    mode: Mode = "once"
    raised = False

    def begins(self, step: str, path: str, data: Any) -> None:
        if self.mode == "late" or len(self.steps) < self.number:
            return
        if self.mode == "once" and self.raised:
            return
        if self.mode == "full" and step.startswith("-"):
            return
        self.raised = True
        raise self.fault

    def made(self, step: str) -> None:
        if self.mode == "late" and len(self.steps) - 1 == self.number:
            self.raised = True
            raise self.fault

    def _get(self, path: str) -> bytes:
        self._answer()
        return super()._get(path)

    def _list(self, folder: str) -> Iterator[Any]:
        self._answer()
        yield from super()._list(folder)

    def _answer(self) -> None:
        if self.mode == "down" and self.raised:
            raise self.fault
