"""Reads tables with the lab's own reader: for checks without hudi-rs, for upsert_prepped, and while a stream
writes.

`tests/readers.toml` lists which reader can judge which feature.
"""

from __future__ import annotations

import multiprocessing
import signal
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection
from multiprocessing.synchronize import Event
from pathlib import Path
from typing import Self

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from serde_lab.errors import LabError
from serde_lab.lab.inputs.prepared import CommitInput
from serde_lab.records.schema import FILE_NAME
from serde_lab.table.read_plan import ReadPlan, plan_snapshot
from serde_lab.table.storage.storage import Storage
from serde_lab.table.table import HoodieTable
from serde_lab.verify.readers import HudiRs, TableFacts

_ROW = "_row"


@dataclass(frozen=True)
class LabReader:
    """The rows of the table at `path` as `serde_lab.read` returns them; a TableReader."""

    path: str
    name: str = "serde_lab"

    @property
    def schema(self) -> pa.Schema:
        """Meta columns, then data columns."""
        return self._plan().schema

    def batches(self) -> Iterator[pa.RecordBatch]:
        plan = self._plan()
        for found in plan.slices:
            yield from plan.batches(found)

    def facts(self) -> TableFacts:
        """The same facts as `HudiRs.facts`, from the lab's own listing."""
        table = self._table()
        names: dict[str, set[str]] = {}
        for found in table.view().latest_file_slices():
            allowed = names.setdefault(found.partition_path, set())
            if found.base_file is not None:
                allowed.add(found.base_file.path.rpartition("/")[2])
            if found.log_files:
                allowed.add(found.file_id)
        instants = tuple(sorted(instant.time for instant in table.timeline().completed()))
        files = {path: frozenset(allowed) for path, allowed in names.items()}
        return TableFacts(files, instants, HudiRs(self.path).has_archive())

    def _plan(self) -> ReadPlan:
        return plan_snapshot(self._table())

    def _table(self) -> HoodieTable:
        return HoodieTable.open(Storage.open(self.path))


def located(commit: CommitInput, table: Path, key: Sequence[str], folder: Path) -> CommitInput:
    """`commit` with its rows copied into `folder`, each with the name of the file that stores its key.

    A user of upsert_prepped reads the table before the write. The lab does so before each cell's clock
    starts, since file names differ from table to table. `key`: the columns that identify a stored row,
    including those of the partition. Raises LabError for rows that are not stored.
    """
    batches = (batch.select([*key, FILE_NAME]) for batch in LabReader(str(table)).batches())
    stored = pa.Table.from_batches(batches)
    folder.mkdir(parents=True)
    files = []
    for file in commit.files:
        rows = pq.read_table(file)
        numbered = rows.select(key).append_column(_ROW, pa.array(range(len(rows)), pa.int64()))
        joined = numbered.join(stored, list(key), join_type="inner").sort_by(_ROW)
        if len(joined) != len(rows):
            raise LabError(
                f"{commit.name}: {len(rows) - len(joined):,} of {len(rows):,} rows of {file.name} are not"
                " in the table; an upsert_prepped updates stored rows only"
            )
        names = joined.column(FILE_NAME).combine_chunks().cast(pa.string())
        files.append(folder / file.name)
        pq.write_table(rows.append_column(FILE_NAME, names), files[-1])
    return replace(commit, folder=folder, files=tuple(files))


WRAPS_AT = 1 << 64
"""Sums of a column are known modulo this number."""


@dataclass(frozen=True, slots=True)
class Read:
    """One read of a whole table beside its writer: the rows, and the sum of their values in one column
    modulo WRAPS_AT.

    `reader` is "serde_lab 1" or "hudi-rs 2". `error`: why it could not read; "" if it could. The times are
    those of the epoch.
    """

    reader: str
    begin_ns: int
    end_ns: int
    rows: int = 0
    total: int = 0
    error: str = ""


class Readers:
    """Processes that read the table at `path` again and again, as long as they may: `go`, and not `pause`.

    The first of `count` reads as `serde_lab.read` does, the second is hudi-rs, and so in turn. They add up
    `column`. A context manager, which ends them.
    """

    def __init__(self, count: int, path: Path, column: str) -> None:
        spawn = multiprocessing.get_context("spawn")
        self._may, self._over = spawn.Event(), spawn.Event()
        self._pipes: list[Connection] = []
        self._processes = []
        for number in range(count):
            ours, theirs = spawn.Pipe(duplex=False)
            work = (number, str(path), column, self._may, self._over, theirs)
            self._processes.append(spawn.Process(target=_read_on, args=work, daemon=True))
            self._pipes.append(ours)

    def __enter__(self) -> Self:
        try:
            for process in self._processes:
                process.start()
            for pipe in self._pipes:
                pipe.recv()  # until it has imported what it needs
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        for process in self._processes:
            if process.pid is not None:
                process.kill()
                process.join()

    def go(self) -> None:
        """From now on they read."""
        self._may.set()

    def pause(self) -> None:
        """No read begins from now on; those that have begun go on."""
        self._may.clear()

    def finish(self) -> tuple[list[Read], float]:
        """Their reads, by reader and time, and the CPU seconds that they took; nothing is read afterwards.

        Raises LabError if a reader has died.
        """
        self._over.set()
        try:
            told: list[tuple[list[Read], float]] = [pipe.recv() for pipe in self._pipes]
        except EOFError as exc:
            raise LabError("a reader beside the stream has died") from exc
        return [read for reads, _ in told for read in reads], sum(cpu for _, cpu in told)


def _read_on(
    number: int, path: str, column: str, may: Event, over: Event, told: Connection
) -> None:
    # Ctrl-C ends the lab, which ends its readers
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    source = HudiRs(path) if number % 2 else LabReader(path)
    name, reads = f"{source.name} {number + 1}", list[Read]()
    told.send("ready")
    while not over.is_set():
        if may.wait(0.02):
            reads.append(_read(source, name, column))
    with suppress(BrokenPipeError):
        told.send((reads, time.process_time()))


def _read(source: HudiRs | LabReader, name: str, column: str) -> Read:
    began, rows, total = time.time_ns(), 0, 0
    try:
        for batch in source.batches():
            rows += batch.num_rows
            total += pc.sum(batch.column(column).cast(pa.int64()), min_count=0).as_py()
            # sums of many times are beyond 64 bits, in which Arrow wraps them
            total %= WRAPS_AT
    except LabError as exc:
        return Read(name, began, time.time_ns(), error=exc.message)
    return Read(name, began, time.time_ns(), rows, total)
