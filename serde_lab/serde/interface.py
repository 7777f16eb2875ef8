"""The SerDe interface: the classes that a strategy implements and the laws that it obeys. Read this first.

A *strategy* is a way to represent and serialise records. It is bound once to a schema and options;
the bound SerDe then works on batches:

    strategy.bind(schema, options) -> BoundSerde
    bound.from_arrow(batch)        -> Records       convert in
    bound.encode(records, bounds)  -> Frames        serialise
    bound.decode(frames)           -> Records       deserialise
    records.to_arrow()             -> RecordBatch   convert out

Laws, checked for every strategy and every plug-in by `serde_lab.serde.conformance.Conformance`:

1. to_arrow(decode(encode(from_arrow(x)))) equals x for every supported type and awkward value, except
   for the losses that the strategy declares in `losses()`.
2. Equal batches give equal bytes; `row` and `batch` execution give the same bytes.
3. Empty batches work, a bound SerDe can be pickled (to reach a worker), and its repr shows its options.
4. A truncated frame, a foreign frame and a frame of another schema raise DecodeError naming strategy
   and record. With integrity "none" a flipped bit raises or gives a record valid for the schema, never
   a crash, a hang or an allocation beyond 16 times the frame (a strategy whose format cannot promise
   that says so in `fairness()`); with "crc32c" every flip raises before anything is decoded.
5. Frames written by an older version still decode (golden bytes).

Strategies, plug-ins included, share these functions: `records.schema.check_supported` and
`serde.registry.resolve` in `bind`, `serde.framing.cut` and `frames_of` in `encode`, `serde.framing.opened`
and `frame_error` in `decode`, `serde.framing.schema_fingerprint` for the head of a frame.

Headline figures sum the four verbs above, and routing, reading and picking records. The representation behind
`Records` decides how the work divides among these; every strategy's module docstring describes it.

The other verbs are RFC-46's record API and RFC-84's record, in bulk. Verbs that only read are methods of
`Records`; verbs that make records of a schema are methods of the SerDe bound to that schema:

    records.column_values, ordering_values, record_keys, partition_paths,
            current_locations, new_locations, is_delete, should_ignore, take, slice, pieces, concatenate,
            to_rows
    bound.rewrite, join, update_metadata, index_records, copy

Records are never changed in place. Law 6: every verb gives what the same change of an Arrow batch gives
(`serde_lab.serde.conformance.verbs`). A strategy overrides `project` (rewrite, join) and
`update_metadata` to stay on its representation; any that it does not override converts to Arrow and back,
in `serde_lab.serde.record_verbs` and nowhere else. `RECORD_API.md` has the table: verb, meaning, cost.
It also says where the pipeline works on Arrow columns instead of calling `rewrite`, `join` or `is_delete`,
since that was measured to cost less.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import ClassVar, Literal, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from serde_lab.errors import DataError, DecodeError
from serde_lab.merging.rules import DeleteMarkers
from serde_lab.records.schema import (
    ENVELOPE,
    IS_INDEX_RECORD,
    OPERATION,
    PARTITION_PATH,
    RECORD_KEY,
    RecordSchema,
    column_of,
    columns_of,
    values_in,
)
from serde_lab.serde.projection.plan import Projection
from serde_lab.serde.record_verbs import (
    Locations,
    MetadataValues,
    index_batch,
    project_batches,
    update_batch,
)

Execution = Literal["row", "batch"]
Integrity = Literal["none", "crc32c"]


@dataclass(frozen=True, slots=True)
class SerdeOptions:
    """Options that every strategy takes, and `own` for the strategy's own keys.

    `rows_per_frame`: the maximum of records in a frame, from 1; 0 means the whole run of one target.
    `max_frame_bytes`: the maximum of bytes in a frame; a frame of one record may be larger, since records
    are never split. `execution`: "" means the strategy's default, the first in `Strategy.executions`.
    """

    execution: Execution | Literal[""] = ""
    rows_per_frame: int = 1
    max_frame_bytes: int = 8 << 20
    integrity: Integrity = "none"
    own: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Bounds:
    """Runs of records for one target: run i is records [offsets[i], offsets[i + 1]), for targets[i].

    A frame never holds records of two runs. `targets` has shape (n,), `offsets` (n + 1,), offsets[0] == 0 and
    offsets[n] == the number of records.
    """

    targets: npt.NDArray[np.int32]
    offsets: npt.NDArray[np.int64]

    @classmethod
    def single(cls, rows: int, target: int = 0) -> Self:
        """One run: all `rows` records go to one target."""
        return cls(np.array([target], np.int32), np.array([0, rows], np.int64))

    @classmethod
    def each(cls, targets: npt.NDArray[np.int32]) -> Self:
        """A run for every record: with one row a frame, records need not be grouped by target first."""
        return cls(
            targets.astype(np.int32, copy=False), np.arange(len(targets) + 1, dtype=np.int64)
        )


@dataclass(frozen=True, slots=True)
class Frames:
    """The rows that cross the shuffle, one a frame. All three arrays have the same length.

    Frames are in the order of their records: frame i holds the `rows[i]` records after those of frame
    i - 1.
    """

    target: pa.Int32Array
    frame: pa.BinaryArray
    rows: pa.Int32Array

    def __len__(self) -> int:
        return len(self.frame)


_NO_MARKERS = DeleteMarkers()


class Records(ABC):
    """Many records on the strategy's own representation: RFC-46's engine-neutral record API, in bulk. Reading
    decoded records may raise DecodeError: a strategy may check a value when it is read."""

    schema: RecordSchema

    @abstractmethod
    def __len__(self) -> int: ...

    @abstractmethod
    def to_arrow(self) -> pa.RecordBatch:
        """Convert out: a batch of `schema.batch_schema`."""

    def to_rows(self) -> tuple[pa.StringArray, pa.RecordBatch]:
        """Convert out for a file: the record keys, and a batch of the data columns (`schema.data`).

        A file holds no more of an envelope, so that a strategy can leave the rest of it as it is.
        """
        batch = self.to_arrow()
        return batch.column(RECORD_KEY), pa.RecordBatch.from_arrays(
            batch.columns[len(ENVELOPE) :], schema=self.schema.data
        )

    @abstractmethod
    def column(self, name: str) -> pa.Array:
        """One envelope or data column, in the type of `schema.batch_schema`, without converting the rest."""

    @abstractmethod
    def take(self, indices: npt.NDArray[np.int64]) -> Self:
        """The records at `indices`, in that order, on the same representation."""

    @classmethod
    @abstractmethod
    def concatenate(cls, parts: Sequence[Self]) -> Self:
        """All records of `parts` (at least one), in order."""

    def slice(self, start: int, stop: int) -> Self:
        """The records [start, stop)."""
        return self.take(np.arange(start, stop))

    def forget_columns(self) -> None:
        """Free the columns that were read from these records and cached."""
        return

    def pieces(self, most: int, rows: npt.NDArray[np.int64] | None = None) -> Iterator[Self]:
        """The records at `rows` (None: all), in that order, in even pieces of at most `most` records."""
        count = len(self) if rows is None else len(rows)
        if count <= most:
            yield self if rows is None else self.take(rows)
            return
        self.forget_columns()
        edges = np.linspace(0, count, -(-count // most) + 1).astype(np.int64).tolist()
        for start, stop in pairwise(edges):
            yield self.slice(start, stop) if rows is None else self.take(rows[start:stop])

    def column_values(self, names: Sequence[str]) -> list[pa.Array]:
        """These columns, each as `column` returns it."""
        return [self.column(name) for name in names]

    def record_keys(self) -> pa.StringArray:
        """The record keys, one a record."""
        return self.column(RECORD_KEY)

    def partition_paths(self) -> pa.StringArray:
        """The partition paths, one a record; "" in a table without partitions."""
        return self.column(PARTITION_PATH)

    def ordering_values(self) -> list[pa.Array]:
        """The values of the ordering fields, one array a field, in the schema's order."""
        names = columns_of(self.schema.ordering)
        columns = dict(zip(names, self.column_values(names), strict=True))
        return [values_in(columns[column_of(path)], path) for path in self.schema.ordering]

    def current_locations(self) -> Locations:
        """Where records are stored: null without a file id, or while their file group does not exist."""
        return Locations.current(self.column)

    def new_locations(self, instant_time: str) -> Locations:
        """Where a write of this instant puts records: null if they have no file id."""
        return Locations.new(self.column, instant_time)

    def is_delete(self, markers: DeleteMarkers = _NO_MARKERS) -> pa.BooleanArray:
        """Whether each record is a delete: by operation D or -U, by `_hoodie_is_deleted`, or by the table's
        own marker. An index record never is. Raises SchemaError naming a column that cannot mark deletes.
        """
        markers.check(self.schema.data)
        marked = markers.marked(self, [OPERATION, *self.schema.data.names])
        if marked is None:
            return pa.repeat(False, len(self))
        return pc.and_not(pa.array(marked), self.column(IS_INDEX_RECORD))

    def should_ignore(self) -> pa.BooleanArray:
        """Whether a write skips each record: true for index records, which have a location but no row."""
        return self.column(IS_INDEX_RECORD)


