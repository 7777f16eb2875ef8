"""The histories that were carried out, one JSON line each, under the versions that they were tried with."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from tests.differential.history import History
from tests.differential.trial import Difference, Trial
from tests.peers.journal import Journal, code_version, today


@dataclass(frozen=True)
class Finished:
    """A history that ran: when, with which code, and what differed.

    `looks`: how many tables each reader read; `oddities`: how often Hudi's own ways were met, by name;
    `refused`: how often the lab refused a step, by reason.
    """

    number: int
    digest: str
    table_type: str
    index: str
    mode: str
    steps: int
    rows: int
    on_spark: bool
    by_hudi: bool
    looks: dict[str, int]
    oddities: dict[str, int]
    refused: dict[str, int]
    day: str
    code: str
    differences: tuple[str, ...]


class State:
    """What is in the file. Histories under other versions of Hudi, hudi-rs, Spark or Arrow are left out."""

    def __init__(self, journal: Journal, finished: dict[str, Finished]) -> None:
        self._journal, self.finished = journal, finished

    @classmethod
    def load(cls, path: Path) -> State:
        """The histories in `path`."""
        journal = Journal(path)
        found: dict[str, Finished] = {}
        for content in journal.entries():
            content["differences"] = tuple(content["differences"])
            finished = Finished(**content)
            found[finished.digest] = finished
        return cls(journal, found)

    def has(self, history: History, on_spark: bool) -> bool:
        """Whether that very history is done: one that differed is tried again."""
        found = self.finished.get(history.digest)
        return found is not None and not found.differences and found.on_spark >= on_spark

    def of(self, histories: Iterable[History]) -> list[Finished]:
        """What those of `histories` that ran came to."""
        digests = [one.digest for one in histories]
        return [self.finished[digest] for digest in digests if digest in self.finished]

    def add(self, number: int, trial: Trial, differences: Sequence[Difference]) -> Finished:
        """Keep what a history came to, on disk before anything else."""
        history, kind = trial.history, trial.history.kind
        finished = Finished(
            number,
            history.digest,
            kind.table_type,
            kind.index,
            kind.mode,
            len(history.steps),
            history.rows,
            trial.session is not None,
            trial.session is not None and history.hudi_may_write,
            dict(trial.looks),
            dict(trial.oddities),
            dict(trial.refused),
            today(),
            code_version(),
            tuple(map(str, differences)),
        )
        self.finished[history.digest] = finished
        self._journal.add(asdict(finished))
        return finished
