"""Holds the merge settings of a table: which code merges its rows, and which values mark rows as deletes.

`MergeRules` makes the combiner. This module also chooses one of several mergers and maps Hudi's class names
to the lab's. A row is marked as a delete by `_hoodie_is_deleted`, by a field and marker that the table
defines, or by the row kind that changelog writers store. Sources: HoodieRecordUtils, HoodieWriteConfig
(RECORD_MERGE_IMPL_CLASSES) and org.apache.hudi.common.table.read.DeleteContext.
"""

from __future__ import annotations

import uuid
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from serde_lab.errors import OptionError, SchemaError
from serde_lab.merging.combiner import (
    Combiner,
    MergerCombiner,
    PartialUpdate,
    PartialUpdateCombiner,
)
from serde_lab.merging.merger import (
    ANY,
    COMMIT_TIME_PAYLOAD,
    COMMIT_TIME_STRATEGY,
    CUSTOM_STRATEGY,
    EVENT_TIME_PAYLOAD,
    EVENT_TIME_STRATEGY,
    MODEL,
    PAYLOAD_CLASS,
    PAYLOAD_STRATEGY,
    CommitTimeMerger,
    ConvertingMerger,
    EventTimeMerger,
    OwnRecords,
    RecordMerger,
    named_class,
)
from serde_lab.merging.survivors import Deletes, MergeMode
from serde_lab.records.conversion import has_text, java_text
from serde_lab.records.schema import DELETE, IS_DELETED, OPERATION, UPDATE_BEFORE, RecordSchema

_KINDS = pa.array([DELETE, UPDATE_BEFORE])


class Columns(Protocol):
    """Rows whose columns are accessible by name: a batch, a table, or a strategy's records."""

    def column(self, name: str) -> pa.Array: ...  # or a pa.ChunkedArray

    def __len__(self) -> int: ...


@dataclass(frozen=True, slots=True)
class DeleteMarkers:
    """The field that the table defines, and the text in it that marks a delete; both "" if there is none."""

    field: str = ""
    marker: str = ""

    def __post_init__(self) -> None:
        if bool(self.field) != bool(self.marker):
            given, missing = ("field", "marker") if self.field else ("marker", "field")
            raise OptionError(
                f"hoodie.payload.delete.{given} is given without hoodie.payload.delete.{missing};"
                " a table needs both to recognise deletes"
            )

    def check(self, schema: pa.Schema) -> None:
        """Raises SchemaError if `_hoodie_is_deleted` is not boolean, or the table's field is missing or of a
        type whose values have no text here, or a different one in Apache Hudi.
        """
        if IS_DELETED in schema.names and not pa.types.is_boolean(schema.field(IS_DELETED).type):
            raise SchemaError(
                f"column {IS_DELETED!r} is of type {schema.field(IS_DELETED).type}, expected a boolean"
            )
        if self.field and self.field not in schema.names:
            raise SchemaError(
                f"hoodie.payload.delete.field is {self.field!r}, which is not a column of the data"
            )
        if self.field:
            self._check_text(schema.field(self.field).type)

    def _check_text(self, kind: pa.DataType) -> None:
        """Hudi's dates are numbers of days. Its decimals and bytes have the text of a Java object where it
        merges Avro records. Source: RecordContext#isCustomDeleteRecord.
        """
        what = f"hoodie.payload.delete.field is {self.field!r} of type {kind}, whose values have"
        if not has_text(kind):
            raise SchemaError(f"{what} no text")
        if pa.types.is_date(kind) or pa.types.is_decimal(kind) or pa.types.is_binary(kind):
            raise SchemaError(f"{what} another text in Apache Hudi: it would delete other rows")

    def used_in(self, names: Collection[str]) -> list[str]:
        """The columns among `names` that may mark a delete."""
        return [name for name in (IS_DELETED, self.field) if name and name in names]

    def marked(self, rows: Columns, names: Collection[str]) -> npt.NDArray[np.bool_] | None:
        """Which rows are marked, shape (n,); None if none is. `names` are the columns that `rows` has."""
        found: npt.NDArray[np.bool_] | None = None
        for mask in self._masks(rows, names):
            flat = pc.fill_null(mask, False)
            if pc.any(flat).as_py():
                marks = flat.to_numpy(**_COPY) if isinstance(flat, pa.Array) else flat.to_numpy()
                found = marks if found is None else found | marks
        return found

    def _masks(self, rows: Columns, names: Collection[str]) -> Sequence[pa.Array]:
        masks = []
        if IS_DELETED in names and pa.types.is_boolean(rows.column(IS_DELETED).type):
            masks.append(rows.column(IS_DELETED))
        if self.field and self.field in names:
            values = rows.column(self.field)
            self._check_text(values.type)
            whole = values.combine_chunks() if isinstance(values, pa.ChunkedArray) else values
            masks.append(pc.equal(java_text(whole), self.marker))
        if OPERATION in names:
            masks.append(pc.is_in(rows.column(OPERATION), value_set=_KINDS))
        return masks


