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

from tests.differential.columns import line
from tests.differential.history import History
from tests.differential.model import Model
from tests.differential.readers import NOW, View, last_instant, planned, read
from tests.differential.writers import ByHudi, FailedError, InProcess, OnSpark, Writer

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from serde_lab.table.read_plan import ReadPlan

HUDI = "Apache Hudi"
IN_TURN = "Apache Hudi and serde_lab in turn"
BEGUN = "Apache Hudi first and then serde_lab"
HUDI_READER = "apache-hudi"
LAB = "serde_lab"
ON_SPARK = "serde_lab on Spark"
NOBODY = "nobody"
"""Reads a table that could not be written."""

NULL_DELETE = "a marked delete with a null ordering value"
MISREAD_IN_PARTIAL = (
    "a column that becomes wider, or comes to mark deletes, after a partial log block"
)
WIDER_THAN_DELETES = "an ordering column that becomes wider beside deletes in logs"
RESIZED = "a write after a restore to before its buckets were split or merged"
REFUSALS = {
    NULL_DELETE: "marked as deletes",
    MISREAD_IN_PARTIAL: "logs hold partial updates",
    WIDER_THAN_DELETES: "logs hold deletes with values of it",
    RESIZED: "hashing",
}
"""What the lab refuses of what is drawn, and a part of what it says then."""

GONE = (
    "its files may be gone",
    "need were cleaned",
    "were archived",
    "which the lab does not read",
)
"""Parts of what the lab says of a time whose files may be gone, or whose changes are archived."""

NO_FILE = "no such file"
"""A part of what it says where a file is gone that it planned to read."""


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
    """A table when all that was `requested` by then had `completed`. `gone`: files may have been cleaned or
    changes archived since."""

    requested: str
    completed: str
    table: Model
    gone: bool = False


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
        if self.history.hudi_may_write:
            return (LAB, ON_SPARK, HUDI, IN_TURN)
        return (LAB, ON_SPARK, BEGUN) if self.history.hudi_may_begin else (LAB, ON_SPARK)

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
            must_refuse = model.widens_deletes(step)
            plan = planned(self.path(who)) if made and not step.writes else None
            before = Moment("", "", model.kept(), gone=step.operation in ("clean", "restore"))
            try:
                in_full = self._turn(who, number).do(self.path(who), self.history.kind, step)
            except FailedError as exc:
                if not self._is_refusal(number, model, str(exc)):
                    return [Difference(number, who, NOBODY, failed=str(exc))]
                continue
            if must_refuse:
                return [Difference(number, who, NOBODY, failed=f"written: {WIDER_THAN_DELETES}")]
            if in_full:
                made = True
                model.apply(step)
            if not made:
                continue
            if step.operation in ("clean", "archive"):
                moments = [replace(moment, gone=True) for moment in moments]
            if step.operation == "restore":
                moments = [
                    replace(one, table=model.kept()) if model.is_undone(one.table) else one
                    for one in moments
                ]
            last = number == len(self.history.steps) - 1
            found = list(self._looks(who, number, model, last))
            if plan is not None:
                found += self._look(who, number, LAB, before.table, NOW, moment=before, plan=plan)
            if 0 < step.looks_back <= len(moments) and not last:
                found += self._looks_back(who, number, model, moments[-step.looks_back])
            if found:
                return found
            moments.append(Moment(*last_instant(self.path(who)), model.kept()))
        self.oddities += model.oddities
        number, half = len(self.history.steps) - 1, len(moments[:-1]) // 2
        return [
            difference
            for at, moment in enumerate(moments[:-1])
            for difference in self._looks_back(who, number, model, moment, by_hudi=at == half)
        ]

    def _looks(self, who: str, number: int, model: Model, last: bool) -> Iterator[Difference]:
        """What each reader sees: those without Spark after every step, the others after the last."""
        for reader in self.history.judges:
            if reader != HUDI_READER:
                step = self.history.steps[number]
                merged_by = View(strategy=step.strategy, execution=step.execution)
                yield from self._look(who, number, reader, model, merged_by)
                if model.knows_base_files:
                    yield from self._look(who, number, reader, model, View(base_files=True))
            if last and self.session is not None and reader != "hudi-rs":
                yield from self._look(who, number, reader, model, NOW, self.session)

    def _looks_back(
        self, who: str, number: int, model: Model, moment: Moment, by_hudi: bool = False
    ) -> Iterator[Difference]:
        """What each reader sees of the table as it was at `moment`, and of the changes since; `by_hudi`:
        Apache Hudi too. If files may have been cleaned since, only the lab is asked, which has to say so."""
        then, since = moment.table, View(since=moment.completed)
        if not moment.gone and "hudi-rs" in self.history.judges:
            yield from self._changes(who, number, model, since)
        if model.knows_base_files:
            yield from self._look(who, number, LAB, model, since, moment=moment)
        for reader in self.history.judges:
            is_hudi = reader == HUDI_READER
            if (is_hudi and not (by_hudi and self.session)) or (moment.gone and reader != LAB):
                continue
            # of then are the rows that hudi-rs gives, but not the columns
            right = replace(then, columns=model.columns) if reader == "hudi-rs" else then
            view = View(as_of=moment.requested)
            session = self.session if is_hudi else None
            yield from self._look(who, number, reader, right, view, session, moment)

    def _changes(self, who: str, number: int, model: Model, view: View) -> Iterator[Difference]:
        """The lab and hudi-rs see the same changes; the model does not know all of them."""
        schema = model.kind.schema(model.columns)
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
        moment: Moment | None = None,
        plan: ReadPlan | None = None,
    ) -> Iterator[Difference]:
        by = reader if session is None or reader == HUDI_READER else ON_SPARK
        name = f"{by}{view.kind}" if plan is None else f"{by}, planned before a service"
        self.looks[name] += 1
        schema = model.kind.schema(model.columns)
        try:
            rows = read(reader, self.path(who), schema, session, view, plan)
        except FailedError as exc:
            gone = moment is not None and moment.gone
            parts = GONE if plan is None else (NO_FILE,)
            if not (gone and any(part in str(exc) for part in parts)):
                yield Difference(number, who, name, failed=str(exc))
            return
        since = moment.table.step if moment is not None and view.since else None
        wrong = list(model.differences(rows, view.base_files, since))
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
        if any(one.operation == "partial" for one in before) and model.changes_columns(step):
            may.append(MISREAD_IN_PARTIAL)
        if model.widens_deletes(step) is not False:
            may.append(WIDER_THAN_DELETES)
        done = [one.operation for one in before]
        if "restore" in done and ("split" in done or "merge" in done):
            may.append(RESIZED)
        reasons = [name for name in may if REFUSALS[name] in said]
        self.refused.update(reasons[:1])
        return bool(reasons)

    def _turn(self, who: str, number: int) -> Writer:
        if who == LAB or self.session is None:
            return InProcess()
        if who == ON_SPARK:
            return OnSpark(self.session)
        if who == HUDI or (number == 0 if who == BEGUN else self._is_turn(number)):
            return ByHudi(self.session)
        return InProcess()

    def _is_turn(self, number: int) -> bool:
        """Whether Apache Hudi does the step where both writers take turns: the lab does the last one."""
        return number % 2 == len(self.history.steps) % 2
