"""Defines the record merger, RFC-46's component that merges two versions of a record.

`RecordMerger` is the interface that users implement. A merger of any record type is given Arrow batches, to
which records are converted first. One that declares the type of a write's strategy is given that strategy's
own records, which are not converted; where rows are Arrow's already, as in files, `ConvertingMerger` makes
records of them for it. Hudi's own mergers of the two simple modes are here too. `rules.py` chooses a merger,
and `combiner.py` applies it to many records. Source: RFC-46 (HoodieRecordMerger).
"""

from __future__ import annotations

import importlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Protocol, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from serde_lab.errors import OptionError, SchemaError
from serde_lab.merging.survivors import Mask, not_older
from serde_lab.records.conversion import java_text
from serde_lab.records.schema import (
    INSTANT_TIME,
    IS_INDEX_RECORD,
    PARTITION_PATH,
    RECORD_KEY,
    RecordSchema,
    column_of,
    values_at,
)

Kind = TypeVar("Kind")

EVENT_TIME_STRATEGY = "eeb8d96f-b1e4-49fd-bbf8-28ac514178e5"
COMMIT_TIME_STRATEGY = "ce9acb64-bde0-424c-9b91-f6ebba25356d"
CUSTOM_STRATEGY = "1897ef5f-18bc-4557-939c-9d6a8afd1519"
PAYLOAD_STRATEGY = "00000000-0000-0000-0000-000000000000"

MODEL = "org.apache.hudi.common.model"
EVENT_TIME_PAYLOAD = f"{MODEL}.DefaultHoodieRecordPayload"
COMMIT_TIME_PAYLOAD = f"{MODEL}.OverwriteWithLatestAvroPayload"
"""The payload classes whose rules are those of the two simple merge modes."""
PAYLOAD_CLASS = "hoodie.compaction.payload.class"
"""The property that names a table's payload class."""

ANY = "*"
"""The record type that means any."""
ARROW = "ARROW"
"""The record type of reads and compactions that name no strategy."""

Rows = Any
"""An Arrow batch, or `serde_lab.serde.interface.Records` of one strategy. Both have a length, `column(name)`
and `take(indices)`."""


class RecordSerde(Protocol):
    """What merging needs of a SerDe that is bound to the schema of the records."""

    schema: RecordSchema

    def from_arrow(self, batch: pa.RecordBatch) -> Rows:
        """Records of the batch, which has the columns of `schema.batch_schema`."""


class OwnRecords(Protocol):
    """The records of one strategy, for mergers that declare their type. Picklable."""

    @property
    def record_type(self) -> str:
        """The type that mergers declare: the strategy's name in capitals."""

    def bind(self, schema: RecordSchema) -> RecordSerde:
        """The strategy's SerDe for records of this schema."""


def together(parts: Sequence[Rows]) -> Rows:
    """All rows of `parts` (at least one), in order."""
    if len(parts) == 1:
        return parts[0]
    if isinstance(parts[0], pa.RecordBatch):
        return pa.concat_batches(parts)
    return type(parts[0]).concatenate(parts)


@dataclass(frozen=True, slots=True)
class Merged:
    """The result of merging n pairs of records: `rows` has one row per pair, in their order.

    `rows` are of the same kind as the merger was given. `deleted`: pairs that leave no record; their rows
    have no meaning. `older_kept`: pairs whose older record stays unchanged.
    """

    rows: Rows
    deleted: Mask | None = None
    older_kept: Mask | None = None

    @classmethod
    def chosen(cls, older: Rows, newer: Rows, take_newer: Mask) -> Merged:
        """Choose one of the two records of each pair; they stay as they are."""
        rows = len(take_newer)
        at = np.where(take_newer, np.arange(rows) + rows, np.arange(rows))
        return cls(together([older, newer]).take(at), None, ~take_newer)


@dataclass(frozen=True, slots=True)
class MergedTable:
    """The table whose records are merged: their schema, and its merge settings under Hudi's names.

    `serde`: the strategy's SerDe, bound to the schema of the records, for a merger that is given records and
    makes new ones (`BoundSerde.from_arrow` and its verbs); None for one that is given Arrow batches.
    """

    schema: RecordSchema
    properties: Mapping[str, str]
    serde: RecordSerde | None = None


