"""What assigners know between writes: where the keys are that they have met or read (RFC-24's step 4).

Each assigning task of a write leaves its state in a file, in a folder that is named by the instant and the
batch that it covers:

    .hoodie/.aux/serde_lab_state/<instant>-<batch>/<task>-of-<tasks>.parquet

The commit names the folder in its extra metadata. So a state counts only if its batch was committed, and
only while that is the table's newest commit: any other write, which knows nothing of states, throws them
away. A compaction does not: it moves no key, but it may drop keys that a log deleted, so the keys of such a
file group are forgotten.

A state is a set of keys with their file groups, and the names of the file groups whose base files or logs
nobody has looked into. A key that is not in it can be in those only. When none is left, the state alone
answers.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from serde_lab.errors import TableError
from serde_lab.merging.survivors import match
from serde_lab.records.buffers import HashedKeys, rows_of
from serde_lab.table.files.parquet import parquet_file
from serde_lab.table.storage.storage import Storage
from serde_lab.table.table import HoodieTable
from serde_lab.table.timeline.commit_metadata import CommitMetadata

STATE_KEY = "_serde_lab_assigner_state"
"""Key of a commit's extra metadata that names the folder of the states that cover it."""
_FOLDER = ".hoodie/.aux/serde_lab_state"
_UNSEEN, _UNSEEN_LOGS = b"unseen", b"unseen_logs"
_NOTHING = pa.array([], pa.string())


@dataclass(frozen=True, slots=True)
class StateNames:
    """The folders of states: `before` the write, "" if none covers the table; and `after` it.

    `compacted`: the file groups that were compacted since; `shrunk`: those that lost keys by it.
    """

    before: str
    after: str
    compacted: frozenset[str] = frozenset()
    shrunk: frozenset[str] = frozenset()

    @classmethod
    def of(cls, table: HoodieTable, instant: str, batch: int) -> StateNames:
        """The states around one batch of an instant, after those of the table's newest commits."""
        after = state_after(instant, batch)
        if batch:
            return cls(state_after(instant, batch - 1), after)
        before, compactions = _covering(table)
        stats = [stat for compaction in compactions for stat in compaction.write_stats]
        return cls(
            before,
            after,
            frozenset(stat.fileId for stat in stats),
            frozenset(stat.fileId for stat in stats if stat.numDeletes),
        )


