"""The finished cells of the cover, one JSON line each, under the versions that they were tried with."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path

from tests.peers.interop.cells import Cell
from tests.peers.interop.chain import Outcome
from tests.peers.journal import Journal, code_version, today


@dataclass(frozen=True)
class Finished:
    """A cell that ran: when, with which code, and what its operations came to."""

    kind: str
    partition: str
    author: str
    types: str
    record_type: str
    day: str
    code: str
    outcomes: tuple[Outcome, ...]

    @property
    def name(self) -> str:
        return " | ".join((self.kind, self.partition, self.author, self.types, self.record_type))


class State:
    """What is in the file. Cells of other versions of Hudi, hudi-rs, Spark or Arrow are left out."""

    def __init__(self, journal: Journal, finished: dict[tuple[str, str], Finished]) -> None:
        self._journal, self.finished = journal, finished

    @classmethod
    def load(cls, path: Path) -> State:
        """The finished cells of `path`."""
        journal = Journal(path)
        found: dict[tuple[str, str], Finished] = {}
        for content in journal.entries():
            outcomes = tuple(Outcome(**outcome) for outcome in content.pop("outcomes"))
            one = Finished(**content, outcomes=outcomes)
            found[_key(one.name, outcomes)] = one
        return cls(journal, found)

    def has(self, cell: Cell) -> bool:
        """Whether all of the cell's operations ran, in one run or another, up to one that is wrong."""
        done = {o.operation for name, o in self._outcomes() if name == cell.name}
        wrong = any(o.state == "wrong" for name, o in self._outcomes() if name == cell.name)
        wanted = {o for o in cell.operations if o != "compact" or cell.merge_on_read}
        return wrong or wanted <= done

    def add(self, cell: Cell, outcomes: tuple[Outcome, ...]) -> None:
        """Keep what a cell came to, on disk before anything else."""
        facts = (cell.kind, cell.partition, cell.author, cell.types, cell.record_type)
        one = Finished(*facts, today(), code_version(), outcomes)
        self.finished[_key(one.name, outcomes)] = one
        self._journal.add(asdict(one))

    def wrong(self) -> list[tuple[str, Outcome]]:
        """Every operation that did not do as it should, with its cell."""
        return [(name, one) for name, one in self._outcomes() if one.state == "wrong"]

    def _outcomes(self) -> list[tuple[str, Outcome]]:
        return [(cell.name, one) for cell in self.finished.values() for one in cell.outcomes]


def _key(name: str, outcomes: tuple[Outcome, ...]) -> tuple[str, str]:
    return name, " ".join(outcome.operation for outcome in outcomes)
