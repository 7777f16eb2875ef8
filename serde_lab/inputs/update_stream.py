"""Derives batches of inserts, updates, late rows, duplicates and deletes from the rows of any table.

`Shares` defines updates, late rows, duplicates and deletes. A derived row combines two source rows.
Its *identity* (key, partition and own ordering columns) comes from the row with its key, its *payload*
(all other columns) from another row. So an update changes the columns that a user would change.

Each source row provides one key. Batch 0 takes the keys of the first rows, inserts of later batches those
of the next rows. At the end of the source new keys are made, if the caller allows it: in pass g over the
source (the first is 0), the first key column is its value + g * (1 + greatest value).

All choices are pure functions of the seed and of positions. A batch is made in pieces of about half a
million rows, which bounds memory. Rows are shuffled and keys are repeated within a piece.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.types as pat

from serde_lab.errors import DataError, UsageError
from serde_lab.inputs.event_time import (
    EVENT_TS,
    AddedEventTime,
    OrderedRows,
    OrderingValues,
    ShiftedOrdering,
)
from serde_lab.inputs.parquet_rows import ParquetRows
from serde_lab.inputs.random_choices import draw, share_of, shuffled, spread, stream
from serde_lab.records.schema import IS_DELETED


@dataclass(frozen=True, slots=True)
class Shares:
    """The requested composition of one batch of `rows` rows; shares are from 0 to 1.

    `duplicates`: share of the rows that repeat the key of another row of the batch. `updates`: share
    of the batch's different keys that are stored already; the others are inserts. `late`: share of
    the rows whose ordering value is older than the stored one. `deletes`: share of the rows that
    carry the delete marker. Late rows and deletes count as updates. For operation `delete` `updates`
    counts as 1: each row deletes a stored key.
    """

    operation: str
    rows: int
    updates: float = 0.0
    duplicates: float = 0.0
    late: float = 0.0
    deletes: float = 0.0


@dataclass(frozen=True, slots=True)
class Counts:
    """The same as numbers of rows. `rows` = `updates` + `inserts` + `duplicates`.

    A key occurs once among updates and inserts.
    """

    rows: int
    updates: int
    inserts: int
    duplicates: int
    late: int
    deletes: int

    @property
    def keys(self) -> int:
        """Different keys in the batch."""
        return self.updates + self.inserts


def count(batch: Shares) -> Counts:
    """Round the shares to rows. Raises UsageError for shares that contradict each other."""
    for name in ("updates", "duplicates", "late", "deletes"):
        share = getattr(batch, name)
        if not 0 <= share <= 1:
            raise UsageError(f"{name} = {share:g}: expected a share from 0 to 1")
    if batch.rows < 1:
        raise UsageError(f"rows = {batch.rows}: expected at least one row")
    duplicates = min(_round(batch.rows * batch.duplicates), batch.rows - 1)
    keys = batch.rows - duplicates
    is_delete = batch.operation == "delete"
    updates = keys if is_delete else _round(keys * batch.updates)
    late = _round(batch.rows * batch.late)
    deletes = _round(batch.rows * batch.deletes)
    if late + deletes > updates:
        raise UsageError(
            f"late and deletes need {late + deletes:,} rows of stored keys, "
            f"but updates provide only {updates:,}"
        )
    if duplicates and deletes == keys:
        raise UsageError(
            "duplicates repeat only keys that the batch does not delete, and it deletes all of them"
        )
    if is_delete and (duplicates or late or deletes):
        raise UsageError("a delete has no duplicates, late or deletes")
    return Counts(batch.rows, updates, keys - updates, duplicates, late, deletes)


def _round(x: float) -> int:
    # halves go up, as people expect; Python's own round goes to even
    return math.floor(x + 0.5)


ROWS_PER_PIECE = 1 << 19

DERIVATION = "tpch.updates 1"
"""The number grows when equal requests begin to give different rows, so that kept data is made again."""


@dataclass(frozen=True, slots=True)
class _Piece:
    """The rows of one piece of a batch, as positions.

    `updates` holds key numbers from the range `stored`; `new` is the range of key numbers of the inserts.
    `key_of[row]` is the position of a row's key in the updates followed by the inserts.
    """

    first_row: int
    stored: tuple[int, int]
    updates: npt.NDArray[np.int64]
    new: tuple[int, int]
    key_of: npt.NDArray[np.int64]
    late: npt.NDArray[np.bool_]
    deleted: npt.NDArray[np.bool_]
    repeat: npt.NDArray[np.int64]


class UpdateStream:
    """The batches of one table, each as a stream of Arrow tables with the columns of `schema`.

    `key` must be unique in `source`; `names` are the batches' names in messages. If `ordering` is empty,
    the column event_ts is added; otherwise the first ordering column is moved. If it is None, rows stay as
    they are: all batches must be inserts only, and `key` is needed only with `new_keys`. Raises UsageError
    or DataError if the batches cannot be derived.
    """

    def __init__(
        self,
        source: ParquetRows,
        batches: Sequence[Shares],
        *,
        key: Sequence[str],
        partition: Sequence[str] = (),
        ordering: Sequence[str] | None = (),
        seed: int = 1,
        new_keys: bool = False,
        names: Sequence[str] = (),
        rows_per_piece: int = ROWS_PER_PIECE,
    ) -> None:
        self._source, self._batches, self._seed = source, tuple(batches), seed
        self._rows_per_piece = rows_per_piece
        self._names = tuple(names) or tuple(f"batch {n + 1}" for n in range(len(batches)))
        self._key = tuple(key)
        self._identity = tuple(dict.fromkeys([*key, *partition, *(ordering or ())]))
        self._payload = tuple(n for n in source.schema.names if n not in self._identity)
        self.counts = tuple(map(self._count, self._names, self._batches))
        # keys that were inserted before each batch, and after the last
        self._stored = [*accumulate((one.inserts for one in self.counts), initial=0)]
        self._check(new_keys)
        self._key_step = self._step() if self._stored[-1] > source.rows else 0
        self._ordering = None if ordering is None else self._ordering_values(ordering)
        self._marked = any(counts.deletes for counts in self.counts)
        self.schema = self._schema(added=isinstance(self._ordering, AddedEventTime))

    @staticmethod
    def _count(name: str, batch: Shares) -> Counts:
        try:
            return count(batch)
        except UsageError as exc:
            raise UsageError(f"{name}: {exc.message}") from exc

    def _check(self, new_keys: bool) -> None:
        deleted = 0
        for number, (batch, counts) in enumerate(zip(self._batches, self.counts, strict=True)):
            alive = self._stored[number] - deleted
            if counts.updates > alive:
                raise UsageError(
                    f"{self._names[number]} ({batch.operation}) updates {counts.updates:,} stored "
                    f"keys, but only {alive:,} are stored by then"
                )
            deleted += counts.updates if batch.operation == "delete" else counts.deletes
        needed, there = self._stored[-1], self._source.rows
        if needed > there and (not new_keys or not there):
            raise UsageError(
                f"the batches need {needed:,} different keys, but the data has {there:,} rows"
            )

    def _step(self) -> int:
        name = self._key[0]
        t = self._source.schema.field(name).type
        ends = self._source.extent(name)
        if not pat.is_int64(t) or ends is None or not isinstance(ends[1], int) or ends[0] < 0:  # type: ignore[operator]
            raise DataError(
                f"column {name!r}, the first of the key, has the type {t}: new keys can only be "
                "made for an int64 without negative values"
            )
        return ends[1] + 1

    def _ordering_values(self, ordering: Sequence[str]) -> OrderingValues | None:
        """What makes the ordering values; None for a single batch without duplicates, which keeps its own."""
        if not ordering:
            if EVENT_TS in self._source.schema.names:
                raise DataError(
                    f"the data already has a column {EVENT_TS!r}, which would be added",
                    f"name it as `ordering = {EVENT_TS!r}`, or rename it",
                )
            return AddedEventTime()
        field = self._source.schema.field(ordering[0])
        repeats = max((self._repeats(n) for n in range(len(self._batches))), default=0)
        if len(self._batches) < 2 and not repeats:
            return None
        if ordering[0] in self._key and any(c.updates or c.duplicates for c in self.counts):
            raise DataError(
                f"column {ordering[0]!r} is the ordering field and part of the key: a row with a newer"
                " value would have another key, and update nothing",
                "leave out `ordering`, which adds a column event_ts, or give each commit its own `path`",
            )
        return ShiftedOrdering(field, self._source.extent(ordering[0]), len(self._batches), repeats)

    def _repeats(self, number: int) -> int:
        return -(-self.counts[number].duplicates // self._pieces(number))

    def _schema(self, added: bool) -> pa.Schema:
        fields = list(self._source.schema)
        if added:
            fields.append(pa.field(EVENT_TS, pa.int64()))
        if self._marked:
            if IS_DELETED in self._source.schema.names:
                raise DataError(
                    f"the data already has a column {IS_DELETED!r}, which deletes would add"
                )
            fields.append(pa.field(IS_DELETED, pa.bool_()))
        return pa.schema(fields)

    def tables(self, number: int) -> Iterator[pa.Table]:
        """The rows of batch `number` (from 0) in input order, one piece at a time."""
        alive = self._alive(number)
        for piece in self._plan(number, alive):
            yield self._fill(number, piece)

    def _pieces(self, number: int) -> int:
        counts = self.counts[number]
        # every piece needs keys for its duplicates to repeat
        return max(1, min(-(-counts.rows // self._rows_per_piece), counts.keys // 1000))

    def _alive(self, number: int) -> npt.NDArray[np.bool_] | None:
        """Which key numbers are stored before a batch; None means all that were inserted before."""
        earlier = range(number)
        if not any(self._deletes(n) for n in earlier):
            return None
        alive = np.ones(self._stored[number], bool)
        for n in earlier:
            if self._deletes(n):
                for piece in self._plan(n, alive[: self._stored[n]].copy()):
                    keys = piece.updates
                    if self._batches[n].operation != "delete":
                        first = piece.key_of < len(piece.updates)
                        keys = piece.updates[piece.key_of[piece.deleted & first]]
                    alive[keys] = False
        return alive

    def _deletes(self, number: int) -> bool:
        return self._batches[number].operation == "delete" or self.counts[number].deletes > 0

    def _plan(self, number: int, alive: npt.NDArray[np.bool_] | None) -> Iterator[_Piece]:
        counts, stored = self.counts[number], self._stored[number]
        pieces = self._pieces(number)
        total_alive = stored if alive is None else int(np.count_nonzero(alive))
        seen = 0
        for piece in range(pieces):
            first, stop = share_of(stored, piece, pieces)
            candidates = np.arange(first, stop, dtype=np.int64)
            if alive is not None:
                candidates = candidates[alive[first:stop]]
            done = counts.updates * seen // max(1, total_alive)
            seen += len(candidates)
            wanted = counts.updates * seen // max(1, total_alive) - done
            new = share_of(counts.inserts, piece, pieces)
            repeats = share_of(counts.duplicates, piece, pieces)
            yield self._pick(number, (first, stop), candidates, done, wanted, new, repeats)

    def _pick(
        self,
        number: int,
        stored: tuple[int, int],
        candidates: npt.NDArray[np.int64],
        done: int,
        wanted: int,
        new: tuple[int, int],
        repeats: tuple[int, int],
    ) -> _Piece:
        counts = self.counts[number]
        chance = draw(self._stream(number, "updates"), candidates.astype(np.uint64))
        updates = candidates[np.argsort(chance, kind="stable")[:wanted]]
        keys = wanted + new[1] - new[0]
        n_repeats = repeats[1] - repeats[0]
        late, deleted = np.zeros((2, keys + n_repeats), bool)
        late[:wanted], deleted[:wanted] = _roles(counts, done, wanted)

        repeatable = np.flatnonzero(~deleted[:keys])
        if n_repeats and not len(repeatable):
            raise UsageError(
                "duplicates repeat only keys that the batch does not delete, and there are too few of them"
            )
        chance = draw(self._stream(number, "duplicates"), np.arange(*repeats, dtype=np.uint64))
        again = repeatable[(chance % np.uint64(max(1, len(repeatable)))).astype(np.int64)]
        key_of = np.concatenate([np.arange(keys, dtype=np.int64), again])
        # 1, -1, 2, -2, …: the later of two rows of a key is not always the newer
        signed = (np.arange(n_repeats) // 2 + 1) * np.where(np.arange(n_repeats) % 2, -1, 1)
        repeat = np.concatenate([np.zeros(keys, np.int64), signed.astype(np.int64)])
        first_row = done + new[0] + repeats[0]
        if not self._in_table_order(number):
            order = shuffled(self._stream(number, "order"), first_row, len(key_of))
            key_of, late, deleted, repeat = (a[order] for a in (key_of, late, deleted, repeat))
        base = self._stored[number]
        return _Piece(
            first_row,
            stored,
            updates,
            (base + new[0], base + new[1]),
            key_of,
            late,
            deleted,
            repeat,
        )

    def _in_table_order(self, number: int) -> bool:
        """Whether a batch has only inserts; its rows are then the source's, payload included."""
        counts = self.counts[number]
        return counts.inserts == counts.rows

    def _fill(self, number: int, piece: _Piece) -> pa.Table:
        counts, rows = self.counts[number], len(piece.key_of)
        stored = self._keys(*piece.stored).take(piece.updates - piece.stored[0])
        identity = pa.concat_tables([stored, self._keys(*piece.new)])
        if self._in_table_order(number):
            start = piece.new[0]
        else:
            identity = identity.combine_chunks().take(piece.key_of)
            start = self._stream(number, "payload") % self._source.rows + piece.first_row
        payload = self._source.read_around(start, rows, self._payload)
        columns = {name: identity.column(name) for name in self._identity}
        columns |= {name: payload.column(name) for name in self._payload}
        if self._ordering is not None:
            own = columns.get(self._ordering.column)
            rank = shuffled(self._stream(number, "time"), piece.first_row, rows) + piece.first_row
            own = None if own is None else own.combine_chunks()
            of = OrderedRows(number, counts.rows, rank, piece.late, piece.repeat, own)
            columns[self._ordering.column] = self._ordering.values(of)
        if self._marked:
            columns[IS_DELETED] = pa.array(piece.deleted)
        return pa.table([columns[name] for name in self.schema.names], schema=self.schema)

    def _keys(self, first: int, stop: int) -> pa.Table:
        """The identity columns of key numbers from `first` up to, not including, `stop`."""
        rows = self._source.read_around(first, stop - first, self._identity).combine_chunks()
        if stop <= self._source.rows or first == stop:
            return rows
        passes = np.arange(first, stop, dtype=np.int64) // self._source.rows
        at = rows.schema.get_field_index(self._key[0])
        values = rows.column(at).to_numpy() + passes * self._key_step
        return rows.set_column(at, rows.schema.field(at), pa.array(values, pa.int64()))

    def _stream(self, number: int, purpose: str) -> int:
        return stream(self._seed, number, purpose)


def _roles(
    counts: Counts, first: int, rows: int
) -> tuple[npt.NDArray[np.bool_], npt.NDArray[np.bool_]]:
    """Masks over `rows` updates from number `first` on: which are late, and which are deletes."""
    number = np.arange(first, first + rows, dtype=np.int64)
    special = counts.late + counts.deletes
    chosen = spread(number, special, counts.updates)
    ordinal = number * special // max(1, counts.updates)
    late = chosen & spread(ordinal, counts.late, special)
    return late, chosen & ~late
