"""Carries a history out: every writer makes its table, every reader that may judge reads it.

All of them are held to the model, which knows which steps were done in full: a killed writer's may be.
"""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from tests.differential.columns import MARKS, line
from tests.differential.history import History, Step, wider
from tests.differential.model import Model
from tests.differential.readers import NOW, View, last_instant, read
from tests.differential.writers import ByHudi, FailedError, InProcess, OnSpark, Writer

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

HUDI = "Apache Hudi"
IN_TURN = "Apache Hudi and serde_lab in turn"
HUDI_READER = "apache-hudi"
LAB = "serde_lab"
ON_SPARK = "serde_lab on Spark"
NOBODY = "nobody"
"""Reads a table that could not be written."""

NULL_DELETE = "a marked delete with a null ordering value"
MISREAD_IN_PARTIAL = (
    "a column that becomes wider, or comes to mark deletes, after a partial log block"
)
REFUSALS = {NULL_DELETE: "marked as deletes", MISREAD_IN_PARTIAL: "logs hold partial updates"}
"""What the lab refuses of what is drawn, and a part of what it says then."""

GONE = ("its files may be gone", "need were cleaned", "which the lab does not read")
"""Parts of what the lab says of a time whose files may be gone."""


@dataclass(frozen=True)
class Difference:
    """After step number `step`, `reader` saw other rows in the table of `writer` than the model has.

    `expected` and `seen` are rows as lines; `failed` is what was said where nothing was seen.
    """

    step: int
    writer: str
    reader: str
    expected: tuple[str, ...] = ()
    seen: tuple[str, ...] = ()
    failed: str = ""

    def __str__(self) -> str:
        who = f"step {self.step}, written by {self.writer}, read by {self.reader}: "
        if self.failed:
            return who + self.failed
        pairs = zip(self.expected, self.seen, strict=True)
        return who + "; ".join(f"not {seen or 'nothing'} but {right}" for right, seen in pairs)


@dataclass(frozen=True)
class Moment:
    """A table when all that was `requested` by then had `completed`."""

    requested: str
    completed: str
    table: Model