class RecordMerger(ABC):
    """Merges two versions of each of many records. Stateless; created without arguments in every worker.

    `merge` must be associative, f(a, f(b, c)) = f(f(a, b), c). If a batch or a log holds a key several
    times, its versions are first merged in the order in which they were written; then the result is merged
    with the stored record. A merger is never given deletes.

    What it is given follows from `record_types`. With ANY, the default, it is Arrow batches. A merger that
    names the strategy of a write is given that strategy's `Records`, on their own representation, and
    returns such records; nothing is converted for it. What it reads of them counts as merging, not as SerDe.
    """

    strategy_id: ClassVar[str]
    """The UUID of the semantics. It is a property of the table; all implementations of them share it."""
    record_types: ClassVar[Sequence[str]] = (ANY,)
    """ANY, or the strategies whose records it takes, by name (ARROW, AVRO, INTERNAL_ROW, PICKLE, …). Reads
    and compactions have records of type ARROW unless they name a strategy. Of several mergers of one strategy
    id, the first one that supports the write's strategy is used, as RFC-46 says of engines."""
    phase: ClassVar[str] = "merge"
    """The phase to which its time is assigned."""

    @abstractmethod
    def merge(self, older: Rows, newer: Rows, table: MergedTable) -> Merged:
        """Merge record i of `older` with record i of `newer`, which have equal keys and equal columns.

        Batches have the columns of `table.schema.data`. While a table is read there may be meta columns too,
        or fewer data columns if a query selects fewer. Records have the schema of `table.serde`. The result
        must have as many rows, of the same kind, columns and keys, and masks of one boolean per pair;
        otherwise the write or read raises SchemaError, which names the merger.
        """

    def pre_combine(self, older: Rows, newer: Rows, table: MergedTable) -> Merged:
        """Merge two records of one batch, before the merge with stored ones; by default as `merge` does."""
        return self.merge(older, newer, table)

    def partial_merge(
        self,
        older: pa.RecordBatch,
        newer: pa.RecordBatch,
        given: Sequence[str],
        table: MergedTable,
    ) -> Merged:
        """Like `merge`, for newer records of a partial log block, which have only the columns `given`.

        By default the other columns are filled from the older record before the merge. A column that the
        older record, from such a block too, also lacks is null in it. A merger of records is given such rows
        as whole records, filled like this, unless it overrides this method.
        """
        columns = [
            newer.column(name) if name in given else older.column(name)
            for name in newer.schema.names
        ]
        whole = pa.RecordBatch.from_arrays(columns, schema=newer.schema)
        return self.merge(older, whole, table)


class CommitTimeMerger(RecordMerger):
    """Takes the newer record, as in COMMIT_TIME_ORDERING."""

    strategy_id = COMMIT_TIME_STRATEGY

    def merge(self, older: Rows, newer: Rows, table: MergedTable) -> Merged:
        """Source: org.apache.hudi.common.model.OverwriteWithLatestMerger."""
        return Merged(newer)


class EventTimeMerger(RecordMerger):
    """Takes the record with the higher ordering value; of equals, the newer."""

    strategy_id = EVENT_TIME_STRATEGY

    def merge(self, older: Rows, newer: Rows, table: MergedTable) -> Merged:
        """Source: org.apache.hudi.DefaultSparkRecordMerger."""
        wins = not_older(
            [values_at(older, name) for name in table.schema.ordering],
            [values_at(newer, name) for name in table.schema.ordering],
        )
        return Merged.chosen(older, newer, wins)


class ConvertedEventTimeMerger(EventTimeMerger):
    """The same rule as a merger of the user's would implement it: on Arrow batches, whatever the strategy.

    Where the rule of a table is event time, nothing calls `EventTimeMerger`: the pipeline compares ordering
    values and never puts pairs together. This class and the next show what a merger costs.
    """


class OwnRecordsEventTimeMerger(EventTimeMerger):
    """The same rule on the records of each of the lab's strategies, which are not converted."""

    record_types = (ARROW, "AVRO", "INTERNAL_ROW", "PICKLE", "PICKLE_COLUMNS")


