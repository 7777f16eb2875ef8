"""Carries a batch of histories out: every writer makes its table, every reader reads every table.

The answer that all others are held to is that of Apache Hudi's reader on Apache Hudi's own table.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq

from serde_lab.errors import LabError
from serde_lab.peers.apache_hudi import root_cause
from tests.differential.columns import to_arrow
from tests.differential.history import History
from tests.differential.kind import Kind
from tests.differential.readers import Answer, FailedError, read, read_by_hudi
from tests.differential.writers import STRATEGIES, ByHudi, InProcess, OnSpark, Writer

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

HUDI = "Apache Hudi"
IN_TURN = "Apache Hudi and serde_lab in turn"
ON_SPARK = "serde_lab on Spark"
NOBODY = "nobody"
"""Reads a table that could not be written."""


@dataclass(frozen=True)
class Difference:
    """`reader` saw other rows in the table of `writer` than Apache Hudi in its own.

    `missing` and `unexpected` are rows as lines; `failed` is what was said where nothing was seen.
    """

    letter: str
    writer: str
    reader: str
    missing: tuple[str, ...] = ()
    unexpected: tuple[str, ...] = ()
    failed: str = ""

    def __str__(self) -> str:
        who = f"history {self.letter}, written by {self.writer}, read by {self.reader}: "
        if self.failed:
            return who + self.failed
        return who + f"missing {'; '.join(self.missing)} | seen {'; '.join(self.unexpected)}"


@dataclass(frozen=True)
class Trial:
    """One batch in `folder`. Histories whose letter is in `on_spark` the lab writes there, too.

    `turn` picks the strategies of the tables that only one of them writes, and who begins in turn.
    """

    session: SparkSession | None
    folder: Path
    kind: Kind
    histories: Mapping[str, History]
    on_spark: Sequence[str] = ()
    turn: int = 0

    def differences(self) -> list[Difference]:
        """What differs, of each history apart; empty if nothing does."""
        writers = [HUDI, *STRATEGIES, IN_TURN, *([ON_SPARK] if self.on_spark else [])]
        seen = self._seen(writers)
        expected = seen.pop((HUDI, "apache-hudi"), None)
        if expected is None or isinstance(expected, FailedError):
            # without histories that Apache Hudi cannot take, what is there to say of the others?
            wrong = self._culprits(HUDI)
            others = {k: v for k, v in self.histories.items() if k not in {w.letter for w in wrong}}
            part = self._part(others, "others")
            return [*wrong, *(part.differences() if others else [])]
        found: list[Difference] = []
        for (writer, reader), answer in seen.items():
            if isinstance(answer, FailedError):
                found += self._culprits(writer)
            else:
                found += compared(expected, answer, self._letters(writer), writer, reader)
        return found

    def write(self, writer: str) -> None:
        """Make the table of `writer`. Raises FailedError."""
        path = self.path(writer)
        turns = self._turns(writer)
        for number, (operation, turn) in enumerate(zip(self.kind.program, turns, strict=True)):
            rows = self._rows(number, self._letters(writer))
            if rows is None or (operation == "delete" and not Path(path).exists()):
                continue
            try:
                turn.write(path, self.kind, operation, rows)
            except LabError as exc:
                raise FailedError(f"commit {number}: {exc}") from exc
            except Exception as exc:  # what Spark raises differs from cause to cause
                said = " ".join(root_cause(str(exc)).split())[:400]
                raise FailedError(f"commit {number}: {said}") from exc

    @property
    def schema(self) -> pa.Schema:
        """The table's after the last commit that has rows."""
        histories = self.histories.values()
        last = max(
            (n for one in histories for n, rows in enumerate(one.commits) if rows), default=0
        )
        return self.kind.schema(last)

    def path(self, writer: str) -> str:
        """Where the table of `writer` is."""
        return str(self.folder / writer.replace(" ", "-"))

    def _seen(self, writers: Sequence[str]) -> dict[tuple[str, str], Answer | FailedError]:
        """What each judge sees in the table of each of `writers`."""
        seen: dict[tuple[str, str], Answer | FailedError] = {}
        paths = {}
        for writer in writers:
            try:
                self.write(writer)
            except FailedError as exc:
                seen[writer, NOBODY] = exc
                continue
            paths[writer] = self.path(writer)
            for reader in self.kind.judges:
                if reader != "apache-hudi":
                    try:
                        seen[writer, reader] = read(reader, paths[writer], self.schema)
                    except FailedError as exc:
                        seen[writer, reader] = exc
        if paths and self.session:
            by_hudi = read_by_hudi(self.session, paths, self.schema)
            seen |= {(writer, "apache-hudi"): answer for writer, answer in by_hudi.items()}
        return seen

    def _culprits(self, writer: str) -> list[Difference]:
        """The histories, one by one, whose table `writer` cannot make or somebody cannot read."""
        letters = self._letters(writer)
        if len(letters) > 1:
            middle = len(letters) // 2
            halves = [letters[:middle], letters[middle:]]
            found = []
            for name, half in zip("ab", halves, strict=True):
                part = self._part({letter: self.histories[letter] for letter in half}, name)
                failed = [a for a in part._seen([writer]).values() if isinstance(a, FailedError)]
                found += part._culprits(writer) if failed else []
            return found
        return [
            Difference(letters[0], writer, reader, failed=str(answer))
            for (_, reader), answer in self._seen([writer]).items()
            if isinstance(answer, FailedError)
        ]

    def _part(self, histories: Mapping[str, History], name: str) -> Trial:
        on_spark = [letter for letter in self.on_spark if letter in histories]
        folder = self.folder / f"{name}-{''.join(histories)}"
        return replace(self, folder=folder, histories=histories, on_spark=on_spark)

    def _letters(self, writer: str) -> list[str]:
        return list(self.on_spark if writer == ON_SPARK else self.histories)

    def _turns(self, writer: str) -> list[Writer]:
        commits = range(len(self.kind.program))
        if writer in (HUDI, IN_TURN, ON_SPARK):
            assert self.session is not None
            hudi = ByHudi(self.session)
            if writer == HUDI:
                return [hudi for _ in commits]
            if writer == ON_SPARK:
                return [OnSpark(self.session, self._strategy()) for _ in commits]
            ours = [InProcess(self._strategy(number)) for number in commits]
            return [one if (number + self.turn) % 2 else hudi for number, one in enumerate(ours)]
        return [InProcess(writer) for _ in commits]

    def _strategy(self, number: int = 0) -> str:
        return STRATEGIES[(self.turn + number) % len(STRATEGIES)]

    def _rows(self, number: int, letters: Sequence[str]) -> Path | None:
        """The rows of commit `number` in two files; None if there are none."""
        rows = [{"h": one, **r} for one in letters for r in self.histories[one].commits[number]]
        if not rows:
            return None
        place = self.folder / "inputs" / f"{number}-{''.join(letters)}"
        if not place.exists():
            place.mkdir(parents=True)
            for part in (0, 1):
                table = to_arrow(rows[part::2], self.kind.schema(number))
                pq.write_table(table, place / f"part-{part:05}.parquet")
        return place


def compared(
    expected: Answer, seen: Answer, letters: Iterable[str], *who: str
) -> Iterator[Difference]:
    """Where `seen` is not what was `expected` of the histories `letters`; `who` are writer and reader."""
    for letter in letters:
        right, found = expected.get(letter, Counter()), seen.get(letter, Counter())
        if right != found:
            missing = tuple(sorted((right - found).elements()))
            yield Difference(letter, *who, missing, tuple(sorted((found - right).elements())))
