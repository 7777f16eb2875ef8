"""The assigners: find each record's file group if it is stored, and otherwise open or join one.

`Assigner` looks keys up in an index. A record that moves to another partition is also deleted from the old
one. `RingAssigner` is that of consistent hashing: a partition's ring maps each record to its file group. It
creates the first ring of a new partition. Sources: org.apache.hudi.sink.partitioner.BucketAssignFunction;
for keys that may change partition, HoodieIndexUtils, which first compares a record with the stored row, so
that a late record does not move; org.apache.hudi.sink.bucket.ConsistentBucketAssignFunction.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from serde_lab.measure.timeline import TaskTimeline
from serde_lab.merging.survivors import Indices, Mask, MergeMode, match, not_older
from serde_lab.pipeline.assign.index_lookup import (
    READ_BASE,
    GlobalLocations,
    IndexLookup,
    stored_values,
)
from serde_lab.pipeline.exchange.routing import Task, task_of_text
from serde_lab.pipeline.handles.handle import Candidates, precombined
from serde_lab.records.buffers import HashedKeys, equal_neighbours, rows_by_value
from serde_lab.records.conversion import fit
from serde_lab.records.operation import Operation
from serde_lab.records.schema import (
    DELETE,
    INSERT,
    PARTITION_PATH,
    RECORD_KEY,
    UPDATE_AFTER,
    column_of,
    columns_of,
    type_at,
    values_in,
)
from serde_lab.serde.interface import BoundSerde, Records
from serde_lab.serde.record_verbs import NEW_FILE_GROUP, STORED_FILE_GROUP, MetadataValues
from serde_lab.table.files.file_sizing import BucketAssigner
from serde_lab.table.index.consistent_hashing import HashingRing, create_initial


@dataclass(frozen=True, slots=True)
class Located:
    """Records with their keys, partition paths and file ids, as hops and writers need them.

    `stored`: whether the record's file group exists before this write. `operations`: insert or update for
    each record, as the assigner found; None leaves them unchanged. The records themselves carry none of
    this until they are sent on (`with_places`).
    """

    records: Records
    keys: pa.StringArray
    paths: pa.StringArray
    file_ids: pa.StringArray
    stored: Mask
    operations: pa.StringArray | None = None

    def with_places(self, bound: BoundSerde, timeline: TaskTimeline) -> Records:
        """The records with their file groups and operations in their metadata, to be sent on."""
        with timeline.phase("update_metadata"):
            values = MetadataValues(
                file_id=self.file_ids,
                instant_time=_chosen(self.stored, STORED_FILE_GROUP, NEW_FILE_GROUP),
                operation=self.operations,
            )
            return bound.update_metadata(self.records, values)


class Assigner:
    """Assigns the records of one task, shard after shard.

    `lookup`: None if no key is looked up. `writer_tasks`: the number of tasks among which the next hop
    distributes file groups; 0 if this task writes all that it assigns.
    """

    def __init__(
        self,
        task: Task,
        bound: BoundSerde,
        lookup: IndexLookup | None,
        writer_tasks: int,
    ) -> None:
        plan, number = task.plan, task.partition
        assert plan.index is not None
        self.plan, self.timeline, self.bound = plan, task.timeline, bound
        self.index, self.lookup = plan.index, lookup

        def task_of(file_id: str) -> int:
            return int(task_of_text(pa.array([file_id]), writer_tasks)[0]) if writer_tasks else 0

        self._new = BucketAssigner(
            self.index.sizing,
            self.index.record_bytes,
            self.index.small_files,
            # no other write or task can draw the same ids
            seed=f"{plan.seed}/{plan.instant}/{plan.batch}/{number}",
            task=number if writer_tasks else 0,
            task_of=task_of,
        )

    def locate(self, records: Records, sent: Records | None) -> Located | None:
        """The records of one shard with their file groups; None if nothing remains to be written.

        `sent`: the index records that came with them.
        """
        if self.plan.moves and self.plan.operation in (Operation.UPSERT, Operation.DELETE):
            return self._located_anywhere(records, sent)
        with self.timeline.phase("group"):
            keys, paths = records.record_keys(), records.partition_paths()
            first, code = self._distinct(keys, paths)
            some_keys, some_paths = (
                (keys, paths) if first is None else (keys.take(first), paths.take(first))
            )
        found = None
        if self.lookup is not None:
            found = self.lookup.find(some_keys, some_paths, sent).file_ids
        with self.timeline.phase("assign"):
            if found is None:
                found = pa.nulls(len(some_keys), pa.string())
            hit = found.is_valid().to_numpy(zero_copy_only=False)
            if self.plan.operation is Operation.DELETE:
                # deletes of keys that are not stored are dropped
                kept = np.flatnonzero(hit if code is None else hit[code])
                file_ids = found if code is None else found.take(pa.array(code))
                operations, stored = None, np.ones(len(kept), np.bool_)
                if len(kept) < len(records):
                    at = pa.array(kept)
                    records, file_ids = records.take(kept), file_ids.take(at)
                    keys, paths = keys.take(at), paths.take(at)
            else:
                file_ids, stored = self._with_new(found, hit, some_keys, some_paths)
                if code is not None:
                    at = pa.array(code)
                    file_ids, hit, stored = file_ids.take(at), hit[code], stored[code]
                operations = _chosen(hit, UPDATE_AFTER, INSERT)
        if not len(records):
            return None
        return Located(records, keys, paths, file_ids, stored, operations)

    def _distinct(
        self, keys: pa.StringArray, paths: pa.StringArray
    ) -> tuple[pa.Array | None, Indices | None]:
        """The first record of each key, and each record's key number; None if all keys are distinct.

        Inserts skip this: each row counts as its own key.
        """
        if not self.plan.operation.merges and self.plan.operation is not Operation.DELETE:
            return None, None
        partitioned = bool(self.plan.schema.partition)
        identities = pc.binary_join_element_wise(paths, keys, "\0") if partitioned else keys
        left, _ = equal_neighbours(HashedKeys.of(identities).hashes)
        if not len(left):
            return None, None
        code = identities.dictionary_encode().indices.to_numpy().astype(np.int64)
        _, first = np.unique(code, return_index=True)
        return pa.array(first), code

    def _with_new(
        self, found: pa.StringArray, hit: Mask, keys: pa.StringArray, paths: pa.StringArray
    ) -> tuple[pa.StringArray, Mask]:
        """The file id of each record, and whether the group exists before this write."""
        miss = np.flatnonzero(~hit)
        if not len(miss):
            return found, hit
        at = pa.array(miss)
        wanted = paths.take(at) if self.plan.schema.partition else None
        drawn = self._new.assign_rows(wanted, keys.take(at))
        numbers = np.full(len(hit), 0, np.int64)
        numbers[miss] = np.arange(len(miss))
        of_miss = drawn.dictionary_decode().cast(pa.string())
        file_ids = pc.if_else(pa.array(hit), found, of_miss.take(pa.array(numbers)))
        is_new = np.array([name in self._new.new_file_ids for name in drawn.dictionary.to_pylist()])
        stored = hit.copy()
        stored[miss] = ~is_new[drawn.indices.to_numpy()]
        return file_ids, stored

    def _located_anywhere(self, records: Records, sent: Records | None) -> Located | None:
        """Assign under a global index: one record per key, plus a delete where a record leaves its
        partition.
        """
        with self.timeline.phase("precombine"):
            candidates = precombined(self.plan, records)
            chosen = candidates.rows()
            surviving = records if chosen is None else records.take(chosen)
            paths = surviving.partition_paths()
        keys = candidates.keys.values
        assert self.lookup is not None
        found = self.lookup.find(keys, paths, sent)
        with self.timeline.phase("assign"):
            hit = found.file_ids.is_valid().to_numpy(zero_copy_only=False)
            there = pc.fill_null(pc.equal(found.paths, paths), False)
            moved = hit & ~there.to_numpy(zero_copy_only=False)
        if not self.index.updates_path and moved.any():
            paths = pc.if_else(pa.array(hit), found.paths, paths)
            surviving = self._kept_in_place(surviving, paths, moved)
            moved = np.zeros(len(moved), np.bool_)
        if self.plan.operation is Operation.DELETE:
            stored_at = pa.array(np.flatnonzero(hit))
            if not len(stored_at):
                return None
            return self._deletes(keys.take(stored_at), found.take(stored_at))
        late = self._late(candidates, found, np.flatnonzero(moved))
        with self.timeline.phase("assign"):
            leaves = moved & ~late
            stays = ~late
            if candidates.deletes is not None:
                # a marked record is deleted in its old partition and not sent to the new one
                stays &= ~(leaves & candidates.deletes.marked)
            at = np.flatnonzero(stays)
            taken = pa.array(at)
            keys_in, paths_in = keys.take(taken), paths.take(taken)
            # a record that moves needs a file group like a new one
            remains = (hit & ~moved)[at]
            known = found.file_ids.take(taken)
            file_ids, stored = self._with_new(known, remains, keys_in, paths_in)
            incoming = surviving if len(at) == len(surviving) else surviving.take(at)
            operations = _chosen(remains, UPDATE_AFTER, INSERT)
            located = Located(incoming, keys_in, paths_in, file_ids, stored, operations)
            gone = pa.array(np.flatnonzero(leaves))
        if not len(gone):
            return located if len(at) else None
        left = self._deletes(keys.take(gone), found.take(gone))
        if not len(at):
            return left
        with self.timeline.phase("assign"):
            return _joined(located, left)

    def _kept_in_place(self, records: Records, paths: pa.StringArray, moved: Mask) -> Records:
        """Set the records that `moved` marks back to the partition path where they are stored.

        No verb changes the path, so these records are rebuilt. Source: HoodieIndexUtils, where
        update.partition.path is false.
        """
        others = records.take(np.flatnonzero(~moved))
        at = np.flatnonzero(moved)
        with self.timeline.phase("to_arrow"):
            batch = records.take(at).to_arrow()
        with self.timeline.phase("from_arrow"):
            place = batch.schema.get_field_index(PARTITION_PATH)
            field = batch.schema.field(place)
            moved_back = self.bound.from_arrow(
                batch.set_column(place, field, paths.take(pa.array(at)))
            )
        with self.timeline.phase("assign"):
            order = np.argsort(np.concatenate([np.flatnonzero(~moved), at]), kind="stable")
            return type(records).concatenate([others, moved_back]).take(order)

    def _late(self, candidates: Candidates, found: GlobalLocations, moved: Indices) -> Mask:
        """Which candidates among `moved` are older than their stored row in another partition."""
        late = np.zeros(len(candidates), np.bool_)
        plan = self.plan
        if not len(moved) or plan.merge_mode is MergeMode.COMMIT_TIME or not candidates.ordering:
            return late
        with self.timeline.phase(READ_BASE):
            at = pa.array(moved)
            names = plan.table.merge_ordering
            groups = pc.unique(found.file_ids.take(at)).to_pylist()
            stored = stored_values(self.index, groups, [RECORD_KEY, *columns_of(names)])
            place = match(
                stored.column(RECORD_KEY).combine_chunks(),
                candidates.keys.values.take(at),
            )
            met = np.flatnonzero(place >= 0)
            kinds = plan.schema.data
            wins = not_older(
                [
                    fit(
                        values_in(stored.column(column_of(name)).combine_chunks(), name),
                        type_at(kinds, name),
                    ).take(pa.array(place[met]))
                    for name in names
                ],
                [values.take(pa.array(moved[met])) for values in candidates.ordering],
            )
            if candidates.deletes is not None:
                wins |= candidates.deletes.always[moved[met]]
            late[moved[met]] = ~wins
        return late

    def _deletes(self, keys: pa.StringArray, found: GlobalLocations) -> Located:
        """Deletes of `keys` where they are stored, by commit time: ordering values are compared already."""
        rows, schema = len(keys), self.plan.schema.batch_schema
        with self.timeline.phase("from_arrow"):
            nowhere, deletes = pa.repeat("", rows), pa.repeat(DELETE, rows)
            envelope = [
                *(keys, found.paths, nowhere, nowhere, deletes),
                pa.array(np.zeros(rows, np.bool_)),
            ]
            data = [pa.nulls(rows, field.type) for field in list(schema)[len(envelope) :]]
            batch = pa.record_batch([*envelope, *data], schema=schema)
            records = self.bound.from_arrow(batch)
        stored = np.ones(rows, np.bool_)
        return Located(records, keys, found.paths, found.file_ids, stored, deletes)


def _joined(one: Located, other: Located) -> Located:
    return Located(
        type(one.records).concatenate([one.records, other.records]),
        pa.concat_arrays([one.keys, other.keys]),
        pa.concat_arrays([one.paths, other.paths]),
        pa.concat_arrays([one.file_ids, other.file_ids]),
        np.concatenate([one.stored, other.stored]),
        pa.concat_arrays([one.operations, other.operations]),
    )


def _chosen(where: Mask, yes: str, no: str) -> pa.StringArray:
    return pa.array([no, yes], pa.string()).take(pa.array(where.astype(np.int8)))


class RingAssigner:
    """Assigns the records of one task, shard after shard, without any lookup."""

    def __init__(self, task: Task) -> None:
        plan = task.plan
        assert plan.index is not None
        self.plan, self.timeline = plan, task.timeline
        self._stored, self._rings = plan.index.rings, dict[str, HashingRing]()

    def locate(self, records: Records, sent: Records | None) -> Located | None:
        """The records of one shard with their file groups; None if there is nothing to write."""
        plan, table = self.plan, self.plan.table
        with self.timeline.phase("assign"):
            keys, paths = records.record_keys(), records.partition_paths()
            ids: list[str] = []
            numbers = np.zeros(len(records), np.int64)
            stored_ids: list[bool] = []
            for path, at in rows_by_value(paths):
                ring = self._ring(path)
                if ring is None:
                    continue
                of_path = keys if len(at) == len(keys) else keys.take(pa.array(at))
                nodes = ring.nodes_of(of_path, table.record_key_fields, table.bucket_fields)
                numbers[at] = nodes + len(ids)
                ids += ring.file_ids
                stored_ids += [(path, file_id) in plan.groups for file_id in ring.file_ids]
            if not ids:
                return None
            file_ids = pa.array(ids, pa.string()).take(pa.array(numbers))
            stored = np.array(stored_ids)[numbers]
            return Located(records, keys, paths, file_ids, stored)

    def _ring(self, path: str) -> HashingRing | None:
        """The partition's ring; None for a delete from a partition that does not exist."""
        ring = self._rings.get(path)
        if ring is None and path in self._stored:
            ring = self._rings[path] = self._stored[path].ring()
        if ring is None and self.plan.operation is not Operation.DELETE:
            # any task may be the first to see the partition; all of them create the same ring
            made = create_initial(self.plan.storage, path, self.plan.table.bucket_count or 1)
            ring = self._rings[path] = made.ring()
        return ring
