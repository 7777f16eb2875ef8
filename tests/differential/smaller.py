"""Makes a history that differs as small as it can be: a step, a row, a column less, a plainer step."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from tests.differential.history import History, Step
from tests.differential.trial import Difference, Trial

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_TRIALS = 400
_TRIALS_ON_SPARK = 40


def smallest(
    history: History, difference: Difference, folder: Path, session: SparkSession | None
) -> tuple[History, Difference]:
    """The smallest form of `history` that the same reader sees differently, and how it does."""
    found = [difference]

    def differs(smaller: History) -> bool:
        trial = Trial(smaller, folder, session)
        try:
            for one in trial.differences([difference.writer]):
                if _alike(one, difference):
                    found[0] = one
                    return True
            return False
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    history = replace(history, steps=history.steps[: difference.step + 1])
    history = _shrunk(history, differs, _TRIALS_ON_SPARK if session else _TRIALS)
    return history, found[0]


def _alike(one: Difference, other: Difference) -> bool:
    """Whether both fail, or both show wrong rows, to the same reader."""
    return one.reader == other.reader and _gist(one.failed) == _gist(other.failed)


def _gist(failed: str) -> str:
    """What was said without the names, paths and numbers in it."""
    return re.sub(r"/\S+|'[^']*'|\d+", "", failed)


def _shrunk(history: History, differs: Callable[[History], bool], trials: int) -> History:
    """`history` after all changes that leave it differing, as many as can be tried."""
    changed = True
    while changed:
        changed = False
        for smaller in _smaller(history):
            if trials == 0:
                return history
            trials -= 1
            if differs(smaller):
                history, changed = smaller, True
                break
    return history


def _smaller(history: History) -> Iterator[History]:
    """Forms of `history` with less in them, those with least first."""
    steps = history.steps
    for at in range(len(steps)):
        if len(steps) > 1:
            yield replace(history, steps=(*steps[:at], *steps[at + 1 :]))
    for at, step in enumerate(steps):
        for less in _smaller_step(step):
            yield replace(history, steps=(*steps[:at], less, *steps[at + 1 :]))
    for name in [one for one in history.columns() if one not in history.kind.orderings]:
        columns = [_without(step, name) for step in steps]
        if all(step.columns or not step.brings_columns for step in columns):
            yield replace(history, steps=tuple(columns))


def _smaller_step(step: Step) -> Iterator[Step]:
    if len(step.rows) > 1:
        for row in range(len(step.rows)):
            yield replace(step, rows=step.rows[:row] + step.rows[row + 1 :])
    for path in step.partitions if len(step.partitions) > 1 else ():
        yield replace(step, partitions=tuple(one for one in step.partitions if one != path))
    plain = Step("")
    names = (
        "killed_at",
        "undone",
        "execution",
        "rows_per_frame",
        "files",
        "strategy",
        "blocks",
        "looks_back",
    )
    for name in names:
        if getattr(step, name) != getattr(plain, name):
            yield replace(step, **{name: getattr(plain, name)})


def _without(step: Step, name: str) -> Step:
    rows = tuple({key: value for key, value in row.items() if key != name} for row in step.rows)
    return replace(step, rows=rows, columns=tuple(one for one in step.columns if one[0] != name))
