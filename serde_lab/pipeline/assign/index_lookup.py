"""Finds where records are stored, by one of three indexes.

The index is one of: index records sent through the hop (RFC-84's state index), the stored keys
themselves, or the base files' key ranges and Bloom filters (RFC-24, step 4).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from serde_lab.merging.survivors import match_and_doubt
from serde_lab.pipeline.exchange.routing import Task, task_of_keys
from serde_lab.pipeline.plan import IndexPlan
from serde_lab.records.buffers import HashedKeys
from serde_lab.records.operation import Operation
from serde_lab.records.schema import FILE_ID, RECORD_KEY
from serde_lab.serde.interface import Records
from serde_lab.table.files.base_file import BaseFileReader
from serde_lab.table.index.assigner_state import AssignerState
from serde_lab.table.index.bloom_lookup import BloomLookup, FooterCache, bloom_files, stored_twice

# a base file never changes, so a worker reads its footer once for all its tasks
_FOOTERS = FooterCache()

_STATES: dict[tuple[str, int, int], tuple[str, AssignerState]] = {}
"""By table, task and number of tasks, the newest state that this worker has seen: a cache of stored ones."""
FILES_READ = "index_files_read"
"""Counter of the base files and log files whose keys were read to find records."""
READ_BASE = "read_base"
"""The phase of reading stored files."""


@dataclass(frozen=True, slots=True)
class GlobalLocations:
    """File id and partition path of each record, stored or looked up; null if it is not stored.

    Source: org.apache.hudi.common.model.HoodieRecordGlobalLocation, which is a place in a whole table.
    """

    file_ids: pa.StringArray
    paths: pa.StringArray

    def take(self, at: pa.Array) -> GlobalLocations:
        """The places with the numbers `at`; null where that is null."""
        return GlobalLocations(self.file_ids.take(at), self.paths.take(at))


class IndexLookup(ABC):
    """Finds where records are stored; times its phases on `timeline`, so call it outside other phases."""

    def __init__(self, task: Task) -> None:
        assert task.plan.index is not None
        self.plan, self.timeline = task.plan, task.timeline
        self.index: IndexPlan = task.plan.index

    @abstractmethod
    def find(
        self, keys: pa.StringArray, paths: pa.StringArray, sent: Records | None
    ) -> GlobalLocations:
        """The places of these records, whose keys are distinct.

        Under a global index `paths` are ignored. `sent`: the index records that came with the records.
        """

    def remember(
        self,
        records: Records,
        keys: pa.StringArray,
        paths: pa.StringArray,
        file_ids: pa.StringArray,
    ) -> None:
        """Take note of where records were sent."""
        return

    def finish(self) -> None:
        """Keep what later writes may need, after the last records."""
        return

    def _places_in(
        self,
        stored: GlobalLocations,
        stored_keys: pa.StringArray,
        keys: pa.StringArray,
        paths: pa.StringArray,
    ) -> GlobalLocations:
        """The places of `keys` among those `stored`. Raises DataError for a key in two file groups.

        Under a global index such a key may have moved: its old place has a delete in a log.
        """
        known = self.identities_of(stored_keys, stored.paths)
        wanted = self.identities_of(keys, paths)
        at, doubtful = match_and_doubt(known, HashedKeys.of(wanted))
        if doubtful and not self.index.is_global:
            asked = pa.table({"key": known, "group": stored.file_ids, "name": stored_keys})
            asked = asked.filter(pc.is_in(known, value_set=wanted))
            groups = asked.group_by(["key", "name"]).aggregate([("group", "count_distinct")])
            twice = groups.filter(pc.greater(groups["group_count_distinct"], 1))
            if len(twice):
                raise stored_twice(twice["name"][0].as_py())
        return stored.take(pa.array(at, mask=at < 0))

    def identities_of(self, keys: pa.StringArray, paths: pa.StringArray) -> pa.StringArray:
        """What identifies a record: its key, or path and key if the index is not global."""
        if not self.plan.schema.partition or self.index.is_global:
            return keys
        # no folder name contains a NUL
        return pc.binary_join_element_wise(paths, keys, "\0")


class SentIndex(IndexLookup):
    """RFC-84's state: the index records that the bootstrap stage sent for this task's keys."""

    def find(
        self, keys: pa.StringArray, paths: pa.StringArray, sent: Records | None
    ) -> GlobalLocations:
        with self.timeline.phase("lookup"):
            if sent is None:
                return _nowhere(len(keys))
            stored = GlobalLocations(sent.column(FILE_ID), sent.partition_paths())
            return self._places_in(stored, sent.record_keys(), keys, paths)


class StoredKeys(IndexLookup):
    """Reads the stored keys itself, from the records' partitions, or all partitions under a global index."""

    def find(
        self, keys: pa.StringArray, paths: pa.StringArray, sent: Records | None
    ) -> GlobalLocations:
        wanted = pc.unique(paths).to_pylist()
        if self.index.is_global:
            wanted = sorted({slice_.partition_path for slice_ in self.index.stored.slices})
        stored_keys: list[pa.Array] = []
        stored_ids: list[pa.Array] = []
        stored_paths: list[pa.Array] = []
        for path in wanted:
            for file_id, found in self._keys_of(path):
                stored_keys.append(found)
                stored_ids.append(pa.repeat(pa.scalar(file_id), len(found)))
                stored_paths.append(pa.repeat(pa.scalar(path), len(found)))
        with self.timeline.phase("lookup"):
            if not stored_keys:
                return _nowhere(len(keys))
            stored = GlobalLocations(pa.concat_arrays(stored_ids), pa.concat_arrays(stored_paths))
            return self._places_in(stored, pa.concat_arrays(stored_keys), keys, paths)

    def _keys_of(self, path: str) -> list[tuple[str, pa.Array]]:
        """The file ids of a partition, each with a batch of its keys."""
        found = []
        with self.timeline.phase(READ_BASE):
            for slice_ in self.index.stored.slices:
                if slice_.partition_path == path:
                    batches = [
                        batch.column(RECORD_KEY) for batch in self.index.stored.batches(slice_)
                    ]
                    found += [(slice_.file_id, batch) for batch in batches]
        return found


