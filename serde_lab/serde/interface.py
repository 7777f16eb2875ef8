"""The SerDe interface: what a strategy is, and the laws that it keeps. Read this file first.

A *strategy* is a way to represent and serialise records. It is bound once to a schema and options,
then works on batches:

    strategy.bind(schema, options) -> BoundSerde
    bound.from_arrow(batch)        -> Records       convert in
    bound.encode(records, bounds)  -> Frames        serialise
    bound.decode(frames)           -> Records       deserialise
    records.to_arrow()             -> RecordBatch   convert out

Laws, checked for every strategy and every plug-in by `serde_lab.serde.conformance.Conformance`:

1. to_arrow(decode(encode(from_arrow(x)))) equals x for every supported type and awkward value, up to
   the losses that the strategy declares in `losses()`.
2. Equal batches give equal bytes; `row` and `batch` execution give the same bytes.
3. Empty batches work, a bound SerDe travels to a worker (pickle), and its repr shows its options.
4. A truncated frame, a foreign frame and a frame of another schema raise DecodeError naming strategy
   and record. With integrity "none" a flipped bit raises or gives a record valid for the schema, never
   a crash, a hang or an allocation beyond 16 times the frame (a strategy whose format cannot promise
   that says so in `fairness()`); with "crc32c" every flip raises before anything is decoded.
5. Frames written by an older version still decode (golden bytes).

What strategies share, and a plug-in calls: `records.types.check_supported` and `serde.options.resolve` in
`bind`, `serde.framing.cut` and `frames_of` in `encode`, `serde.framing.opened` and `frame_error` in `decode`,
`serde.fingerprint.schema_fingerprint` for the head of a frame.

The four verbs are what headlines use the sum of. What a `Records` *is* decides the split between
converting and serialising, so every strategy's module docstring says it.

The other verbs are RFC-46's record API and RFC-84's record, in bulk. What only reads records is asked of
the records; what makes records of a schema is asked of the bound SerDe of that schema:

    records.column_values, ordering_values, record_keys, partition_paths,
            current_locations, new_locations, is_delete, should_ignore, take, slice, pieces, concatenate
    bound.rewrite, join, update_metadata, index_records, copy

Records are never changed in place. Law 6: every verb gives what the same change of an Arrow batch gives
(`serde_lab.serde.conformance.verbs`). A strategy overrides `project` (rewrite, join) and
`update_metadata` to stay on its representation; what it does not override goes round through Arrow, in
`serde_lab.serde.through_arrow` and nowhere else. `RECORD_API.md` has the table: verb, meaning, cost.
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
from serde_lab.merging.delete_markers import DeleteMarkers
from serde_lab.records.schema import (
    IS_INDEX_RECORD,
    OPERATION,
    PARTITION_PATH,
    RECORD_KEY,
    RecordSchema,
    column_of,
    columns_of,
    values_in,
)
from serde_lab.serde import through_arrow
from serde_lab.serde.projection.plan import Projection
from serde_lab.serde.record_verbs import Locations, MetadataValues

Execution = Literal["row", "batch"]
Integrity = Literal["none", "crc32c"]


@dataclass(frozen=True, slots=True)
class SerdeOptions:
    """Options that every strategy takes, and `own` for the strategy's own keys.

    `rows_per_frame`: most records in one frame, from 1; 0 means the whole run of one target.
    `max_frame_bytes`: most bytes in one frame; a frame of one record may be larger, since a record is
    never split. `execution`: "" means the strategy's default, its first in `Strategy.executions`.
    """

    execution: Execution | Literal[""] = ""
    rows_per_frame: int = 1
    max_frame_bytes: int = 8 << 20
    integrity: Integrity = "none"
    own: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Bounds:
    """Runs of records of equal target: run i is records [offsets[i], offsets[i + 1]), for targets[i].

    No frame crosses a bound. `targets` has shape (n,), `offsets` (n + 1,), offsets[0] == 0 and
    offsets[n] == the number of records.
    """

    targets: npt.NDArray[np.int32]
    offsets: npt.NDArray[np.int64]

    @classmethod
    def single(cls, rows: int, target: int = 0) -> Self:
        """All `rows` records go to one target."""
        return cls(np.array([target], np.int32), np.array([0, rows], np.int64))

    @classmethod
    def each(cls, targets: npt.NDArray[np.int32]) -> Self:
        """Every record is a run of its own: what needs no routing at one row a frame."""
        return cls(
            targets.astype(np.int32, copy=False), np.arange(len(targets) + 1, dtype=np.int64)
        )


@dataclass(frozen=True, slots=True)
class Frames:
    """What crosses the exchange: one row a frame. All three arrays have the same length.

    Frames stand in the order of the records that they hold: frame i holds the `rows[i]` records after
    those of frame i - 1.
    """

    target: pa.Int32Array
    frame: pa.BinaryArray
    rows: pa.Int32Array

    def __len__(self) -> int:
        return len(self.frame)


_NO_MARKERS = DeleteMarkers()


class Records(ABC):
    """Many records on the strategy's own representation: RFC-46's engine-neutral record API, in bulk."""

    schema: RecordSchema

    @abstractmethod
    def __len__(self) -> int: ...

    @abstractmethod
    def to_arrow(self) -> pa.RecordBatch:
        """Convert out: a batch of `schema.batch_schema`."""

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
        """The records from number `start` to before `stop`."""
        return self.take(np.arange(start, stop))

    def forget_columns(self) -> None:
        """Give back what was read of these records and is kept beside them."""
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
        """These columns, each as `column` gives it."""
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
        """Where records are stored: null until they are located, and for a file group yet to be."""
        return Locations.current(self.column)

    def new_locations(self, instant_time: str) -> Locations:
        """Where a write of this instant puts records: null until they are located."""
        return Locations.new(self.column, instant_time)

    def is_delete(self, markers: DeleteMarkers = _NO_MARKERS) -> pa.BooleanArray:
        """Whether each record deletes: by operation D or -U, by `_hoodie_is_deleted`, by the table's own
        marker. An index record never does. Raises SchemaError naming a column that cannot tell.
        """
        markers.check(self.schema.data)
        marked = markers.marked(self, [OPERATION, *self.schema.data.names])
        if marked is None:
            return pa.repeat(False, len(self))
        return pc.and_not(pa.array(marked), self.column(IS_INDEX_RECORD))

    def should_ignore(self) -> pa.BooleanArray:
        """Whether a write passes over each record: index records tell where a key is, and have no row."""
        return self.column(IS_INDEX_RECORD)


class BoundSerde(ABC):
    """A strategy bound to one schema and its options. Picklable; its repr shows strategy and options."""

    schema: RecordSchema
    options: SerdeOptions

    @property
    def decode_bytes(self) -> int | None:
        """Of how many bytes of frames `decode` makes records with the least work, where many more are there:
        None for all at once, as where records keep the bytes of their frames."""
        return None

    @abstractmethod
    def from_arrow(self, batch: pa.RecordBatch) -> Records:
        """Convert in: `batch` has the columns of `schema.batch_schema`."""

    @abstractmethod
    def encode(self, records: Records, bounds: Bounds) -> Frames:
        """Serialise. Cut at every bound, at `rows_per_frame` and at `max_frame_bytes`."""

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
        name); what is new has its value of `defaults`, or null; types are promoted as
        `projection.py` says. Raises SchemaError naming a column that cannot change so.
        """
        plan = Projection.rewriting(records.schema, self.schema, renames or {}, defaults or {})
        return self.project(plan, [records])

    def join(self, left: Records, right: Records) -> Records:
        """Record i of `left` with the columns of record i of `right` (joinWith): of this schema.

        Envelopes are those of `left`; a column of both comes from `right`. An index record stays
        without a row. Raises DataError where there are not as many of both, SchemaError naming a
        column that neither has.
        """
        if len(left) != len(right):
            raise DataError(f"{len(left)} records cannot be joined with {len(right)}, one to one")
        plan = Projection.joining(left.schema, right.schema, self.schema)
        return self.project(plan, [left, right])

    def project(self, projection: Projection, sides: Sequence[Records]) -> Records:
        """What `rewrite` and `join` come to: one plan over one or two sides of equal length."""
        batches = [records.to_arrow() for records in sides]
        return self.from_arrow(through_arrow.project(self.schema, projection, batches))

    def update_metadata(self, records: Records, values: MetadataValues) -> Records:
        """The same records with other file ids, instant times or operations; what is None stays.

        Raises DataError for values that do not fit the records, or an operation that Hudi has not.
        """
        return self.from_arrow(through_arrow.update_metadata(records.to_arrow(), values))

    def index_records(
        self,
        keys: pa.StringArray,
        partition_paths: pa.StringArray,
        file_ids: pa.StringArray,
        instant_time: str = "",
    ) -> Records:
        """Records that only tell where keys are: RFC-84's index records, which have no row."""
        schema = self.schema.batch_schema
        return self.from_arrow(
            through_arrow.index_batch(schema, keys, partition_paths, file_ids, instant_time)
        )

    def copy(self, source: Frames, target: npt.NDArray[np.int32]) -> Frames:
        """The frames of `source`, byte for byte, for other targets: a hop that only routes anew.

        Nothing is decoded and no integrity trailer is looked at; `target` has shape (n,). Raises
        DecodeError for a frame that does not bear this strategy's mark.
        """
        if len(target) != len(source):
            raise ValueError(f"{len(target)} targets for {len(source)} frames")
        begun = pc.binary_slice(source.frame, 0, 1).fill_null(b"")
        foreign = pc.not_equal(begun, pa.scalar(type(self).mark))
        if pc.any(foreign).as_py():
            number = pc.index(foreign, True).as_py()
            name = repr(self).partition("(")[0]
            raise DecodeError(name, None, f"frame {number} bears another mark")
        return Frames(pa.array(target, pa.int32()), source.frame, source.rows)

    def sniff(self, frame: bytes) -> bool:
        """Whether `frame` bears this strategy's own mark (its first bytes); cheap, no decoding."""
        return frame[:1] == type(self).mark

    mark: ClassVar[bytes]
    """First byte of every frame of this strategy: proves on the wire which strategy was used."""


