"""The batches that were carried out, one JSON line each, under the versions that they were tried with."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tests.differential.kind import Kind
from tests.differential.made import Batch
from tests.differential.trial import Difference
from tests.peers.journal import Journal, code_version, today


@dataclass(frozen=True)
class Finished:
    """A batch that ran: when, with which code, and what differed.

    `commits` and `rows` count those of its histories; `differing` holds the histories that differed,
    by letter.
    """

    number: int
    digest: str
    kind: Kind
    histories: int
    commits: int
    rows: int
    on_spark: int
    day: str
    code: str
    differences: tuple[Difference, ...]
    differing: dict[str, Any]


class State:
    """What is in the file. Batches of other versions of Hudi, hudi-rs, Spark or Arrow are left out."""

    def __init__(self, journal: Journal, finished: dict[str, Finished]) -> None:
        self._journal, self.finished = journal, finished

    @classmethod
    def load(cls, path: Path) -> State:
        """The batches in `path`."""
        journal = Journal(path)
        found: dict[str, Finished] = {}
        for content in journal.entries():
            content["kind"] = Kind.of(content["kind"])
            content["differences"] = tuple(_difference(one) for one in content["differences"])
            finished = Finished(**content)
            found[finished.digest] = finished
        return cls(journal, found)

    def has(self, batch: Batch) -> bool:
        """Whether that very batch is done: one that differed is tried again."""
        found = self.finished.get(batch.digest)
        return found is not None and not found.differences

    def of(self, batches: Iterable[Batch]) -> list[Finished]:
        """What those of `batches` that ran came to."""
        return [self.finished[one.digest] for one in batches if one.digest in self.finished]

    def add(self, batch: Batch, on_spark: int, differences: Sequence[Difference]) -> Finished:
        """Keep what a batch came to, on disk before anything else."""
        histories = batch.histories
        differing = {one.letter: histories[one.letter].commits for one in differences}
        finished = Finished(
            batch.number,
            batch.digest,
            batch.kind,
            len(histories),
            sum(bool(rows) for history in histories.values() for rows in history.commits),
            sum(history.rows for history in histories.values()),
            on_spark,
            today(),
            code_version(),
            tuple(differences),
            differing,
        )
        self.finished[batch.digest] = finished
        self._journal.add(asdict(finished))
        return finished


def _difference(content: dict[str, Any]) -> Difference:
    lists = {name: tuple(content[name]) for name in ("missing", "unexpected")}
    return Difference(**{**content, **lists})
