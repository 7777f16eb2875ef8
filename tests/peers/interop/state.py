"""The finished cells of the cover, one JSON line each, under the versions that they were tried with."""

from __future__ import annotations

import importlib.metadata
import json
import platform
import subprocess
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from serde_lab.peers.apache_hudi import VERSION
from tests.peers.interop.cells import Cell
from tests.peers.interop.chain import Outcome


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

    def __init__(self, path: Path, finished: dict[tuple[str, str], Finished]) -> None:
        self._path, self.finished = path, finished

    @classmethod
    def load(cls, path: Path) -> State:
        """The finished cells of `path`; a torn last line is as if it was not there."""
        found: dict[tuple[str, str], Finished] = {}
        lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
        for line in lines:
            try:
                content: dict[str, Any] = json.loads(line)
            except ValueError:
                continue
            if content.pop("versions") != versions():
                continue
            outcomes = tuple(Outcome(**outcome) for outcome in content.pop("outcomes"))
            one = Finished(**content, outcomes=outcomes)
            found[_key(one.name, outcomes)] = one
        return cls(path, found)

    def has(self, cell: Cell) -> bool:
        """Whether all of the cell's operations ran, in one run or another, up to one that is wrong."""
        done = {o.operation for name, o in self._outcomes() if name == cell.name}
        wrong = any(o.state == "wrong" for name, o in self._outcomes() if name == cell.name)
        wanted = {o for o in cell.operations if o != "compact" or cell.merge_on_read}
        return wrong or wanted <= done

    def add(self, cell: Cell, outcomes: tuple[Outcome, ...]) -> None:
        """Keep what a cell came to, on disk before anything else."""
        facts = (cell.kind, cell.partition, cell.author, cell.types, cell.record_type)
        day = f"{datetime.now(UTC):%Y-%m-%d}"
        one = Finished(*facts, day, code_version(), outcomes)
        self.finished[_key(one.name, outcomes)] = one
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with self._path.open("a+b") as file:
            line = json.dumps(asdict(one) | {"versions": versions()})
            # on a line of its own, whatever was torn before it
            file.write(f"\n{line}\n".encode())

    def wrong(self) -> list[tuple[str, Outcome]]:
        """Every operation that did not do as it should, with its cell."""
        return [(name, one) for name, one in self._outcomes() if one.state == "wrong"]

    def _outcomes(self) -> list[tuple[str, Outcome]]:
        return [(cell.name, one) for cell in self.finished.values() for one in cell.outcomes]


def versions() -> dict[str, str]:
    """Of everything that reads or writes here, the project itself apart."""
    named = {"hudi-rs": "hudi", "Spark": "pyspark", "pyarrow": "pyarrow"}
    found = {name: importlib.metadata.version(package) for name, package in named.items()}
    return {"Apache Hudi": VERSION, **found, "Python": platform.python_version()}


def _key(name: str, outcomes: tuple[Outcome, ...]) -> tuple[str, str]:
    return name, " ".join(outcome.operation for outcome in outcomes)


def code_version() -> str:
    """The commit of the checkout."""
    answer = subprocess.run(
        ["git", "rev-parse", "--short=10", "HEAD"], capture_output=True, text=True, check=False
    )
    return answer.stdout.strip()