_COPY = {"zero_copy_only": False}


def deletes_of(marked: npt.NDArray[np.bool_], ordering: Sequence[pa.Array]) -> Deletes:
    """Marked rows as deletes: by their ordering values if there are any, else by commit time.

    Hudi writes the int 0 for "no ordering value". So a row whose only ordering value is the int 0 deletes
    by commit time here too; the date 1970-01-01 is the int 0 to Hudi.
    """
    if not ordering:
        return Deletes(marked, marked.copy())
    always = np.zeros(len(marked), np.bool_)
    kind = ordering[0].type
    if len(ordering) == 1 and (pa.types.is_int32(kind) or pa.types.is_date32(kind)):
        zero = pa.scalar(0, pa.int32()).cast(kind)
        always = pc.fill_null(pc.equal(ordering[0], zero), False).to_numpy(**_COPY)
    return Deletes(marked, marked & always)


def null_among(ordering: Sequence[pa.Array]) -> npt.NDArray[np.bool_] | None:
    """Which rows have a null ordering value, shape (n,); None if none has."""
    masks = [values.is_null().to_numpy(**_COPY) for values in ordering if values.null_count]
    return np.logical_or.reduce(masks) if masks else None


IMPLEMENTATIONS = "hoodie.write.record.merge.custom.implementation.classes"

_MERGER = "serde_lab.merging.merger"
_AVRO_MERGER = f"{MODEL}.HoodieAvroRecordMerger"
_HUDI_MERGERS: Mapping[str, str] = {
    _AVRO_MERGER: "serde_lab.merging.payload_bridge:AvroRecordMerger",
    f"{MODEL}.OverwriteWithLatestMerger": f"{_MERGER}:CommitTimeMerger",
    "org.apache.hudi.OverwriteWithLatestSparkRecordMerger": f"{_MERGER}:CommitTimeMerger",
    f"{MODEL}.EventTimeAvroRecordMerger": f"{_MERGER}:EventTimeMerger",
    "org.apache.hudi.DefaultSparkRecordMerger": f"{_MERGER}:EventTimeMerger",
}
DEBEZIUM_UNAVAILABLE = "__debezium_unavailable_value"

_STRATEGIES: Mapping[MergeMode, str] = {
    MergeMode.COMMIT_TIME: COMMIT_TIME_STRATEGY,
    MergeMode.EVENT_TIME: EVENT_TIME_STRATEGY,
    MergeMode.CUSTOM: CUSTOM_STRATEGY,
}


