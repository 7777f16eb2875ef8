"""Makes a history that differs as small as it can be: all its next smaller forms are tried as one batch."""

from __future__ import annotations

import contextlib
import json
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from tests.differential.history import Case, History, Row
from tests.differential.kind import LETTERS, Kind
from tests.differential.made import Batch
from tests.differential.readers import FailedError, read_by_hudi
from tests.differential.trial import HUDI, Difference, Trial

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_ROUNDS = 12


def smallest(
    session: SparkSession, folder: Path, batch: Batch, differences: Sequence[Difference]
) -> Case:
    """The smallest form of the smallest history of `batch` that differed, as a case without a name."""
    letters = {one.letter for one in differences}
    history = min((batch.histories[one] for one in letters), key=lambda one: one.rows)
    kind = replace(batch.kind, buckets=len(LETTERS))
    found = next(one for one in differences if batch.histories[one.letter] is history)
    for number in range(_ROUNDS):
        smaller = dict(zip(LETTERS, _smaller(kind, history), strict=False))
        trial = Trial(session, folder / f"{number}", kind, smaller, turn=batch.number)
        worse = {one.letter: one for one in reversed(trial.differences())}
        if not worse:
            break
        letter = min(worse)
        history, found = smaller[letter], worse[letter]
    kind, history = _trimmed(kind, history)
    trial = Trial(session, folder / "last", kind, {LETTERS[0]: history})
    rows: list[str] = []
    with contextlib.suppress(FailedError):
        trial.write(HUDI)
        answer = read_by_hudi(session, {HUDI: trial.path(HUDI)}, trial.schema)[HUDI]
        if not isinstance(answer, FailedError):
            rows = sorted(answer.get(LETTERS[0], Counter()).elements())
    return Case(
        f"batch-{batch.number}", str(found), kind, history, tuple(json.loads(row) for row in rows)
    )


def _trimmed(kind: Kind, history: History) -> tuple[Kind, History]:
    """Without the columns and commits that `history` does not use."""
    used = {name for rows in history.commits for row in rows for name in row}
    pairs = [
        (operation, rows)
        for operation, rows in zip(kind.program, history.commits, strict=True)
        if rows
    ]
    kept = [number for number, rows in enumerate(history.commits) if rows]
    kind = replace(
        kind,
        columns=tuple(name for name in kind.columns if name in used),
        program=tuple(operation for operation, _ in pairs),
        grown=tuple(
            (name, sum(number < since for number in kept), was)
            for name, since, was in kind.grown
            if name in used
        ),
        buckets=1,
    )
    names = ("k", "p", *kind.orderings, *kind.columns)
    return kind, History(tuple(tuple(_ordered(row, names) for row in rows) for _, rows in pairs))


def _ordered(row: Row, names: Sequence[str]) -> Row:
    return {name: row[name] for name in names if name in row}


def _smaller(kind: Kind, history: History) -> Iterator[History]:
    """Forms of `history` with less in them, those with least first."""
    commits = history.commits
    for at, rows in enumerate(commits):
        if rows:
            yield History((*commits[:at], (), *commits[at + 1 :]))
    for at, rows in enumerate(commits):
        for row in range(len(rows) if len(rows) > 1 else 0):
            yield History((*commits[:at], rows[:row] + rows[row + 1 :], *commits[at + 1 :]))
    for name in kind.columns:
        if any(name in row for rows in commits for row in rows):
            yield History(tuple(tuple(_without(row, name) for row in rows) for rows in commits))


def _without(row: Row, name: str) -> Row:
    return {key: value for key, value in row.items() if key != name}