class BoundSerde(ABC):
    """A strategy bound to one schema and its options. Picklable; its repr shows strategy and options."""

    name: ClassVar[str] = ""
    """The strategy's name."""
    mark: ClassVar[bytes]
    """First byte of every frame of this strategy: shows on the wire which strategy was used."""

    def __init__(self, schema: RecordSchema, options: SerdeOptions) -> None:
        self.schema, self.options = schema, options

    def __repr__(self) -> str:
        return f"{self.name}({self.options})"

    @property
    def decode_bytes(self) -> int | None:
        """The bytes of frames that one call of `decode` handles with the least work, if there are many more.
        None means all at once, as for records that keep the bytes of their frames."""
        return None

    @abstractmethod
    def from_arrow(self, batch: pa.RecordBatch) -> Records:
        """Convert in a batch of `schema.batch_schema`. Raises DataError for what records cannot hold."""

    @abstractmethod
    def encode(self, records: Records, bounds: Bounds) -> Frames:
        """Serialise. Frames end at every bound, at `rows_per_frame` and at `max_frame_bytes`. Raises
        DataError for frames of 2 GiB in all."""

    @abstractmethod
    def decode(self, frames: pa.BinaryArray) -> Records:
        """Deserialise the records of `frames`, in order. Raises DecodeError."""

    def rewrite(
        self,
        records: Records,
        renames: Mapping[str, str] | None = None,
        defaults: Mapping[str, object] | None = None,
    ) -> Records:
        """`records` of another schema as records of this one (rewriteRecordWithNewSchema).

        Columns are found by name, or by `renames` (new name, or path inside nested columns, -> old
        name). New columns take their value from `defaults`, or are null. `projection/plan.py` lists the
        type promotions. Raises SchemaError naming a column whose type cannot change so.
        """
        plan = Projection.rewriting(records.schema, self.schema, renames or {}, defaults or {})
        return self.project(plan, [records])

    def join(self, left: Records, right: Records) -> Records:
        """Record i of `left` with the columns of record i of `right` (joinWith), in this schema.

        Envelopes come from `left`, a column of both from `right`. An index record stays without a
        row. Raises DataError if the two differ in length, SchemaError naming a column that neither has.
        """
        if len(left) != len(right):
            raise DataError(f"{len(left)} records cannot be joined with {len(right)}, one to one")
        plan = Projection.joining(left.schema, right.schema, self.schema)
        return self.project(plan, [left, right])

    def project(self, projection: Projection, sides: Sequence[Records]) -> Records:
        """Apply a projection to one side (`rewrite`) or to two sides of equal length (`join`)."""
        batches = [records.to_arrow() for records in sides]
        return self.from_arrow(project_batches(self.schema, projection, batches))

    def update_metadata(self, records: Records, values: MetadataValues) -> Records:
        """The same records with other file ids, instant times or operations; None keeps the old values.

        Raises DataError for values that do not fit the records, or an operation that Hudi does not have.
        """
        return self.from_arrow(update_batch(records.to_arrow(), values))

    def index_records(
        self,
        keys: pa.StringArray,
        partition_paths: pa.StringArray,
        file_ids: pa.StringArray,
        instant_time: str = "",
    ) -> Records:
        """RFC-84's index records: they hold the location of each key and no row."""
        schema = self.schema.batch_schema
        return self.from_arrow(index_batch(schema, keys, partition_paths, file_ids, instant_time))

    def copy(self, source: Frames, target: npt.NDArray[np.int32]) -> Frames:
        """The frames of `source`, byte for byte, sent to other targets.

        Nothing is decoded and no integrity trailer is verified; `target` has shape (n,). Raises
        DecodeError for a frame that does not begin with this strategy's mark.
        """
        if len(target) != len(source):
            raise ValueError(f"{len(target)} targets for {len(source)} frames")
        begun = pc.binary_slice(source.frame, 0, 1).fill_null(b"")
        foreign = pc.not_equal(begun, pa.scalar(self.mark))
        if pc.any(foreign).as_py():
            number = pc.index(foreign, True).as_py()
            name = repr(self).partition("(")[0]
            raise DecodeError(
                name, None, f"frame {number} does not begin with this strategy's mark"
            )
        return Frames(pa.array(target, pa.int32()), source.frame, source.rows)

    def sniff(self, frame: bytes) -> bool:
        """Whether `frame` begins with this strategy's mark; nothing is decoded."""
        return frame[:1] == self.mark