@dataclass(frozen=True, slots=True)
class MergeRules:
    """How a table merges. "" and None mean that the table has no such setting.

    `strategy_id` is fixed for the table; implementations (`classes`) may differ from write to write.
    `payload_class` is the class whose rules the payload bridge applies. `records` are those that a merger may
    ask for by their type; None: there are none, and only a merger of any type fits.
    """

    mode: MergeMode = MergeMode.EVENT_TIME
    strategy_id: str = ""
    partial_update: PartialUpdate | None = None
    unavailable: str = ""
    markers: DeleteMarkers = field(default_factory=DeleteMarkers)
    payload_class: str = ""
    classes: tuple[str, ...] = ()
    records: OwnRecords | None = None

    @property
    def strategy(self) -> str:
        """The merge strategy's UUID: the table's own, else the mode's."""
        return self.strategy_id or _STRATEGIES[self.mode]

    def combiner(
        self,
        schema: RecordSchema,
        *,
        in_log: bool = False,
        partial: bool = False,
        on_records: bool = False,
    ) -> Combiner | None:
        """The combiner for rows of `schema`; None where choosing one of two rows is enough.

        `in_log`: the entries come from a log; `partial`: some of them lack columns. `on_records`: the caller
        has `records`; a combiner with a `serde` is to be given them, any other one Arrow batches. Raises
        OptionError if no implementation fits, or not these settings.
        """
        if partial and self.mode is not MergeMode.CUSTOM:
            return PartialUpdateCombiner(PartialUpdate.KEEP_VALUES)
        merger = self._merger()
        if merger is not None:
            self.check_payload()
            serde = None
            if self.records is not None and self.records.record_type in types_of(merger):
                serde = self.records.bind(schema)
                if not on_records:
                    merger, serde = ConvertingMerger(merger, serde), None
            return MergerCombiner(merger, schema, self.properties(schema), in_log, serde)
        if self.partial_update is None:
            return None
        return PartialUpdateCombiner(self.partial_update, self.unavailable)

    def check_merger(self) -> None:
        """Raises OptionError, naming the strategy, if no implementation fits."""
        self._merger()

    def check_payload(self) -> None:
        """Raises OptionError for a payload class that is missing, or whose methods would not all be called.

        It counts for inserts, too, which merge nothing: the class decides what is stored of a row.
        """
        if self.strategy != PAYLOAD_STRATEGY:
            return
        # imported here, because it brings fastavro
        from serde_lab.merging.payload_bridge import AvroRecordMerger, load_payload

        if isinstance(self._merger(), AvroRecordMerger):
            load_payload(self.payload_class or self._payload_of_mode())

    def _merger(self) -> RecordMerger | None:
        """The implementation that fits; None if its rule is just to choose one of two rows."""
        classes = self.classes
        if self.strategy == PAYLOAD_STRATEGY and not classes:
            classes = (_AVRO_MERGER,)
        if self.mode is not MergeMode.CUSTOM and not classes:
            return None
        record_type = ANY if self.records is None else self.records.record_type
        merger = choose_merger(classes, self.strategy, record_type, tuple(_STRATEGIES.values()))
        native = type(merger) in (CommitTimeMerger, EventTimeMerger)
        return None if native and self.mode is not MergeMode.CUSTOM else merger

    def properties(self, schema: RecordSchema) -> dict[str, str]:
        """The settings that a merger or payload gets besides the schema, under Hudi's names."""
        found = {
            "hoodie.record.merge.mode": str(self.mode),
            "hoodie.table.ordering.fields": ",".join(schema.ordering),
            PAYLOAD_CLASS: self.payload_class or self._payload_of_mode(),
        }
        if self.markers.field:
            found["hoodie.payload.delete.field"] = self.markers.field
            found["hoodie.payload.delete.marker"] = self.markers.marker
        return found

    @property
    def deletes_late(self) -> bool:
        """Whether a row that is marked as a delete deletes by commit time, as far as stored rows go: an older
        version of any ordering value, in a base file or a log.

        So do two of Hudi's payload classes; version 9 stores no such class. Within a batch ordering values
        decide. Source: PartialUpdateAvroPayload, by which a delete has the natural order.
        """
        return self.mode is MergeMode.CUSTOM and self.payload_class in (_PARTIAL, _NON_DEFAULTS)

    def _payload_of_mode(self) -> str:
        """The payload class with the same rules as the mode. Source: EightToNineUpgradeHandler."""
        by_event = self.mode is MergeMode.EVENT_TIME
        if self.partial_update is PartialUpdate.IGNORE_DEFAULTS:
            return _PARTIAL if by_event else _NON_DEFAULTS
        if self.partial_update is not None:
            raise OptionError(
                f"no payload class of Hudi merges by {self.partial_update}; such a table needs a merger"
                " other than HoodieAvroRecordMerger"
            )
        return EVENT_TIME_PAYLOAD if by_event else COMMIT_TIME_PAYLOAD


_PARTIAL = f"{MODEL}.PartialUpdateAvroPayload"
_NON_DEFAULTS = f"{MODEL}.OverwriteNonDefaultsWithLatestAvroPayload"


def load_merger(text: str) -> RecordMerger:
    """The merger at `package.module:Class`, or one of Hudi's by its Java name. Raises OptionError."""
    where = f"{IMPLEMENTATIONS} names {text!r}"
    kind: type[RecordMerger] = RecordMerger  # type: ignore[type-abstract]
    merger = named_class(_HUDI_MERGERS.get(text, text), kind, where, _HUDI_MERGERS)()
    try:
        uuid.UUID(merger.strategy_id)
    except (ValueError, AttributeError) as exc:
        raise OptionError(f"{text}: its strategy_id is not a UUID") from exc
    return merger


def types_of(merger: RecordMerger) -> tuple[str, ...]:
    """The record types that a merger declares, in capitals; a single text is one type."""
    found = merger.record_types
    return tuple(one.upper() for one in ([found] if isinstance(found, str) else found))


def choose_merger(
    classes: Sequence[str], strategy_id: str, record_type: str, also: Sequence[str] = ()
) -> RecordMerger:
    """The first of `classes` that fits record type and strategy id.

    `also`: other ids that a merger of PAYLOAD_STRATEGY fits as well. Raises OptionError, which lists what
    each class offers.
    """
    wanted = f"no merger fits the table's strategy {strategy_id} and records of type {record_type}"
    if not classes:
        raise OptionError(
            f"{wanted}: none is given",
            hint=f"{IMPLEMENTATIONS}, or --merger of table compact, names package.module:Class",
        )
    offers = []
    for text in classes:
        merger = load_merger(text)
        types = types_of(merger)
        fits = merger.strategy_id == strategy_id or (
            merger.strategy_id == PAYLOAD_STRATEGY and strategy_id in also
        )
        if fits and (ANY in types or record_type in types):
            return merger
        offers.append(f"{text} offers {merger.strategy_id} for {', '.join(types)}")
    raise OptionError(f"{wanted}: {'; '.join(offers)}")
