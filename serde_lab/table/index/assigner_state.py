"""What assigners know between writes: where the keys are that they have met or read (RFC-24's step 4).

Each assigning task of a write leaves its state in a file, in a folder that is named by the instant and the
batch that it covers:

    .hoodie/.aux/serde_lab_state/<instant>-<batch>/<task>-of-<tasks>.parquet

The commit names the folder in its extra metadata. So a state counts only if its batch was committed, and
only while that is the table's newest commit: any other write, which knows nothing of states, throws them
away. A state is a set of keys with their file groups, and the names of the file groups that nobody has
looked into. A key that is not in it can be in those groups only. When none is left, the state alone
answers.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from serde_lab.errors import TableError
from serde_lab.merging.survivors import Indices, match
from serde_lab.records.buffers import HashedKeys
from serde_lab.table.storage.storage import Storage
from serde_lab.table.table import HoodieTable

STATE_KEY = "_serde_lab_assigner_state"
"""Key of a commit's extra metadata that names the folder of the states that cover it."""
_FOLDER = ".hoodie/.aux/serde_lab_state"
_UNSEEN = b"unseen"
_NOTHING = pa.array([], pa.string())


@dataclass(frozen=True, slots=True)
class StateNames:
    """The folders of states: `before` the write, "" if none covers the table; and `after` it."""

    before: str
    after: str


class AssignerState:
    """The keys of one assigning task. `keys`: record keys, with their partition paths if there are any."""

    def __init__(
        self,
        keys: pa.StringArray = _NOTHING,
        file_ids: pa.StringArray = _NOTHING,
        unseen: Iterable[str] = (),
    ) -> None:
        self.keys, self.file_ids, self.unseen = keys, file_ids, frozenset(unseen)
        self._hashed = HashedKeys.of(keys)

    def find(self, keys: HashedKeys) -> pa.StringArray:
        """The file id of each key, none of which is there twice; null if the state does not have it."""
        at = match(self._hashed, keys)
        return self.file_ids.take(pa.array(at, mask=at < 0))

    def add(
        self, keys: pa.StringArray, file_ids: pa.StringArray, seen: Iterable[str] = ()
    ) -> AssignerState:
        """The state with more keys; those that it has stay where they are. `seen`: groups looked into."""
        once = _first_of_each(keys)
        unknown = self.find(HashedKeys.of(keys.take(pa.array(once)))).is_null()
        at = pa.array(once[unknown.to_numpy(zero_copy_only=False)])
        return AssignerState(
            pa.concat_arrays([self.keys, keys.take(at)]),
            pa.concat_arrays([self.file_ids, file_ids.take(at)]),
            self.unseen - set(seen),
        )

    @classmethod
    def load(cls, storage: Storage, folder: str, task: int, tasks: int) -> AssignerState | None:
        """The stored state; None if there is none. Raises TableError for a damaged file."""
        path = _path(folder, task, tasks)
        content = storage.get_if_present(path)
        if content is None:
            return None
        try:
            stored = pq.read_table(pa.BufferReader(content))
            unseen = json.loads((stored.schema.metadata or {})[_UNSEEN])
            keys, file_ids = (stored.column(name).combine_chunks() for name in ("key", "file_id"))
        except (pa.ArrowException, KeyError, ValueError) as exc:
            raise TableError(
                f"{storage.describe(path)}: is no state of an assigner: {exc}"
            ) from exc
        return cls(keys, file_ids, unseen)

    def save(self, storage: Storage, folder: str, task: int, tasks: int) -> None:
        """Store it. Attempts of one task have the same state, so the first one's file stays."""
        schema = pa.schema([("key", pa.string()), ("file_id", pa.string())])
        schema = schema.with_metadata({_UNSEEN: json.dumps(sorted(self.unseen)).encode()})
        out = pa.BufferOutputStream()
        table = pa.Table.from_arrays([self.keys, self.file_ids], schema=schema)
        pq.write_table(table, out, compression="zstd")
        storage.put_new(_path(folder, task, tasks), out.getvalue())


def _first_of_each(keys: pa.StringArray) -> Indices:
    codes = keys.dictionary_encode().indices.to_numpy()
    return np.unique(codes, return_index=True)[1]


def state_after(instant: str, batch: int) -> str:
    """The folder of the states that cover an instant up to one of its batches."""
    return f"{instant}-{batch}"


def covering_state(table: HoodieTable) -> str:
    """The folder of the states that cover the whole table; "" if there are none."""
    completed = table.timeline().completed()
    if not completed:
        return ""
    return str(table.commit_metadata(completed[-1]).extra_metadata.get(STATE_KEY, ""))


def drop_other_states(storage: Storage, kept: str) -> None:
    """Remove all states but those that are `kept`."""
    for folder in storage.list_folder(_FOLDER)[0]:
        if folder.rpartition("/")[2] != kept:
            storage.delete_folder(folder)


def _path(folder: str, task: int, tasks: int) -> str:
    return f"{_FOLDER}/{folder}/{task}-of-{tasks}.parquet"