@dataclass(frozen=True)
class AssignerState:
    """The keys of one assigning task. `keys`: record keys, with their partition paths if there are any.

    `unseen` and `unseen_logs`: the file groups whose base files, and whose logs, nobody has looked into.
    """

    keys: pa.StringArray = field(default_factory=lambda: _NOTHING)
    file_ids: pa.StringArray = field(default_factory=lambda: _NOTHING)
    unseen: frozenset[str] = frozenset()
    unseen_logs: frozenset[str] = frozenset()

    @cached_property
    def _hashed(self) -> HashedKeys:
        return HashedKeys.of(self.keys)

    def find(self, keys: HashedKeys) -> pa.StringArray:
        """The file id of each key, none of which is there twice; null if the state does not have it."""
        at = match(self._hashed, keys)
        return self.file_ids.take(pa.array(at, mask=at < 0))

    def add(self, keys: pa.StringArray, file_ids: pa.StringArray) -> AssignerState:
        """The state with more keys; those that it has stay where they are."""
        once = np.unique(keys.dictionary_encode().indices.to_numpy(), return_index=True)[1]
        unknown = self.find(HashedKeys.of(keys.take(pa.array(once)))).is_null()
        at = pa.array(once[unknown.to_numpy(zero_copy_only=False)])
        return replace(
            self,
            keys=pa.concat_arrays([self.keys, keys.take(at)]),
            file_ids=pa.concat_arrays([self.file_ids, file_ids.take(at)]),
        )

    def seen(self, base_files: Iterable[str] = (), logs: Iterable[str] = ()) -> AssignerState:
        """The state after looking into base files and logs of these file groups."""
        unseen, unseen_logs = self.unseen - {*base_files}, self.unseen_logs - {*logs}
        return replace(self, unseen=unseen, unseen_logs=unseen_logs)

    def without(self, keys: pa.StringArray) -> AssignerState:
        """The state without these keys. What it knows of file groups stays."""
        gone = match(self._hashed, HashedKeys.of(keys))
        return self._kept(~np.isin(np.arange(len(self.keys)), gone[gone >= 0]))

    def without_groups(self, file_ids: Collection[str]) -> AssignerState:
        """The state without the keys of these file groups, whose base files count as unseen."""
        if not file_ids:
            return self
        held = pc.is_in(self.file_ids, value_set=pa.array(sorted(file_ids), pa.string()))
        return self._kept(~held.to_numpy(zero_copy_only=False)).unseen_again(file_ids)

    def unseen_again(self, file_ids: Iterable[str]) -> AssignerState:
        """The state for which nobody has looked into the base files of these groups."""
        return replace(self, unseen=self.unseen | {*file_ids})

    def after_compactions(
        self, compacted: Collection[str], shrunk: Collection[str]
    ) -> AssignerState:
        """The state when the logs of the groups `compacted` are in their base files.

        The base files of the groups `shrunk` lack keys that the older ones and the logs had.
        """
        merged = self.unseen_logs & {*compacted}
        return self.without_groups(shrunk).unseen_again(merged).seen(logs=merged)

    def _kept(self, kept: npt.NDArray[np.bool_]) -> AssignerState:
        at = pa.array(np.flatnonzero(kept))
        return replace(self, keys=self.keys.take(at), file_ids=self.file_ids.take(at))

    @classmethod
    def load(cls, storage: Storage, folder: str, task: int, tasks: int) -> AssignerState | None:
        """The stored state; None if there is none. Raises TableError for a damaged file."""
        path = _path(folder, task, tasks)
        content = storage.get_if_present(path)
        if content is None:
            return None
        try:
            stored = rows_of(parquet_file(pa.BufferReader(content)))
            stated = stored.schema.metadata or {}
            unseen = json.loads(stated[_UNSEEN])
            unseen_logs = json.loads(stated.get(_UNSEEN_LOGS, b"[]"))
            keys, file_ids = (stored.column(name).combine_chunks() for name in ("key", "file_id"))
        except (pa.ArrowException, KeyError, ValueError) as exc:
            raise TableError(
                f"{storage.describe(path)}: is no state of an assigner: {exc}"
            ) from exc
        return cls(keys, file_ids, frozenset(unseen), frozenset(unseen_logs))

    def save(self, storage: Storage, folder: str, task: int, tasks: int) -> None:
        """Store it. Attempts of one task have the same state, so the first one's file stays."""
        schema = pa.schema([("key", pa.string()), ("file_id", pa.string())])
        stated = {_UNSEEN: json.dumps(sorted(self.unseen))}
        if self.unseen_logs:
            stated[_UNSEEN_LOGS] = json.dumps(sorted(self.unseen_logs))
        schema = schema.with_metadata(stated)
        out = pa.BufferOutputStream()
        table = pa.Table.from_arrays([self.keys, self.file_ids], schema=schema)
        pq.write_table(table, out, compression="zstd", write_page_checksum=True)
        storage.put_new(_path(folder, task, tasks), out.getvalue())


def state_after(instant: str, batch: int) -> str:
    """The folder of the states that cover an instant up to one of its batches."""
    return f"{instant}-{batch}"


def _covering(table: HoodieTable) -> tuple[str, list[CommitMetadata]]:
    """The folder of the states that cover the table, "" if there are none, and the compactions since."""
    compactions: list[CommitMetadata] = []
    completed = table.timeline().completed()
    for place, instant in reversed(list(enumerate(completed))):
        metadata = table.commit_metadata(instant)
        if table.config.is_mor and metadata.operation_type == "COMPACT":
            compactions.append(metadata)
            continue
        if any((one.completion_time or "") > instant.time for one in completed[:place]):
            # another commit completed after this one had begun, which did not see its keys
            break
        return str(metadata.extra_metadata.get(STATE_KEY, "")), compactions
    return "", []


def drop_other_states(storage: Storage, kept: str) -> None:
    """Remove all states but those that are `kept`."""
    for folder in storage.list_folder(_FOLDER)[0]:
        if folder.rpartition("/")[2] != kept:
            storage.delete_folder(folder)


def _path(folder: str, task: int, tasks: int) -> str:
    return f"{_FOLDER}/{folder}/{task}-of-{tasks}.parquet"
