"""Decides which record of a key survives: in precombine, in a log, and in the merge with stored rows.

Hudi's merge rules (BufferedRecordMergerFactory) are index arithmetic over record keys and ordering values
here, for all keys at once, so that any representation of records can merge by `take` alone.

* By commit time the later record wins.
* By event time a record wins over those before it if its ordering value is not lower than the highest of
  theirs. A delete without an ordering value (by commit time) wins over everything before it. The first
  row after it wins over it whatever its value; until then deletes with a value change nothing.
* These rules hold within one history (`EntryHistory`). A base file's row does not belong to its logs'
  history: the logs' winner is compared with it by ordering value alone. So a base row with a higher value
  comes back even if the log deleted it before, as in Apache Hudi unless a compaction ran in between.
* Under partial update (`sources`) a winning record has its gaps filled from the winners before it, and a
  losing one fills the gaps that remain.
* CUSTOM: ordering values decide on deletes, and a merger decides on two rows (`merger.py`).

Ordering values are ranked in Hudi's order, as integers that numpy can sort: strings compare by their UTF-8
bytes, as Avro's Utf8 and Spark's UTF8String do. NaN is the greatest value and equal to itself, and -0.0 is
below 0.0, as in Java's Double.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from serde_lab.errors import SchemaError
from serde_lab.records.buffers import HashedKeys, equal_neighbours


def ranks(values: pa.Array) -> npt.NDArray[np.int64]:
    """Integers in the order of `values` (shape (n,)): equal ones for equal values, for this array only.

    Nulls rank below everything. Raises SchemaError for a type that has no order.
    """
    kind = values.type
    if values.null_count:
        found = ranks(values.drop_null())
        lowest = np.iinfo(np.int64).min
        result = np.full(len(values), lowest, np.int64)
        # dense, so that no value can be the integer of null
        result[values.is_valid().to_numpy(zero_copy_only=False)] = _dense(found)
        return result
    if pa.types.is_boolean(kind):
        return values.cast(pa.int8()).to_numpy().astype(np.int64)
    if pa.types.is_signed_integer(kind):
        return values.to_numpy().astype(np.int64, copy=False)
    if pa.types.is_date32(kind):
        return values.view(pa.int32()).to_numpy().astype(np.int64)
    if pa.types.is_timestamp(kind):
        return values.view(pa.int64()).to_numpy()
    if pa.types.is_floating(kind):
        return _float_order(values.to_numpy().astype(np.float64))
    is_text = pa.types.is_string(kind) or pa.types.is_large_string(kind)
    if is_text or pa.types.is_decimal(kind):
        return _dictionary_ranks(values)
    raise SchemaError(f"type {kind} has no order that a table can merge by")


def not_older(older: Sequence[pa.Array], newer: Sequence[pa.Array]) -> npt.NDArray[np.bool_]:
    """Whether each `newer` record wins against its `older` one: ordering(newer) >= ordering(older).

    One array an ordering field, at least one; later fields decide where the earlier ones are equal.
    """
    rows = len(newer[0])
    above = np.zeros(rows, np.bool_)
    equal = np.ones(rows, np.bool_)
    for before, after in zip(older, newer, strict=True):
        together = ranks(pa.concat_arrays([before.cast(after.type), after]))
        low, high = together[:rows], together[rows:]
        above |= equal & (high > low)
        equal &= high == low
    return above | equal


def dense_ranks(ordering: Sequence[pa.Array]) -> npt.NDArray[np.int64]:
    """0, 1, … in the order of several ordering fields together; equal numbers for equal values."""
    by_value = [ranks(values) for values in ordering]
    if len(by_value) == 1:
        return _dense(by_value[0])
    order = np.lexsort(list(reversed(by_value)))
    changes = np.zeros(len(order), np.bool_)
    for values in by_value:
        ordered = values[order]
        changes[1:] |= ordered[1:] != ordered[:-1]
    found = np.empty(len(order), np.int64)
    found[order] = np.cumsum(changes)
    return found


def _float_order(values: npt.NDArray[np.float64]) -> npt.NDArray[np.int64]:
    """Double.compareTo's order: the sign-magnitude bits folded into two's complement."""
    bits = np.where(np.isnan(values), np.nan, values).view(np.int64)
    return np.where(bits < 0, np.int64(np.iinfo(np.int64).min) - bits - 1, bits)


def _dense(values: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    return np.unique(values, return_inverse=True)[1].astype(np.int64)


def _dictionary_ranks(values: pa.Array) -> npt.NDArray[np.int64]:
    encoded = values.dictionary_encode()
    distinct = encoded.dictionary
    # Arrow sorts strings by their bytes
    order = pc.sort_indices(distinct).to_numpy().astype(np.int64)
    place = np.empty(len(distinct), np.int64)
    place[order] = np.arange(len(distinct))
    return place[encoded.indices.to_numpy()]


Indices = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class EntryHistory:
    """Entries in the order in which they were written; all arrays have shape (n,).

    `group` numbers the keys from 0, in any order. `ordering` has one array per ordering field, and is
    empty by commit time. `deleted`: entries that delete their key; `always`: those that do so by commit
    time.
    """

    group: Indices
    ordering: Sequence[pa.Array]
    deleted: Mask
    always: Mask

    def __len__(self) -> int:
        return len(self.group)


@dataclass(frozen=True, slots=True)
class Sources:
    """For each key, the entries that its record is made of, in the order in which they fill gaps.

    Those of key i are rows[starts[i] : starts[i + 1]]. The first one is the winner; a winning delete is
    the only one. Keys are in the order of their winners.
    """

    rows: Indices
    starts: Indices

    @property
    def tops(self) -> Indices:
        """The winning entry of each key."""
        return self.rows[self.starts[:-1]]


def winners(history: EntryHistory) -> Indices:
    """The winning entry of each key, in order of position."""
    group = history.group
    if not len(group):
        return np.empty(0, np.int64)
    position = np.arange(len(group))
    if not history.ordering:
        last = np.zeros(int(group.max()) + 1, np.int64)
        np.maximum.at(last, group, position)
        return np.sort(last)
    entries = _alive(history)
    by_value = [ranks(values.take(pa.array(entries))) for values in history.ordering]
    # lexsort sorts by its last array first: key, then ordering fields in order, then position
    order = np.lexsort([entries, *reversed(by_value), group[entries]])
    ordered = entries[order]
    last_of_group = np.append(group[ordered][1:] != group[ordered][:-1], True)
    return np.sort(ordered[last_of_group])


def sources(history: EntryHistory) -> Sources:
    """The entries that each key's record is made of."""
    if not len(history):
        return Sources(np.empty(0, np.int64), np.zeros(1, np.int64))
    entries = _alive(history)
    entries = entries[np.argsort(history.group[entries], kind="stable")]
    group = history.group[entries]
    deleted = history.deleted[entries]
    value = np.zeros(len(entries), np.int64)
    if history.ordering:
        value = dense_ranks([values.take(pa.array(entries)) for values in history.ordering])
    # values rise with the group, so that the running maximum never reaches into the next group
    rising = group * (int(value.max()) + 1) + value
    wins = rising == np.maximum.accumulate(rising)
    first_of_group = np.append(True, group[1:] != group[:-1])
    number = np.cumsum(first_of_group) - 1
    place = np.arange(len(entries))
    keys = int(number[-1]) + 1
    # a winning delete removes everything before it, and also late entries before the next row
    cut = np.full(keys, -1, np.int64)
    np.maximum.at(cut, number[wins & deleted], place[wins & deleted])
    first_row = np.full(keys, len(entries), np.int64)
    begins = wins & ~deleted & (place > cut[number])
    np.minimum.at(first_row, number[begins], place[begins])
    ends_deleted = first_row == len(entries)
    takes_part = ~deleted & (place >= first_row[number])
    takes_part |= (place == cut[number]) & ends_deleted[number]
    left = np.flatnonzero(takes_part)
    # first the entries that won when they came, newest first; then the late ones, oldest first
    turn = np.where(wins[left], -left, left + len(entries))
    left = left[np.lexsort([turn, number[left]])]
    rows = entries[left]
    sizes = np.bincount(number[left], minlength=keys)
    starts = np.append(0, np.cumsum(sizes))
    return _by_top(Sources(rows, starts))


