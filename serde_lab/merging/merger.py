"""Defines the record merger, RFC-46's component that merges two versions of a record.

`RecordMerger` is the interface that users implement. Hudi's own mergers of the two simple modes are here
too. `rules.py` chooses a merger, and `combiner.py` applies it to whole batches. Source: RFC-46
(HoodieRecordMerger).
"""

from __future__ import annotations

import importlib
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from serde_lab.errors import OptionError
from serde_lab.merging.survivors import not_older
from serde_lab.records.schema import RecordSchema, values_at

Mask = npt.NDArray[np.bool_]
Kind = TypeVar("Kind")

EVENT_TIME_STRATEGY = "eeb8d96f-b1e4-49fd-bbf8-28ac514178e5"
COMMIT_TIME_STRATEGY = "ce9acb64-bde0-424c-9b91-f6ebba25356d"
CUSTOM_STRATEGY = "1897ef5f-18bc-4557-939c-9d6a8afd1519"
PAYLOAD_STRATEGY = "00000000-0000-0000-0000-000000000000"

MODEL = "org.apache.hudi.common.model"
EVENT_TIME_PAYLOAD = f"{MODEL}.DefaultHoodieRecordPayload"
COMMIT_TIME_PAYLOAD = f"{MODEL}.OverwriteWithLatestAvroPayload"
"""The payload classes whose rules are those of the two simple merge modes."""

ANY = "*"
"""The record type that means any."""
ARROW = "ARROW"
"""The record type of everything that reads tables: snapshots and compactions."""


@dataclass(frozen=True, slots=True)
class Merged:
    """The result of merging n pairs of records: `rows` has one row per pair, in their order.

    `deleted`: pairs that leave no record; their rows have no meaning. `older_kept`: pairs whose older
    record stays unchanged.
    """

    rows: pa.RecordBatch
    deleted: Mask | None = None
    older_kept: Mask | None = None

    @classmethod
    def chosen(cls, older: pa.RecordBatch, newer: pa.RecordBatch, take_newer: Mask) -> Merged:
        """Choose one of the two records of each pair."""
        rows = len(take_newer)
        at = np.where(take_newer, np.arange(rows) + rows, np.arange(rows))
        return cls(pa.concat_batches([older, newer]).take(pa.array(at)), None, ~take_newer)


@dataclass(frozen=True, slots=True)
class MergedTable:
    """The table whose records are merged: their schema, and its merge settings under Hudi's names."""

    schema: RecordSchema
    properties: Mapping[str, str]


class RecordMerger(ABC):
    """Merges two versions of each of many records. Stateless; created without arguments in every worker.

    `merge` must be associative, f(a, f(b, c)) = f(f(a, b), c). If a batch or a log holds a key several
    times, its versions are first merged in the order in which they were written; then the result is merged
    with the stored record. A merger is never given deletes.
    """

    strategy_id: ClassVar[str]
    """The UUID of the semantics. It is a property of the table; all implementations of them share it."""
    record_types: ClassVar[Sequence[str]] = (ANY,)
    """The strategies that it supports, in capitals (ARROW, INTERNAL_ROW, …); readers need ARROW."""
    phase: ClassVar[str] = "merge"
    """The phase to which its time is assigned."""

    @abstractmethod
    def merge(self, older: pa.RecordBatch, newer: pa.RecordBatch, table: MergedTable) -> Merged:
        """Merge record i of `older` with record i of `newer`, which have equal keys and equal columns.

        The columns are those of `table.schema.data`. While a table is read there may be meta columns too, or
        fewer data columns if a query selects fewer. The result must have the same columns.
        """

    def pre_combine(
        self, older: pa.RecordBatch, newer: pa.RecordBatch, table: MergedTable
    ) -> Merged:
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
        older record, from such a block too, also lacks is null in it.
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

    def merge(self, older: pa.RecordBatch, newer: pa.RecordBatch, table: MergedTable) -> Merged:
        """Source: org.apache.hudi.common.model.OverwriteWithLatestMerger."""
        return Merged(newer)


class EventTimeMerger(RecordMerger):
    """Takes the record with the higher ordering value; of equals, the newer."""

    strategy_id = EVENT_TIME_STRATEGY

    def merge(self, older: pa.RecordBatch, newer: pa.RecordBatch, table: MergedTable) -> Merged:
        """Source: org.apache.hudi.DefaultSparkRecordMerger."""
        wins = not_older(
            [values_at(older, name) for name in table.schema.ordering],
            [values_at(newer, name) for name in table.schema.ordering],
        )
        return Merged.chosen(older, newer, wins)


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
