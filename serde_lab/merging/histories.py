"""Merges the entries of each key, rows and deletes, in the order in which they were written.

The rules are those by which Hudi merges entry by entry (BufferedRecordMergerFactory), computed for all
keys at once as index arithmetic.

* By commit time the later entry wins.
* By event time an entry wins over those before it if its ordering value is not lower than the highest of
  theirs. A delete without an ordering value (by commit time) wins over everything before it. The first
  row after it wins over it whatever its value; until then deletes with a value change nothing.
* These rules hold within one history. A base file's row does not belong to its logs' history: the logs'
  winner is compared with it by ordering value alone. So a base row with a higher value comes back even
  if the log deleted it before, as in Apache Hudi unless a compaction ran in between.
* Under partial update (`sources`) a winning entry has its gaps filled from the winners before it, and a
  losing entry fills the gaps that remain.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from serde_lab.records.ordering import dense_ranks, ranks

Indices = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class History:
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


def winners(history: History) -> Indices:
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


def sources(history: History) -> Sources:
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
    stands = rising == np.maximum.accumulate(rising)
    first_of_group = np.append(True, group[1:] != group[:-1])
    number = np.cumsum(first_of_group) - 1
    place = np.arange(len(entries))
    keys = int(number[-1]) + 1
    # a winning delete removes everything before it, and also late entries before the next row
    cut = np.full(keys, -1, np.int64)
    np.maximum.at(cut, number[stands & deleted], place[stands & deleted])
    first_row = np.full(keys, len(entries), np.int64)
    begins = stands & ~deleted & (place > cut[number])
    np.minimum.at(first_row, number[begins], place[begins])
    ends_deleted = first_row == len(entries)
    takes_part = ~deleted & (place >= first_row[number])
    takes_part |= (place == cut[number]) & ends_deleted[number]
    left = np.flatnonzero(takes_part)
    # first the entries that won when they came, newest first; then the late ones, oldest first
    turn = np.where(stands[left], -left, left + len(entries))
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


def _alive(history: History) -> Indices:
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
