"""Measures several variants of an A/B comparison together, cell by cell, in random order.

Each variant is a process with its own environment (`variant_environment`). One cell runs at a time. A turn
ends when the variant is ready for its next cell, so that checks and calibration of one variant never overlap
with a cell of another.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, Self

from serde_lab.errors import LabError, RunError, UsageError
from serde_lab.lab.ab import variant as variant_script
from serde_lab.lab.ab.variant_environment import VariantEnvironment

_GRACE_S = 60.0


@dataclass(frozen=True, slots=True)
class Variant:
    """What one variant measures: its label, its code, and its changes to the scenario."""

    label: str
    environment: VariantEnvironment
    overrides: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class SharedSettings:
    """What all variants measure; `scenario` is a file, `folder` receives the runs and logs."""

    scenario: Path
    folder: Path
    cache: Path | None = None
    seed: int = 7


OnEvent = Callable[[str, Mapping[str, Any]], None]
"""Receives each event of a variant: the variant's label and the event."""


class Variants:
    """The running variants. A context manager that leaves no process behind, whatever happens."""

    def __init__(
        self, variants: Sequence[Variant], shared: SharedSettings, on_event: OnEvent
    ) -> None:
        self.shared = shared
        self._order = random.Random(shared.seed)
        self._workers = [_Worker(variant, shared, on_event) for variant in variants]

    def __enter__(self) -> Self:
        try:
            for worker in self._workers:
                worker.start()
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._end()

    def measure(self, rounds: int, arms: tuple[str, ...]) -> dict[str, Path]:
        """Extend the runs to `rounds` rounds of `arms` (() for all); returns each variant's run by label.

        Raises LabError with the message of a variant that failed.
        """
        for worker in self._workers:
            worker.send({"rounds": rounds, "arms": list(arms)})
            # one at a time: the first variant makes the input that the others reuse
            worker.wait()
        while waiting := [worker for worker in self._workers if worker.at is not None]:
            # a variant without its failed arms is ahead, and waits for the others to finish the round
            first = min(worker.round for worker in waiting)
            turn = [worker for worker in waiting if worker.round == first]
            self._order.shuffle(turn)
            for worker in turn:
                worker.send({})
                worker.wait()
        return {worker.variant.label: worker.done() for worker in self._workers}

    def _end(self) -> None:
        for worker in self._workers:
            worker.ask_to_end()
        for worker in self._workers:
            worker.end()


@dataclass
class _Worker:
    variant: Variant
    shared: SharedSettings
    on_event: OnEvent
    at: Mapping[str, Any] | None = None
    """The cell that the variant is ready to measure; None before the first and after the last."""
    path: Path | None = None
    _process: subprocess.Popen[str] | None = None
    _log: IO[str] | None = field(default=None, repr=False)

    @property
    def round(self) -> int:
        return int(self.at["round"]) if self.at else 0

    @property
    def folder(self) -> Path:
        return self.shared.folder / self.variant.label

    def start(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        self._log = (self.folder / "messages.log").open("w", encoding="utf-8")
        environment = self.variant.environment
        path = os.pathsep.join(map(str, environment.path))
        self._process = subprocess.Popen(
            [environment.python, "-P", str(Path(variant_script.__file__).resolve())],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
            # measuring must not leave compiled files in the tree
            env={**os.environ, "PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1"},
            # ctrl-C goes to the parent process, which then ends the variants
            start_new_session=True,
        )
        self.send(
            {
                "scenario": str(self.shared.scenario.resolve()),
                "overrides": list(self.variant.overrides),
                "results": str(self.folder),
                "cache": None if self.shared.cache is None else str(self.shared.cache.resolve()),
            }
        )
        package = Path(self._receive("hello")["package"])
        if not package.is_relative_to(environment.root.resolve()):
            raise RunError(
                f"{self.variant.label} imports serde_lab from {package}, expected {environment.root}"
            )

    def send(self, message: Mapping[str, Any]) -> None:
        assert self._process is not None
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # the variant's last event gives the reason
            self._process.stdin.write(json.dumps(message) + "\n")
            self._process.stdin.flush()

    def wait(self) -> None:
        """Wait until the variant is ready for a cell, or has finished."""
        event = self._receive("ready", "done")
        if event["event"] == "ready":
            self.at = event
        else:
            self.at, self.path = None, Path(event["path"])

    def done(self) -> Path:
        assert self.path is not None
        return self.path

    def ask_to_end(self) -> None:
        if self._process is None:
            return
        with contextlib.suppress(OSError):
            assert self._process.stdin is not None
            self._process.stdin.close()
        if self.at is not None and self._process.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                self._process.send_signal(signal.SIGINT)

    def end(self) -> None:
        if self._process is not None:
            try:
                self._process.wait(_GRACE_S)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
            if self._process.stdout is not None:
                self._process.stdout.close()
        if self._log is not None:
            self._log.close()

    def _receive(self, *wanted: str) -> Mapping[str, Any]:
        assert self._process is not None
        assert self._process.stdout is not None
        for line in self._process.stdout:
            event: Mapping[str, Any] = json.loads(line)
            if event["event"] in wanted:
                return event
            if event["event"] == "error":
                raise self._failed(event["text"])
            self.on_event(self.variant.label, event)
        raise self._failed(f"it ended with status {self._process.wait()}; {self._last_message()}")

    def _failed(self, text: str) -> LabError:
        assert self._process is not None
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(_GRACE_S)
        kind = UsageError if self._process.returncode == UsageError.exit_status else RunError
        return kind(f"{self.variant.label} ({self.variant.environment.name}): {text}")

    def _last_message(self) -> str:
        lines = (self.folder / "messages.log").read_text(errors="replace").strip().splitlines()
        return lines[-1] if lines else "it wrote no message"
