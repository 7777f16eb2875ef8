"""The record merger: RFC-46's component that says what becomes of two versions of a record.

Owns the interface that users implement, and Hudi's own mergers of the two simple modes. Must not know
files or strategies, nor how a merger is chosen or whole batches are folded by it. Source: RFC-46
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
from serde_lab.records.ordering import not_older
from serde_lab.records.schema import RecordSchema, values_at

Mask = npt.NDArray[np.bool_]
Kind = TypeVar("Kind")

EVENT_TIME_STRATEGY = "eeb8d96f-b1e4-49fd-bbf8-28ac514178e5"
COMMIT_TIME_STRATEGY = "ce9acb64-bde0-424c-9b91-f6ebba25356d"
CUSTOM_STRATEGY = "1897ef5f-18bc-4557-939c-9d6a8afd1519"
PAYLOAD_STRATEGY = "00000000-0000-0000-0000-000000000000"

ANY = "*"
"""Among record types: whatever a record is."""
ARROW = "ARROW"
"""The record type of everything that reads tables: snapshots, compactions."""


@dataclass(frozen=True, slots=True)
class Merged:
    """What became of n pairs of records: `rows` has one a pair, in their order.

    `deleted`: pairs of which nothing stays (their rows say nothing). `older_stands`: pairs of which the
    older record stays just as it is.
    """

    rows: pa.RecordBatch
    deleted: Mask | None = None
    older_stands: Mask | None = None

    @classmethod
    def chosen(cls, older: pa.RecordBatch, newer: pa.RecordBatch, take_newer: Mask) -> Merged:
        """One of the two records of each pair."""
        rows = len(take_newer)
        at = np.where(take_newer, np.arange(rows) + rows, np.arange(rows))
        return cls(pa.concat_batches([older, newer]).take(pa.array(at)), None, ~take_newer)


class RecordMerger(ABC):
    """Merges two versions of each of many records. Stateless; made without arguments, in every worker.

    `merge` must be associative, f(a, f(b, c)) = f(f(a, b), c): where a batch or a log holds a key several
    times its versions are merged one after the other, in the order in which they came, before the outcome
    meets what is stored. Deletes are none of its business.
    """

    strategy_id: ClassVar[str]
    """The UUID of the semantics: a property of the table, shared by all implementations of them."""
    record_types: ClassVar[Sequence[str]] = (ANY,)
    """Strategies that it is for, in capitals (ARROW, INTERNAL_ROW, …); reading asks for ARROW."""
    phase: ClassVar[str] = "merge"
    """The phase that its time is booked on."""

    @abstractmethod
    def merge(
        self,
        older: pa.RecordBatch,
        newer: pa.RecordBatch,
        schema: RecordSchema,
        properties: Mapping[str, str],
    ) -> Merged:
        """Merge record i of `older` with record i of `newer`, which have equal keys and equal columns.

        The columns are those of `schema.data`, and while a table is read also others (meta columns, or
        fewer data columns if fewer are asked for), which must come out as they came in.
        """

    def pre_combine(
        self,
        older: pa.RecordBatch,
        newer: pa.RecordBatch,
        schema: RecordSchema,
        properties: Mapping[str, str],
    ) -> Merged:
        """Two records of one batch, before either meets what is stored: merged, too, unless overridden."""
        return self.merge(older, newer, schema, properties)

    def partial_merge(
        self,
        older: pa.RecordBatch,
        newer: pa.RecordBatch,
        given: Sequence[str],
        schema: RecordSchema,
        properties: Mapping[str, str],
    ) -> Merged:
        """Like `merge` where the newer records, of a partial log block, have only the columns `given`.

        Unless overridden the others are the older's: fill, then merge. What the older record has not
        been given either, where it is of such a block, is null in it.
        """
        columns = [
            newer.column(name) if name in given else older.column(name)
            for name in newer.schema.names
        ]
        whole = pa.RecordBatch.from_arrays(columns, schema=newer.schema)
        return self.merge(older, whole, schema, properties)


class CommitTimeMerger(RecordMerger):
    """The newer record, as COMMIT_TIME_ORDERING has it (org.apache.hudi's OverwriteWithLatestMerger)."""

    strategy_id = COMMIT_TIME_STRATEGY

    def merge(
        self,
        older: pa.RecordBatch,
        newer: pa.RecordBatch,
        schema: RecordSchema,
        properties: Mapping[str, str],
    ) -> Merged:
        """Source: org.apache.hudi.common.model.OverwriteWithLatestMerger."""
        return Merged(newer)


class EventTimeMerger(RecordMerger):
    """The record of the higher ordering value, ties to the newer (DefaultSparkRecordMerger)."""

    strategy_id = EVENT_TIME_STRATEGY

    def merge(
        self,
        older: pa.RecordBatch,
        newer: pa.RecordBatch,
        schema: RecordSchema,
        properties: Mapping[str, str],
    ) -> Merged:
        """Source: org.apache.hudi.DefaultSparkRecordMerger."""
        wins = not_older(
            [values_at(older, name) for name in schema.ordering],
            [values_at(newer, name) for name in schema.ordering],
        )
        return Merged.chosen(older, newer, wins)


def name_of(merger: RecordMerger) -> str:
    """`package.module:Class`."""
    return f"{type(merger).__module__}:{type(merger).__qualname__}"


def named_class(name: str, kind: type[Kind], where: str, known: Iterable[str]) -> type[Kind]:
    """The class at `name`, which derives from `kind`.

    `where` begins what is said otherwise; `known` are names that would have done as they are. Raises
    OptionError.
    """
    module_name, _, class_name = name.partition(":")
    if not class_name:
        raise OptionError(f"{where}, expected package.module:Class or one of {', '.join(known)}")
    try:
        found = getattr(importlib.import_module(module_name), class_name)
    except (ImportError, AttributeError) as exc:
        raise OptionError(f"{where}, which is not there: {exc}") from exc
    if not (isinstance(found, type) and issubclass(found, kind)):
        raise OptionError(f"{where}, which is no {kind.__name__}")
    return found
