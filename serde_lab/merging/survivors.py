"""Decides which record of a key survives precombine within a batch, and then the merge with stored rows.

Hudi's merge rules (BufferedRecordMergerFactory) are index arithmetic over record keys and ordering values
here, so that any representation of records can merge by `take` alone.

EVENT_TIME_ORDERING: the higher ordering value wins, ties go to the newer; a commit-time delete (one
without an ordering value) always wins. COMMIT_TIME_ORDERING: the newer wins. CUSTOM: ordering values
decide on deletes, and a merger decides on two rows (`merger.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from serde_lab.merging.histories import History, winners
from serde_lab.records.key_hash import HashedKeys, equal_neighbours
from serde_lab.records.ordering import not_older, ranks

Indices = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]


class MergeMode(StrEnum):
    """The values of `hoodie.record.merge.mode`."""

    COMMIT_TIME = "COMMIT_TIME_ORDERING"
    EVENT_TIME = "EVENT_TIME_ORDERING"
    CUSTOM = "CUSTOM"


@dataclass(frozen=True, slots=True)
class Deletes:
    """Which records of a batch delete their keys; both masks have shape (n,).

    `always`: those among `marked` that delete by commit time, whatever the stored ordering value is.
    """

    marked: Mask
    always: Mask

    def take(self, indices: Indices) -> Deletes:
        """The deletes among the records at `indices`."""
        return Deletes(self.marked[indices], self.always[indices])


@dataclass(frozen=True, slots=True)
class Merge:
    """The outcome of a merge: `stored_kept` is a mask over stored rows, `incoming` indexes new ones.

    `updates` counts incoming rows that replace a stored one, `deletes` counts deleted stored rows. The
    other incoming rows are inserts.
    """

    stored_kept: Mask
    incoming: Indices
    updates: int
    deletes: int = 0


def precombine(
    keys: pa.Array | HashedKeys,
    ordering: Sequence[pa.Array],
    position: npt.NDArray[np.int64] | None = None,
    deletes: Deletes | None = None,
) -> Indices | None:
    """Indices of the surviving record of each key, in input order; None if no key occurs twice.

    The highest ordering value wins, ties go to the later `position` (shape (n,)). None means input order,
    which is required if there are deletes. An empty `ordering` means commit time: the later position
    wins. Deletes compete like rows; those by commit time follow the rules in `histories`.
    """
    hashed = HashedKeys.of(keys)
    left, right = equal_neighbours(hashed.hashes)
    if not len(left):
        return None
    suspected = np.zeros(len(hashed), np.bool_)
    suspected[left] = suspected[right] = True
    suspects = np.flatnonzero(suspected)
    groups = hashed.values.take(pa.array(suspects)).dictionary_encode().indices.to_numpy()
    if deletes is not None and ordering and deletes.always[suspects].any():
        of_suspects = [values.take(pa.array(suspects)) for values in ordering]
        best = winners(History(groups.astype(np.int64), of_suspects, *_masks(deletes, suspects)))
        keep = ~suspected
        keep[suspects[best]] = True
        return None if keep.all() else np.flatnonzero(keep)
    at = suspects if position is None else position[suspects]
    by_value = [ranks(values.take(pa.array(suspects))) for values in ordering]
    # lexsort sorts by its last array first: group, then ordering fields in order, then position
    order = np.lexsort([at, *reversed(by_value), groups])
    last = np.append(groups[order][1:] != groups[order][:-1], True)
    keep = ~suspected
    keep[suspects[order[last]]] = True
    return None if keep.all() else np.flatnonzero(keep)


def match(stored: pa.Array | HashedKeys, incoming: pa.Array | HashedKeys) -> Indices:
    """Position in `stored` of each key of `incoming`, -1 if it is not stored.

    `incoming` has no key twice. If `stored` does, the first one is taken, as in Hudi's merge handle.
    """
    old, new = HashedKeys.of(stored), HashedKeys.of(incoming)
    found = np.full(len(new), -1, np.int64)
    if not len(old) or not len(new):
        return found
    left, right = equal_neighbours(np.concatenate([old.hashes, new.hashes]))
    if not len(left):
        return found
    if ((left < len(old)) & (right >= len(old))).all():
        found[right - len(old)] = left
        hits = np.flatnonzero(found >= 0)
        # in the order of the incoming keys, not of the hashes: batch and file have a similar order, so
        # the compared strings are close together in memory
        same = pc.equal(
            old.values.take(pa.array(found[hits])),
            new.values if len(hits) == len(new) else new.values.take(pa.array(hits)),
        )
        if pc.all(same).as_py():
            return found
    # a key is stored twice, or two keys have one hash: compare the strings of all keys
    exact = pc.index_in(new.values, value_set=old.values)
    return pc.fill_null(exact, -1).to_numpy().astype(np.int64)


def merge(
    stored_keys: pa.Array | HashedKeys,
    stored_ordering: Sequence[pa.Array],
    keys: pa.Array | HashedKeys,
    ordering: Sequence[pa.Array],
    mode: MergeMode = MergeMode.EVENT_TIME,
    deletes: Deletes | None = None,
) -> Merge:
    """Merge precombined incoming records with stored ones.

    `stored_ordering` and `ordering` hold one array per ordering field, of the same types. `deletes`
    marks incoming records that delete their keys; the outcome's `incoming` does not contain them.
    """
    found = match(stored_keys, keys)
    hits = np.flatnonzero(found >= 0)
    kept = np.ones(len(stored_keys), np.bool_)
    if not len(hits):
        everyone = np.arange(len(keys), dtype=np.int64)
        return Merge(kept, everyone if deletes is None else everyone[~deletes.marked], 0)
    wins = np.ones(len(hits), np.bool_)
    if mode is not MergeMode.COMMIT_TIME and ordering:
        at = pa.array(found[hits])
        wins = not_older(
            [values.take(at) for values in stored_ordering],
            [values.take(pa.array(hits)) for values in ordering],
        )
        if deletes is not None:
            wins |= deletes.always[hits]
    kept[found[hits[wins]]] = False
    losing = np.zeros(len(keys), np.bool_)
    losing[hits[~wins]] = True
    gone = 0
    if deletes is not None:
        gone = int(deletes.marked[hits[wins]].sum())
        losing |= deletes.marked
    return Merge(kept, np.flatnonzero(~losing), int(wins.sum()) - gone, gone)


def _masks(deletes: Deletes, at: Indices) -> tuple[Mask, Mask]:
    return deletes.marked[at], deletes.always[at]
