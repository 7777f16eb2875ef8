"""Carries one cell out: makes its table, and after each operation lets every reader judge it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from serde_lab.errors import LabError, TableError
from serde_lab.peers.apache_hudi import root_cause
from serde_lab.verify.oracle import HistoryCommit
from tests.peers.hudi_options import HudiTable, HudiWrite
from tests.peers.interop.cells import Cell, ruling_of
from tests.peers.interop.columns import rows, schema_of
from tests.peers.lab_writer import LabWriter
from tests.peers.peer_tables import PeerTable, Step

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

State = Literal["right", "known", "wrong"]

_FIELDS: dict[str, dict[str, Any]] = {
    "no partition": {},
    "one field, hive style": {"partition": ("p",), "hive_style": True},
    "two fields, escaped": {"partition": ("p", "q"), "url_encode": True},
}


@dataclass(frozen=True)
class Outcome:
    """What one operation of a cell came to.

    `right`: every judge saw what the oracle says; `known`: Hudi failed as `readers.toml` has it, and
    the table stands as it was; `wrong`: anything else, with its `detail`.
    """

    operation: str
    state: State
    detail: str = ""


class Chain:
    """One cell under way in `folder`."""

    def __init__(self, session: SparkSession, folder: Path, cell: Cell) -> None:
        self.cell, self.ruling = cell, ruling_of(cell)
        table = HudiTable(
            "t",
            ("k", "n"),
            ("o",),
            table_type="MERGE_ON_READ" if cell.merge_on_read else "COPY_ON_WRITE",
            buckets=2,
            # a table of the lab's is upgraded by Hudi's first write to it
            version=9 if cell.by_lab else cell.version,
            **_FIELDS[cell.partition],
        )
        self.peer = PeerTable(session, folder, table, schema_of(cell.types))
        self.lab = LabWriter(self.peer, cell.blocks, cell.version)  # type: ignore[arg-type]
        self._upgraded = not (cell.by_lab and cell.version == 6 and cell.merge_on_read)
        self.hudi = HudiWrite(record_type=cell.record_type, log_block=cell.blocks)  # type: ignore[arg-type]

    def outcomes(self) -> Iterator[Outcome]:
        """One for each operation of the cell; after a `wrong` one nothing more is tried."""
        operation = "create"
        try:
            if not self.cell.by_lab and self.ruling.fails:
                yield from self._known(self.cell.operations)
                return
            self._create()
            for operation in self.cell.operations:
                if operation == "compact" and not self.cell.merge_on_read:
                    continue
                if self.ruling.fails and operation not in ("read", "write again"):
                    yield from self._known((operation,))
                    continue
                getattr(self, f"_{operation.replace(' ', '_')}")()
                yield Outcome(operation, "right")
        except _WrongRowsError as exc:
            yield Outcome(operation, "wrong", str(exc))
        except LabError as exc:
            yield Outcome(operation, "wrong", f"refused: {exc}")
        except Exception as exc:  # what Spark raises differs from cause to cause
            said = root_cause(str(exc)) if "Caused by" in str(exc) else str(exc)[:400]
            yield Outcome(operation, "wrong", f"Apache Hudi: {' '.join(said.split())[:300]}")

    def _create(self) -> None:
        steps = (
            self._upsert_of((range(24), 5, "first"), (range(16, 36), 4, "lower twin")),
            self._upsert_of(
                (range(8, 12), 5, "tie"), (range(12, 40), 6, "newer or new"), (range(4), 3, "late")
            ),
            self._delete_of(5, 6, 30, 999),
        )
        for step in steps:
            if self.cell.by_lab:
                self.lab.step(step)
            else:
                self._by_hudi(step, self.hudi)

    def _read(self) -> None:
        self._judge()

    def _upsert(self) -> None:
        step = self._upsert_of(
            ((5,), 8, "back"), ((6,), 2, "back lower"), (range(32, 44), 9, "by Hudi")
        )
        self._by_hudi(step, self.hudi)
        self._judge()

    def _delete(self) -> None:
        self._by_hudi(self._delete_of(40, 0, 5, 777), self.hudi)
        self._judge()

    def _compact(self) -> None:
        step = self._upsert_of((range(20, 30), 10, "before it is compacted"))
        self._by_hudi(step, replace(self.hudi, compact_after=1), compacted=True)
        self._judge()

    def _clean(self) -> None:
        for ordering in (11, 12):
            step = self._upsert_of((range(ordering, 26), ordering, "then cleaned"))
            # a merge-on-read table has file slices to clean only once it was compacted again
            after = 1 if self.cell.merge_on_read else 0
            write = replace(self.hudi, retain_commits=1, compact_after=after)
            self._by_hudi(step, write, compacted=self.cell.merge_on_read)
        self._judge()

    def _write_again(self) -> None:
        self.lab.step(self._upsert_of((range(22, 50), 13, "by the lab again"), ((3,), 1, "late")))
        self._judge()
        self.lab.step(self._delete_of(22, 44))
        self._judge()

    def _metadata_table(self) -> None:
        with_metadata = replace(self.hudi, metadata_table=True)
        self._by_hudi(self._upsert_of((range(30, 52), 14, "and metadata")), with_metadata)
        self._judge()
        again = self._upsert_of((range(46, 56), 15, "by the lab beside it"))
        try:
            self.lab.step(again)
        except TableError as exc:
            if "has a metadata table" not in exc.message:
                raise
            del self.peer.commits[-1]  # nothing was written
        else:
            raise _WrongRowsError("the lab wrote beside a metadata table")
        self._judge()
        self.lab.step(again, **{"serde_lab.drop_metadata_table": "true"})
        self._judge()
        self._by_hudi(self._upsert_of((range(50, 60), 16, "by Hudi anew")), with_metadata)
        self._judge()

    def _by_hudi(self, step: Step, write: HudiWrite, compacted: bool = False) -> None:
        if not self._upgraded:
            # before it makes a table of version 6 one of version 9, Hudi compacts all of its logs
            self._upgraded = True
            self.peer.commits.append(HistoryCommit("compact"))
        self.peer.by_hudi(step, write, compacted)

    def _known(self, operations: tuple[str, ...]) -> Iterator[Outcome]:
        """Hudi's write must fail; what was there before must still be there."""
        step = self._upsert_of((range(20, 44), 9, "by Hudi"))
        there = bool(self.peer.commits)
        try:
            self.peer.by_hudi(step, self.hudi)
        except Exception:
            del self.peer.commits[-1]
            if there:
                self._judge()
            for operation in operations:
                if operation != "compact" or self.cell.merge_on_read:
                    yield Outcome(operation, "known", self.ruling.fails)
        else:
            raise _WrongRowsError(f"did not happen: {self.ruling.fails}")

    def _judge(self) -> None:
        problems = self.peer.problems(self.ruling.judges)
        if problems:
            raise _WrongRowsError(problems[0])

    def _upsert_of(self, *files: tuple[Any, int, str]) -> Step:
        types = self.cell.types
        made = tuple(rows(types, *file) for file in files)
        return Step("upsert", made, self.peer.schema)

    def _delete_of(self, *numbers: int) -> Step:
        made = rows(self.cell.types, numbers, 1, "deleted")
        return Step("delete", (made,), self.peer.schema)


class _WrongRowsError(Exception):
    """A judge saw other rows than the oracle."""
