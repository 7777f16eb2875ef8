"""Follows one record and one figure through the code, and counts the modules that they enter.

The rule. A module is entered when one of its functions runs; importing it does not count, nor does what
runs while it is imported. Modules of `serde_lab` and `tpch` count, templates do not.

- The path of a record: every function that runs in the commit of an upsert, on the driver from
  `PreparedWrite.commit` to its return, and in the tasks on the workers.
- The way of a figure, the wall time of `map.encode`: every function that is given it by itself, or that
  returns it by itself or inside what it returns, in the task, in the run, and in `serde_lab report`. It is
  known by its value: nanoseconds in a worker, seconds in a run, its digits in a file and in a page.

Workers do not inherit the driver's profiler: a task installs its own and leaves its notes in a folder.
"""

from __future__ import annotations

import json
import re
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import fields, is_dataclass
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import pyarrow as pa
from pydantic import BaseModel

from serde_lab.measure.timeline import TaskReport
from serde_lab.pipeline.spark.worker import SparkTask
from serde_lab.records.operation import Operation

ROOT = Path(__file__).parents[2]
PACKAGES = ("serde_lab", "tpch")
PHASE = "encode"

Seen = Callable[[object], bool]


class Follower:
    """A profiler that notes when each module was first entered, in nanoseconds since the epoch.

    `figure`, if given, says whether a value is the figure: only functions that handle it count then.
    """

    def __init__(self, figure: Seen | None = None) -> None:
        self.entered: dict[str, int] = {}
        self.figure = figure
        self._importing: dict[int, int] = {}
        self._modules: dict[CodeType, str] = {}

    def __call__(self, frame: FrameType, event: str, arg: object) -> None:
        if event not in ("call", "return"):
            return
        code, thread = frame.f_code, threading.get_ident()
        if code.co_name == "<module>":
            step = 1 if event == "call" else -1
            self._importing[thread] = self._importing.get(thread, 0) + step
            return
        if self._importing.get(thread):
            return
        module = self._modules.get(code)
        if module is None:
            module = self._modules[code] = _module(code.co_filename)
        if not module or module in self.entered:
            return
        if self.figure is not None:
            handled = _arguments(frame) if event == "call" else [arg]
            if not any(map(self.figure, handled)):
                return
        self.entered[module] = time.time_ns()


@contextmanager
def following(*followers: Follower) -> Iterator[None]:
    """Follow what runs in this thread, and in threads that begin meanwhile."""

    def profiler(frame: FrameType, event: str, arg: object) -> None:
        for follower in followers:
            follower(frame, event, arg)

    _forget()
    threading.setprofile(profiler)
    sys.setprofile(profiler)
    try:
        yield
    finally:
        sys.setprofile(None)
        threading.setprofile(None)  # type: ignore[arg-type]


def _module(file: str) -> str:
    """The module of a file by its path in the project; "" for what is none of it."""
    path = Path(file)
    if path.suffix != ".py" or not path.is_relative_to(ROOT):
        return ""
    inside = path.relative_to(ROOT)
    return str(inside) if inside.parts[0] in PACKAGES else ""


def _arguments(frame: FrameType) -> list[object]:
    """What a function is given by itself: a whole run that is passed on is given to nearly all."""
    return [value for value in frame.f_locals.values() if isinstance(value, int | float | str)]


def _forget() -> None:
    """Empty the caches of functions, so that each runs the first time that it is called."""
    for name, module in list(sys.modules.items()):
        if name.partition(".")[0] in PACKAGES:
            for value in list(vars(module).values()):
                clear = getattr(value, "cache_clear", None)
                if callable(clear):
                    clear()


class Figure:
    """The wall time of one phase of one task, in each form that it takes on its way."""

    def __init__(self, nanoseconds: int) -> None:
        self.nanoseconds, self.seconds = nanoseconds, nanoseconds / 1e9
        digits = {str(nanoseconds), repr(self.seconds), f"{self.seconds:.10g}"}
        self._digits = re.compile(rf"(?<![\w.])({'|'.join(map(re.escape, digits))})(?![\w.])")
        self._known: dict[int, tuple[object, bool]] = {}

    def __call__(self, value: object) -> bool:
        """Whether `value` is the figure, or has it inside."""
        if isinstance(value, str):
            return self._digits.search(value) is not None
        if isinstance(value, int | float):
            return value in (self.nanoseconds, self.seconds)
        if not isinstance(value, tuple):
            return any(map(self, _inside(value)))
        # a tuple stays what it is
        if id(value) not in self._known:
            self._known[id(value)] = value, any(map(self, value))
        return self._known[id(value)][1]


def _inside(value: object) -> Iterable[object]:
    if isinstance(value, Mapping):
        return list(value.values())
    if isinstance(value, list):
        return value
    if isinstance(value, type):
        return ()
    if isinstance(value, BaseModel):
        return list(value.__dict__.values())
    if is_dataclass(value):
        return [getattr(value, field.name, None) for field in fields(value)]
    return ()


class _FirstReport:
    """The figure in a worker: there is none before the task's clock is read for its report."""

    def __init__(self) -> None:
        self.figure: Figure | None = None

    def __call__(self, value: object) -> bool:
        if self.figure is None and isinstance(value, TaskReport) and PHASE in value.phases:
            self.figure = Figure(value.phases[PHASE].wall_ns)
        return self.figure is not None and self.figure(value)


class FollowedTask(SparkTask):
    """A task that notes which modules it enters, in a folder that driver and workers share."""

    def __init__(self, notes: Path, *args: Any) -> None:
        super().__init__(*args)
        self.notes = notes

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        reported = _FirstReport()
        record, figure = Follower(), Follower(reported)
        with following(record, figure):
            yield from super().__call__(batches)
        if self.plan.operation is Operation.UPSERT:
            found = None if reported.figure is None else reported.figure.nanoseconds
            note = {"record": record.entered, "figure": figure.entered, "nanoseconds": found}
            (self.notes / f"{self.stage}.json").write_text(json.dumps(note))