def enveloped(
    stored: pa.RecordBatch, schema: pa.Schema, partition_path: str = ""
) -> pa.RecordBatch:
    """Stored rows with the columns of `schema`, a schema of records; their record key is a column already.

    `partition_path`: theirs, unless it is a column too. File id and operation are left empty.
    """
    rows = stored.num_rows
    filled = {PARTITION_PATH: partition_path, INSTANT_TIME: "U", IS_INDEX_RECORD: False}
    columns = [
        stored.column(name)
        if name in stored.schema.names
        else pa.repeat(filled.get(name, ""), rows)
        for name in schema.names
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def checked(merger: RecordMerger, newer: Rows, merged: Merged, key: Sequence[str] = ()) -> Merged:
    """`merged`, if it has the rows that were asked for. Raises SchemaError, naming the merger, otherwise.

    `key`: the fields of the record key, by which the rows of Arrow batches are recognised; a batch may lack
    them. Records have their keys beside their columns.
    """
    named = name_of(merger)
    if not isinstance(merged, Merged):
        raise SchemaError(f"{named} gave {type(merged).__name__}, expected Merged")
    rows = merged.rows
    if type(rows) is not type(newer):
        raise SchemaError(
            f"{named} was given {type(newer).__name__} and gave {type(rows).__name__}"
        )
    is_batch = isinstance(newer, pa.RecordBatch)
    wanted, given = (one.schema if is_batch else one.schema.data for one in (newer, rows))
    if len(rows) != len(newer) or given != wanted:
        of, gave = ("", " rows") if is_batch else ("records of ", "")
        raise SchemaError(
            f"{named} was given {len(newer)} pairs of {of}{', '.join(wanted.names)} and gave"
            f" {len(rows)}{gave} of {', '.join(given.names)}"
        )
    for what, mask in (("deleted", merged.deleted), ("older_kept", merged.older_kept)):
        _check_mask(named, what, mask, len(newer))
    if is_batch:
        for field in (RECORD_KEY, *key):
            if column_of(field) in newer.schema.names:
                asked, found = values_at(newer, field), values_at(rows, field)
                _check_keys(f"{named} was given {field}", asked, found, merged.deleted)
    else:
        asked, found = newer.record_keys(), rows.record_keys()
        _check_keys(f"{named} was given record key", asked, found, merged.deleted)
    return merged


def _check_mask(named: str, what: str, mask: object, pairs: int) -> None:
    # numbers would pass as positions where a mask is meant
    fits = isinstance(mask, np.ndarray) and mask.dtype == np.bool_ and mask.shape == (pairs,)
    if mask is not None and not fits:
        found = (
            f"{mask.dtype} of shape {mask.shape}" if isinstance(mask, np.ndarray) else type(mask)
        )
        raise SchemaError(
            f"{named} was given {pairs} pairs, and its {what} is {found}, expected a numpy array of one"
            " boolean for each"
        )


def _check_keys(given: str, asked: pa.Array, found: pa.Array, deleted: Mask | None) -> None:
    if asked.equals(found):
        return
    # as text, in which NaN equals NaN
    texts = [pc.fill_null(java_text(values), _NO_KEY) for values in (asked, found)]
    same = pc.equal(*texts).to_numpy(zero_copy_only=False)
    if deleted is not None:
        same = same | deleted
    if not same.all():
        row = int(np.argmin(same))
        raise SchemaError(f"{given} {asked[row].as_py()!r} and gave {found[row].as_py()!r}")


_NO_KEY = "\0null"
"""Stands for a null field of a key where keys are compared."""


class ConvertingMerger(RecordMerger):
    """A merger of a strategy's records, for rows that are Arrow batches: those of files and of logs.

    Rows are converted in, merged, and converted out. Columns that records do not have, which are the meta
    columns, come from the newer row, or from the older one if that is kept.
    """

    strategy_id = ""

    def __init__(self, merger: RecordMerger, serde: RecordSerde) -> None:
        self._merger, self._serde = merger, serde
        self.phase = merger.phase  # type: ignore[misc]

    def merge(self, older: Rows, newer: Rows, table: MergedTable) -> Merged:
        return self._converted(self._merger.merge, older, newer, table)

    def pre_combine(self, older: Rows, newer: Rows, table: MergedTable) -> Merged:
        return self._converted(self._merger.pre_combine, older, newer, table)

    def partial_merge(
        self, older: Rows, newer: Rows, given: Sequence[str], table: MergedTable
    ) -> Merged:
        """As the wrapped merger does if it has this method; else `merge` on rows that are filled first."""
        if type(self._merger).partial_merge is RecordMerger.partial_merge:
            return super().partial_merge(older, newer, given, table)
        return self._converted(
            lambda old, new, of: self._merger.partial_merge(old, new, given, of),
            *(older, newer, table),
        )

    def _converted(
        self,
        merge: Callable[[Rows, Rows, MergedTable], Merged],
        older: pa.RecordBatch,
        newer: pa.RecordBatch,
        table: MergedTable,
    ) -> Merged:
        schema = self._serde.schema.batch_schema
        before, after = (self._serde.from_arrow(enveloped(rows, schema)) for rows in (older, newer))
        merged = merge(before, after, replace(table, serde=self._serde))
        made = checked(self._merger, after, merged).rows.to_arrow()
        carried = newer
        if merged.older_kept is not None:
            carried = Merged.chosen(older, newer, ~merged.older_kept).rows
        data = self._serde.schema.data.names
        columns = [(made if name in data else carried).column(name) for name in newer.schema.names]
        rows = pa.RecordBatch.from_arrays(columns, schema=newer.schema)
        return Merged(rows, merged.deleted, merged.older_kept)


def name_of(merger: RecordMerger) -> str:
    """`package.module:Class`."""
    return f"{type(merger).__module__}:{type(merger).__qualname__}"


def named_class(name: str, kind: type[Kind], where: str, known: Iterable[str]) -> type[Kind]:
    """The class at `name`, `package.module:Class`, which must derive from `kind`.

    `where` is the beginning of an error message; `known` are short names that the message lists. Raises
    OptionError.
    """
    module_name, _, class_name = name.partition(":")
    if not class_name:
        raise OptionError(f"{where}, expected package.module:Class or one of {', '.join(known)}")
    try:
        found = getattr(importlib.import_module(module_name), class_name)
    except (ImportError, AttributeError) as exc:
        raise OptionError(f"{where}, which cannot be loaded: {exc}") from exc
    if not (isinstance(found, type) and issubclass(found, kind)):
        raise OptionError(f"{where}, which is not a {kind.__name__}")
    return found