_OVERRIDDEN_BY = {
    "rewrite": "project",
    "join": "project",
    "update_metadata": "update_metadata",
}
"""For each verb, the method that a bound SerDe overrides to run it on its own representation."""


def verbs_through_arrow(bound: BoundSerde) -> frozenset[str]:
    """The verbs that `bound` runs by converting to Arrow, since its class does not override their method."""
    return frozenset(
        verb
        for verb, method in _OVERRIDDEN_BY.items()
        if getattr(type(bound), method) is getattr(BoundSerde, method)
    )


@dataclass(frozen=True, slots=True)
class Fairness:
    """Advantages and handicaps of a strategy in the comparison; printed beside its figures."""

    schema_known: str
    """Which side knows the schema in advance, so that frames need not carry it."""
    copies: str
    """How often bytes are copied between Arrow and the frame, and back."""
    batching: str
    """Which costs it spreads over a batch."""
    trust: str
    """What happens on damaged input, and what a hostile frame could do."""
    notes: str = ""


class Strategy(ABC):
    """A named way to represent and serialise records; found through entry points `serde_lab.strategies`."""

    name: ClassVar[str]
    executions: ClassVar[tuple[Execution, ...]]
    """The executions that it supports; the first is its default."""
    default_rows_per_frame: ClassVar[int]

    @abstractmethod
    def bind(self, schema: RecordSchema, options: SerdeOptions) -> BoundSerde:
        """Bind to a schema. Raises SchemaError naming column and type, OptionError naming the option."""

    @abstractmethod
    def fairness(self) -> Fairness: ...

    def shared_dictionary(self) -> bytes:
        """What both sides know of values in advance, beside the schema; its bytes count as frame bytes where
        a run checks that frames can hold their rows. Empty by default."""
        return b""

    def losses(self) -> Mapping[str, str]:
        """Declared losses: what is lost -> how it comes back. Empty by default."""
        return {}
