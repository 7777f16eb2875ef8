"""Computes the expected rows of histories with delete markers or partial updates, in plain Python.

Each rule is implemented again from its source (BufferedRecordMergerFactory, PartialUpdateHandler),
independently of the code that writes tables. Keys and ordering values are integers that DuckDB assigned.

* An entry supersedes its key's earlier one if its ordering value is not lower, or if one of the two is a
  delete by commit time. Under commit-time ordering it always does.
* A delete that supersedes leaves a tombstone if there is a log. Without a log, or in the commit that
  begins the file group, it leaves nothing.
* When partial update merges two rows, gaps in the winning row are filled from the other row.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from serde_lab.verify.key_text import in_types
from serde_lab.verify.table_rules import TableRules

Place = tuple[int, int]
"""Commit, and position within its input."""


@dataclass(frozen=True, slots=True)
class Entry:
    """The state of a key: a delete, or a row made of input rows, the winning one first."""

    ordering: int
    made_of: tuple[Place, ...] = ()
    deleted: bool = False
    always: bool = False


@dataclass(frozen=True, slots=True)
class Arrival:
    """An input row. `group` is its file group's number, -1 for an operation that deletes by key."""

    commit: int
    key: int
    group: int
    entry: Entry


class EntryByEntry:
    """Applies arrivals in order, and knows the visible rows at any time."""

    def __init__(self, rules: TableRules) -> None:
        self._rules = rules
        self._logs = rules.table_type == "MERGE_ON_READ"
        self._born: dict[int, int] = {}
        self._base: dict[int, Entry] = {}
        self._log: dict[int, Entry] = {}

    def write(self, commit: int, arrivals: Iterable[Arrival]) -> None:
        """Apply one commit: its entries of a key are merged with each other, then with the stored one."""
        batch: dict[int, Entry] = {}
        groups: dict[int, int] = {}
        for arrival in arrivals:
            batch[arrival.key] = self._after(batch.get(arrival.key), arrival.entry)
            groups[arrival.key] = arrival.group
        for group in groups.values():
            self._born.setdefault(group, commit)
        for key, entry in batch.items():
            group = groups[key]
            by_key = group < 0
            first = not by_key and self._born[group] == commit
            if self._logs and not first:
                if not by_key or key in self._base or key in self._log:
                    self._log[key] = self._after(self._log.get(key), entry)
                continue
            self._put(key, self._after(self._base.get(key), entry))

    def compact(self) -> None:
        """Merge the logs into the base files."""
        for key, entry in self._log.items():
            self._put(key, self._after(self._base.get(key), entry))
        self._log = {}

    def visible(self) -> list[tuple[Place, ...]]:
        """The input rows that make up each visible row."""
        self.compact()
        return sorted(entry.made_of for entry in self._base.values())

    def _put(self, key: int, entry: Entry) -> None:
        if entry.deleted:
            self._base.pop(key, None)
        else:
            self._base[key] = entry

    def _after(self, before: Entry | None, new: Entry) -> Entry:
        if before is None:
            return new
        if before.always and new.deleted:
            return before
        by_time = not self._rules.by_event_time or before.always or new.always
        takes_over = by_time or new.ordering >= before.ordering
        winner, other = (new, before) if takes_over else (before, new)
        if self._rules.partial_update and not winner.deleted and not other.deleted:
            return replace(winner, made_of=(*winner.made_of, *other.made_of))
        return winner


def filled_rows(
    rules: TableRules,
    made_of: Sequence[tuple[Place, ...]],
    files: Sequence[Sequence[Path]],
    bits: int,
) -> pa.Table:
    """Rows made of one or several input rows.

    `files` holds the input files of each commit; a position is the file's place in them shifted by `bits`,
    plus the row.
    """
    wanted = sorted({place for places in made_of for place in places})
    number = {place: n for n, place in enumerate(wanted)}
    parts = []
    by_file: dict[tuple[int, int], list[int]] = {}
    for commit, position in wanted:
        by_file.setdefault((commit, position >> bits), []).append(position & ((1 << bits) - 1))
    for (commit, place), rows in by_file.items():
        taken = pq.read_table(files[commit][place]).take(rows)
        batches = [in_types(batch, rules.stored) for batch in taken.to_batches()]
        parts.append(pa.Table.from_batches(batches).cast(rules.stored))
    together = pa.concat_tables(parts) if parts else rules.stored.empty_table()
    most = max((len(places) for places in made_of), default=0)
    result = _level(together, made_of, number, 0)
    # start from the last version, which is used only where all others have gaps
    columns = {
        name: _level(together, made_of, number, most - 1)[name] for name in result.schema.names
    }
    for turn in range(most - 2, -1, -1):
        nearer = _level(together, made_of, number, turn)
        there = pa.chunked_array([pa.array([len(places) > turn for places in made_of])])
        follows = pa.chunked_array([pa.array([len(places) > turn + 1 for places in made_of])])
        for name, further in columns.items():
            values = nearer[name]
            gap = pc.and_(_gaps(rules, values), follows)
            columns[name] = pc.if_else(pc.or_(gap, pc.invert(there)), further, values)
    return pa.table(columns, schema=rules.stored) if most else rules.stored.empty_table()


def _level(
    rows: pa.Table,
    made_of: Sequence[tuple[Place, ...]],
    number: dict[Place, int],
    turn: int,
) -> pa.Table:
    at = [number[places[turn]] if len(places) > turn else None for places in made_of]
    return rows.take(pa.array(at, pa.int64()))


def _gaps(rules: TableRules, values: pa.ChunkedArray) -> pa.ChunkedArray:
    if rules.partial_update == "IGNORE_DEFAULTS":
        return pc.is_null(values)
    kind = values.type
    if rules.partial_update != "FILL_UNAVAILABLE" or not (
        pa.types.is_string(kind) or pa.types.is_binary(kind)
    ):
        return pa.chunked_array([pa.array(np.zeros(len(values), np.bool_))])
    return pc.fill_null(pc.equal(values, pa.scalar(rules.unavailable.encode()).cast(kind)), False)