def _by_top(found: Sources) -> Sources:
    """`found` with the keys in the order of their winners."""
    order = np.argsort(found.tops, kind="stable")
    sizes = np.diff(found.starts)[order]
    starts = np.append(0, np.cumsum(sizes))
    within = np.arange(int(starts[-1])) - np.repeat(starts[:-1], sizes)
    return Sources(found.rows[np.repeat(found.starts[:-1][order], sizes) + within], starts)


def _alive(history: EntryHistory) -> Indices:
    """Entries that still count after deletes by commit time.

    Of a key with such deletes they are the entries from the first row after the last one on, or only that
    delete if no row follows.
    """
    group, always = history.group, history.always
    position = np.arange(len(group))
    if not always.any():
        return position
    groups = int(group.max()) + 1
    cut = np.full(groups, -1, np.int64)
    np.maximum.at(cut, group[always], position[always])
    after = position > cut[group]
    rows_after = after & ~history.deleted
    first_row = np.full(groups, len(position), np.int64)
    np.minimum.at(first_row, group[rows_after], position[rows_after])
    untouched = cut[group] < 0
    from_row = (cut[group] >= 0) & after & (position >= first_row[group])
    delete_alone = (position == cut[group]) & (first_row[group] == len(position))
    return np.flatnonzero(untouched | from_row | delete_alone)


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
    keys: pa.Array | HashedKeys, ordering: Sequence[pa.Array], deletes: Deletes | None = None
) -> Indices | None:
    """Indices of the surviving record of each key, in input order; None if no key occurs twice.

    The records are one history (`EntryHistory`): the highest ordering value wins, ties go to the later
    record, and with an empty `ordering`, by commit time, the later record wins.
    """
    hashed = HashedKeys.of(keys)
    left, right = equal_neighbours(hashed.hashes)
    if not len(left):
        return None
    suspected = np.zeros(len(hashed), np.bool_)
    suspected[left] = suspected[right] = True
    suspects = np.flatnonzero(suspected)
    at = pa.array(suspects)
    groups = hashed.values.take(at).dictionary_encode().indices.to_numpy().astype(np.int64)
    none = np.zeros(len(suspects), np.bool_)
    of_suspects = Deletes(none, none) if deletes is None else deletes.take(suspects)
    values = [column.take(at) for column in ordering]
    best = winners(EntryHistory(groups, values, of_suspects.marked, of_suspects.always))
    keep = ~suspected
    keep[suspects[best]] = True
    return None if keep.all() else np.flatnonzero(keep)


def match(stored: pa.Array | HashedKeys, incoming: pa.Array | HashedKeys) -> Indices:
    """Position in `stored` of each key of `incoming`, -1 if it is not stored.

    `incoming` has no key twice. If `stored` does, the first one is taken, as in Hudi's merge handle.
    """
    return match_and_doubt(stored, incoming)[0]


def match_and_doubt(
    stored: pa.Array | HashedKeys, incoming: pa.Array | HashedKeys
) -> tuple[Indices, bool]:
    """The same, and whether `stored` may have a key twice."""
    old, new = HashedKeys.of(stored), HashedKeys.of(incoming)
    found = np.full(len(new), -1, np.int64)
    if not len(old) or not len(new):
        return found, False
    left, right = equal_neighbours(np.concatenate([old.hashes, new.hashes]))
    if not len(left):
        return found, False
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
            return found, False
    # a key is stored twice, or two keys have one hash: compare the strings of all keys
    exact = pc.index_in(new.values, value_set=old.values)
    return pc.fill_null(exact, -1).to_numpy().astype(np.int64), True


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