_OVERRIDDEN_BY = {
    "rewrite": "project",
    "join": "project",
    "update_metadata": "update_metadata",
}
"""The method by which a bound SerDe does a verb on its own representation."""


def verbs_through_arrow(bound: BoundSerde) -> frozenset[str]:
    """The verbs for which records of `bound` leave their representation, by what its class overrides."""
    return frozenset(
        verb
        for verb, method in _OVERRIDDEN_BY.items()
        if getattr(type(bound), method) is getattr(BoundSerde, method)
    )


@dataclass(frozen=True, slots=True)
class Fairness:
    """What a strategy gets for free or is denied; printed beside its figures."""

    schema_known: str
    """Which side knows the schema without it being sent."""
    copies: str
    """How often bytes are copied between Arrow and the frame, and back."""
    batching: str
    """What it amortises over a batch."""
    trust: str
    """What happens on damaged input, and what a hostile frame could do."""
    notes: str = ""


class Strategy(ABC):
    """A named way to represent and serialise records; found through entry points `serde_lab.strategies`."""

    name: ClassVar[str]
    executions: ClassVar[tuple[Execution, ...]]
    """The executions that it has; the first is its default."""
    default_rows_per_frame: ClassVar[int]

    @abstractmethod
    def bind(self, schema: RecordSchema, options: SerdeOptions) -> BoundSerde:
        """Bind. Raises SchemaError naming column and type, OptionError naming the option."""

    @abstractmethod
    def fairness(self) -> Fairness: ...

    def losses(self) -> Mapping[str, str]:
        """Declared losses: what is lost -> how it comes back. Empty by default."""
        return {}