@dataclass
class Trial:
    """One history in `folder`. With a session, the lab writes and reads on Spark, and Apache Hudi reads
    every table and writes one where it may.

    `looks` counts the tables that were read, by reader; `refused` the steps that were, by reason.
    """

    history: History
    folder: Path
    session: SparkSession | None = None
    looks: Counter[str] = field(default_factory=Counter)
    oddities: Counter[str] = field(default_factory=Counter)
    refused: Counter[str] = field(default_factory=Counter)

    def differences(self, writers: Sequence[str] = ()) -> list[Difference]:
        """What differs first in the table of each writer; empty if nothing does."""
        return [one for who in writers or self.writers for one in self._of_writer(who)]

    @property
    def writers(self) -> tuple[str, ...]:
        if self.session is None:
            return (LAB,)
        with_hudi = (HUDI, IN_TURN) if self.history.hudi_may_write else ()
        return (LAB, ON_SPARK, *with_hudi)

    def path(self, writer: str) -> str:
        """Where the table of `writer` is."""
        return str(self.folder / writer.replace(" ", "-"))

    def _of_writer(self, who: str) -> list[Difference]:
        shutil.rmtree(self.path(who), ignore_errors=True)
        model = Model(self.history.kind)
        moments: list[Moment] = []
        made = False
        for number, step in enumerate(self.history.steps):
            # a first write that is refused or killed may leave no table
            if not (made or step.brings_columns):
                continue
            try:
                in_full = self._turn(who, number).do(self.path(who), self.history.kind, step)
            except FailedError as exc:
                if not self._is_refusal(number, model, str(exc)):
                    return [Difference(number, who, NOBODY, failed=str(exc))]
                continue
            if in_full:
                made = True
                model.apply(step)
            if not made:
                continue
            last = number == len(self.history.steps) - 1
            found = list(self._looks(who, number, model, last))
            if found:
                return found
            moments.append(Moment(*last_instant(self.path(who)), model.kept()))
        self.oddities += model.oddities
        return list(self._looks_back(who, model, moments[:-1]))

    def _looks(self, who: str, number: int, model: Model, last: bool) -> Iterator[Difference]:
        """What each reader sees: those without Spark after every step, the others after the last."""
        for reader in self.history.judges:
            if reader != HUDI_READER:
                yield from self._look(who, number, reader, model, NOW)
                if model.knows_base_files:
                    yield from self._look(who, number, reader, model, View(base_files=True))
            if last and self.session is not None and reader != "hudi-rs":
                yield from self._look(who, number, reader, model, NOW, self.session)

    def _looks_back(
        self, who: str, model: Model, moments: Sequence[Moment]
    ) -> Iterator[Difference]:
        """What each reader sees of the table as it was after earlier steps, Apache Hudi of one of them. If
        files may have been cleaned since, only the lab is asked, which has to say so."""
        kept = not {step.operation for step in self.history.steps} & {"clean", "archive"}
        number = len(self.history.steps) - 1
        for at, moment in enumerate(moments):
            then = moment.table
            if kept and "hudi-rs" in self.history.judges:
                yield from self._changes(who, number, model, moment.completed)
            for reader in self.history.judges:
                by_hudi = reader == HUDI_READER
                if by_hudi and (self.session is None or at != len(moments) // 2):
                    continue
                if kept or reader == LAB:
                    session = self.session if by_hudi else None
                    # of then are the rows that hudi-rs gives, but not the columns
                    right = replace(then, columns=model.columns) if reader == "hudi-rs" else then
                    yield from self._look(
                        who, number, reader, right, View(as_of=moment.requested), session
                    )

    def _changes(self, who: str, number: int, model: Model, since: str) -> Iterator[Difference]:
        """The model does not know which write a row is of, so what the lab sees is held to hudi-rs."""
        view, schema = View(since=since), model.kind.schema(model.columns)
        self.looks.update(f"{reader}{view.kind}" for reader in ("hudi-rs", LAB))
        try:
            right, seen = (
                tuple(sorted(map(line, read(reader, self.path(who), schema, None, view))))
                for reader in ("hudi-rs", LAB)
            )
        except FailedError as exc:
            yield Difference(number, who, f"{LAB}{view.kind}", failed=str(exc))
            return
        if right != seen:
            yield Difference(
                number, who, f"{LAB}{view.kind}", (" ".join(right),), (" ".join(seen),)
            )

    def _look(
        self,
        who: str,
        number: int,
        reader: str,
        model: Model,
        view: View,
        session: SparkSession | None = None,
    ) -> Iterator[Difference]:
        by = reader if session is None or reader == HUDI_READER else ON_SPARK
        name = f"{by}{view.kind}"
        self.looks[name] += 1
        schema = model.kind.schema(model.columns)
        try:
            rows = read(reader, self.path(who), schema, session, view)
        except FailedError as exc:
            if not (view.as_of and any(part in str(exc) for part in GONE)):
                yield Difference(number, who, name, failed=str(exc))
            return
        wrong = list(model.differences(rows, view.base_files))
        if wrong:
            expected, seen = zip(*wrong, strict=True)
            yield Difference(number, who, name, expected, seen)

    def _is_refusal(self, number: int, model: Model, said: str) -> bool:
        """Whether the step may be refused, and was for the reason that it may; counts it."""
        before, step = self.history.steps[:number], self.history.steps[number]
        kind = self.history.kind
        may = []
        if any(kind.deletes(row) and kind.lacks_order(row) for row in step.rows):
            may.append(NULL_DELETE)
        if any(one.operation == "partial" for one in before) and _changes_columns(model, step):
            may.append(MISREAD_IN_PARTIAL)
        reasons = [name for name in may if REFUSALS[name] in said]
        self.refused.update(reasons[:1])
        return bool(reasons)

    def _turn(self, who: str, number: int) -> Writer:
        if who == LAB or self.session is None:
            return InProcess()
        if who == ON_SPARK:
            return OnSpark(self.session)
        if who == HUDI or number % 2 == len(self.history.steps) % 2:
            return ByHudi(self.session)
        return InProcess()


def _changes_columns(model: Model, step: Step) -> bool:
    """Whether a step makes a column wider, or brings one that marks deletes."""
    had = model.columns
    return any(
        had[name] != wider(had[name], of) if name in had else name in MARKS
        for name, of in step.columns
    )
