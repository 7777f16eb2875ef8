"""The batches that were carried out, one JSON line each, under the versions that they were tried with."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tests.differential.kind import Kind
from tests.differential.made import Batch
from tests.differential.trial import Difference
from tests.peers.interop.state import code_version, versions


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

    def __init__(self, path: Path, finished: dict[str, Finished]) -> None:
        self._path, self.finished = path, finished

    @classmethod
    def load(cls, path: Path) -> State:
        """The batches in `path`; a torn last line is as if it was not there."""
        found: dict[str, Finished] = {}
        lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
        for line in lines:
            try:
                content: dict[str, Any] = json.loads(line)
            except ValueError:
                continue
            if content.pop("versions") != versions():
                continue
            content["kind"] = Kind.of(content["kind"])
            content["differences"] = tuple(_difference(one) for one in content["differences"])
            finished = Finished(**content)
            found[finished.digest] = finished
        return cls(path, found)

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
            f"{datetime.now(UTC):%Y-%m-%d}",
            code_version(),
            tuple(differences),
            differing,
        )
        self.finished[batch.digest] = finished
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with self._path.open("a+b") as file:
            line = json.dumps(asdict(finished) | {"versions": versions()})
            # on a line of its own, whatever was torn before it
            file.write(f"\n{line}\n".encode())
        return finished


def _difference(content: dict[str, Any]) -> Difference:
    lists = {name: tuple(content[name]) for name in ("missing", "unexpected")}
    return Difference(**{**content, **lists})