class BaseFileBlooms(IndexLookup):
    """RFC-24's step 4: key ranges and Bloom filters of base files, then the keys of the candidate files."""

    def __init__(self, task: Task) -> None:
        super().__init__(task)
        files = bloom_files(self.index.stored.slices)
        self._places = GlobalLocations(
            pa.array([file_id for _, file_id, _ in files], pa.string()),
            pa.array([path for path, _, _ in files], pa.string()),
        )
        self._lookup = BloomLookup(task.plan.storage, files, self.index.is_global, _FOOTERS)

    def find(
        self, keys: pa.StringArray, paths: pa.StringArray, sent: Records | None
    ) -> GlobalLocations:
        before = self._lookup.counts.files_read
        with self.timeline.phase("lookup"):
            at = self._lookup.find(keys, paths)
            places = self._places.take(pa.array(at, mask=at < 0))
        self.timeline.add(FILES_READ, self._lookup.counts.files_read - before)
        return places


class StateOverBlooms(IndexLookup):
    """RFC-24's step 4 with its state: a key that the state does not have is looked for in the base files and
    logs that no lookup has read yet; all keys of such a file enter the state. Once none is left, no file is
    read.

    Logs have no filters, so a key that is missing makes all unseen logs of its partition be read.

    Writers without a state look into base files alone. So on merge-on-read a key goes to a log only if the
    group's base file has it, and the state must not know more keys than base files have: deleted keys are
    forgotten, and the base files of their groups count as unseen. A merger may delete any key, so where
    one combines rows, all keys of the groups that were written are forgotten.
    """

    def __init__(self, task: Task) -> None:
        super().__init__(task)
        assert self.index.states is not None
        self._task, self._names = task, self.index.states
        slices = self.index.stored.slices
        self._files = bloom_files(one for one in slices if one.base_file is not None)
        self._with_logs = [one for one in slices if one.log_files]
        self._state = self._loaded().after_compactions(self._names.compacted, self._names.shrunk)

    def _loaded(self) -> AssignerState:
        plan, before = self.plan, self._names.before
        cached, state = _STATES.get(self._place, ("", AssignerState()))
        if before and cached == before:
            return state
        found = None
        if before:
            found = AssignerState.load(plan.storage, before, self._task.partition, plan.targets)
        return found or AssignerState(
            unseen=frozenset(file_id for _, file_id, _ in self._files),
            unseen_logs=frozenset(slice_.file_id for slice_ in self._with_logs),
        )

    @property
    def _place(self) -> tuple[str, int, int]:
        return self.plan.storage.url, self._task.partition, self.plan.targets

    def find(
        self, keys: pa.StringArray, paths: pa.StringArray, sent: Records | None
    ) -> GlobalLocations:
        with self.timeline.phase("lookup"):
            identities = HashedKeys.of(self.identities_of(keys, paths))
            found = self._state.find(identities)
            for look in (self._look_into_base_files, self._look_into_logs):
                if found.null_count:
                    missing = found.is_null()
                    look(keys.filter(missing), paths.filter(missing))
                    found = self._state.find(identities)
            return GlobalLocations(found, pc.if_else(found.is_valid(), paths, None))

    def _look_into_base_files(self, keys: pa.StringArray, paths: pa.StringArray) -> None:
        plan = self.plan
        files = [file for file in self._files if file[1] in self._state.unseen]
        lookup = BloomLookup(plan.storage, files, cache=_FOOTERS)
        for number in lookup.candidates(keys, paths):
            path, file_id, file = files[number]
            stored = BaseFileReader(plan.storage, file).read([RECORD_KEY]).column(RECORD_KEY)
            self._take_in(path, file_id, stored.cast(pa.string()).combine_chunks())
            self._state = self._state.seen(base_files=[file_id])
            self.timeline.add(FILES_READ)

    def _look_into_logs(self, keys: pa.StringArray, paths: pa.StringArray) -> None:
        wanted = set(pc.unique(paths).to_pylist())
        for slice_ in self._with_logs:
            if slice_.partition_path in wanted and slice_.file_id in self._state.unseen_logs:
                stored = self.index.stored.keys_in_logs(slice_)
                self._take_in(slice_.partition_path, slice_.file_id, stored)
                self._state = self._state.seen(logs=[slice_.file_id])
                self.timeline.add(FILES_READ, len(slice_.log_files))

    def _take_in(self, path: str, file_id: str, keys: pa.StringArray) -> None:
        """Add those keys of a file group that come to this task."""
        own = keys.filter(pa.array(task_of_keys(keys, self.plan.targets) == self._task.partition))
        names = self.identities_of(own, pa.repeat(pa.scalar(path), len(own)))
        self._state = self._state.add(names, pa.repeat(pa.scalar(file_id), len(own)))

    def remember(
        self,
        records: Records,
        keys: pa.StringArray,
        paths: pa.StringArray,
        file_ids: pa.StringArray,
    ) -> None:
        with self.timeline.phase("assign"):
            names = self.identities_of(keys, paths)
            self._state = self._state.add(names, file_ids)
            if not self.plan.table.is_mor:
                return
            if self.plan.combiner() is not None:
                self._state = self._state.without_groups(set(file_ids.to_pylist()))
                return
            deleted = self._deleted(records)
            if deleted is not None:
                gone = self._state.without(pc.unique(names.filter(deleted)))
                self._state = gone.unseen_again(set(file_ids.filter(deleted).to_pylist()))

    def _deleted(self, records: Records) -> pa.BooleanArray | None:
        """Which records delete their keys; None if none does."""
        plan = self.plan
        if plan.operation is Operation.DELETE:
            return pa.array(np.ones(len(records), np.bool_))
        marked = plan.merge_rules.markers.marked(records, plan.marker_columns)
        return None if marked is None else pa.array(marked)

    def finish(self) -> None:
        plan, after = self.plan, self._names.after
        with self.timeline.phase("lookup"):
            self._state.save(plan.storage, after, self._task.partition, plan.targets)
        _STATES[self._place] = after, self._state


def base_file_lookup(task: Task) -> IndexLookup:
    """The lookup in base files, with a state if the write keeps one."""
    assert task.plan.index is not None
    return BaseFileBlooms(task) if task.plan.index.states is None else StateOverBlooms(task)


def _nowhere(rows: int) -> GlobalLocations:
    nothing = pa.nulls(rows, pa.string())
    return GlobalLocations(nothing, nothing)


def stored_values(index: IndexPlan, file_ids: Sequence[str], columns: Sequence[str]) -> pa.Table:
    """The `columns` of the stored records of these file groups, with their logs merged in."""
    plan = replace(index.stored, columns=tuple(columns))
    wanted = set(file_ids)
    batches = [
        batch
        for slice_ in plan.slices
        if slice_.file_id in wanted
        for batch in plan.batches(slice_)
    ]
    return pa.Table.from_batches(batches, plan.schema)
