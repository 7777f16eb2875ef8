"""Hudi's bucket assigner: chooses the file group of each insert, for many records at once.

Inserts fill small files first, then the partition's new file until it is full, then another new one. Source:
org.apache.hudi.sink.partitioner.BucketAssigner, and UpsertPartitioner#assignInserts, which fills the same
files in the same order but spreads the records over them by key hash.

Several tasks assign at the same time without coordination: each uses only small files and new ids that belong
to it, so that a file group has one writer.
"""

from __future__ import annotations

import uuid
from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from serde_lab.table.files.file_sizing import FileSizing, SmallFile


@dataclass(frozen=True, slots=True)
class Run:
    """Consecutive inserts of a partition that go to one file group."""

    file_id: str
    rows: int
    is_new: bool
    """Whether this write creates the file group; if not, the inserts join a stored one."""


@dataclass(slots=True)
class _Open:
    """A file group that still takes inserts."""

    file_id: str
    room: int


@dataclass(slots=True)
class _Filling:
    """The file groups of one partition that take inserts, the current one first."""

    open: deque[_Open]
    drawn: int = 0


class BucketAssigner:
    """Assigns the inserts of one task, partition by partition, in the order in which they come.

    `small_files`: by partition path, from `file_sizing.small_files`; those of other tasks are not used.
    `task_of` maps a file id to the task that writes it. `seed` makes new file ids: equal seeds give equal
    ids, whatever the order of partitions, so it must differ between the writes of a table. `record_bytes`:
    see `average_record_bytes`.
    """

    def __init__(
        self,
        sizing: FileSizing,
        record_bytes: int,
        small_files: Mapping[str, Sequence[SmallFile]],
        *,
        seed: str,
        task: int = 0,
        task_of: Callable[[str], int] = lambda file_id: 0,
    ) -> None:
        self._sizing, self._record_bytes = sizing, record_bytes
        self._small_files, self._seed = small_files, seed
        self._task, self._task_of = task, task_of
        self._filling: dict[str, _Filling] = {}
        self._new: dict[str, str] = {}

    @property
    def new_file_ids(self) -> Collection[str]:
        """The ids of the file groups that this task created, in order of creation."""
        return self._new.keys()

    def assign(self, partition_path: str, rows: int) -> list[Run]:
        """The file groups of the partition's next `rows` inserts, in their order."""
        filling = self._filling.get(partition_path)
        if filling is None:
            filling = self._filling[partition_path] = self._begin(partition_path)
        runs = []
        while rows > 0:
            while filling.open and not filling.open[0].room:
                filling.open.popleft()
            if not filling.open:
                room = self._sizing.rows_per_new_file(self._record_bytes)
                filling.open.append(_Open(self._draw(partition_path, filling), room))
            current = filling.open[0]
            taken = min(rows, current.room)
            current.room -= taken
            rows -= taken
            runs.append(Run(current.file_id, taken, current.file_id in self._new))
        return runs

    def assign_rows(self, paths: pa.Array | None, rows: int) -> pa.DictionaryArray:
        """The file id of each of `rows` inserts, as a dictionary array in their order.

        `paths`: their partition paths; None in a table without partitions.
        """
        if paths is None:
            return _spread([(np.arange(rows), self.assign("", rows))], rows)
        encoded = paths if pa.types.is_dictionary(paths.type) else paths.dictionary_encode()
        codes = encoded.indices.to_numpy(zero_copy_only=False)
        order = np.argsort(codes, kind="stable")
        parts = []
        for code, path in enumerate(encoded.dictionary.to_pylist()):
            first, last = np.searchsorted(codes[order], [code, code + 1])
            if last > first:
                parts.append((order[first:last], self.assign(path, int(last - first))))
        return _spread(parts, rows)

    def _begin(self, partition_path: str) -> _Filling:
        return _Filling(
            deque(
                _Open(file.file_id, file.room(self._sizing, self._record_bytes))
                for file in self._small_files.get(partition_path, ())
                if self._task_of(file.file_id) == self._task
            )
        )

    def _draw(self, partition_path: str, filling: _Filling) -> str:
        """The next new id that belongs to this task. Source: BucketAssigner#createFileIdOfThisTask."""
        while True:
            drawn = new_file_id(self._seed, partition_path, filling.drawn)
            filling.drawn += 1
            if self._task_of(drawn) == self._task:
                self._new[drawn] = partition_path
                return drawn


def new_file_id(seed: str, partition_path: str, number: int) -> str:
    """The id of a new file group: a UUID of version 4 derived from the arguments, then `-0`."""
    drawn = uuid.uuid5(uuid.NAMESPACE_URL, f"{seed}/{partition_path}/{number}")
    return f"{uuid.UUID(bytes=drawn.bytes, version=4)}-0"


def _spread(
    parts: Sequence[tuple[npt.NDArray[np.int64], Sequence[Run]]], rows: int
) -> pa.DictionaryArray:
    """The file ids of runs as one array, in the order of the batch."""
    ids: dict[str, int] = {}
    codes = np.zeros(rows, np.int32)
    for places, runs in parts:
        numbers = [ids.setdefault(run.file_id, len(ids)) for run in runs]
        codes[places] = np.repeat(np.array(numbers, np.int32), [run.rows for run in runs])
    return pa.DictionaryArray.from_arrays(pa.array(codes), pa.array(list(ids), pa.string()))
