"""Plug-ins that are wrong in one verb of the record API each; all else is `arrow`'s own and right.

`tests/serde/test_conformance.py` holds each of them to the law that must see it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from serde_lab.errors import DataError, SchemaError
from serde_lab.merging.rules import DeleteMarkers
from serde_lab.records.schema import FILE_ID, OPERATION, RECORD_KEY
from serde_lab.serde.arrow.records import ArrowRecords, BoundArrow
from serde_lab.serde.interface import Frames, Records
from serde_lab.serde.projection.plan import Projection
from serde_lab.serde.record_verbs import Locations, MetadataValues, project_batches


class Answers(ArrowRecords):
    """Records that lie when they are asked; each plug-in overrides one answer."""


class _Answering(BoundArrow):
    records: type[ArrowRecords] = Answers

    def from_arrow(self, batch: pa.RecordBatch) -> ArrowRecords:
        found = super().from_arrow(batch)
        return self.records(found.schema, found.batch, found.constants)


class _LocatedAtOnce(Answers):
    def current_locations(self) -> Locations:
        return Locations(self.column("_hoodie_instant_time"), self.column(FILE_ID))


class SaysNewFileGroupsExist(_Answering):
    records = _LocatedAtOnce


class _DeletesByOperation(Answers):
    def is_delete(self, markers: DeleteMarkers = DeleteMarkers()) -> pa.BooleanArray:  # noqa: B008
        return pc.is_in(self.column(OPERATION), value_set=pa.array(["D", "-U"]))


class LooksAtOperationsOnly(_Answering):
    records = _DeletesByOperation


class ChangesKeysWithMetadata(BoundArrow):
    def update_metadata(self, records: Records, values: MetadataValues) -> ArrowRecords:
        found = super().update_metadata(records, values)
        place = found.batch.schema.get_field_index(RECORD_KEY)
        field = found.batch.schema.field(place)
        keys = pc.binary_join_element_wise(found.column(RECORD_KEY), "x", "")
        return replace(found, batch=found.batch.set_column(place, field, keys))


class SetsAnyOperation(BoundArrow):
    """Passes over what cannot be set."""

    def update_metadata(self, records: Records, values: MetadataValues) -> ArrowRecords:
        try:
            return super().update_metadata(records, values)
        except DataError:
            assert isinstance(records, ArrowRecords)
            return records


class PutsIndexRecordsElsewhere(BoundArrow):
    def index_records(self, *given: Any) -> Records:
        found = super().index_records(*given)
        return self.update_metadata(found, MetadataValues(file_id="somewhere else"))


class ConfusesColumns(BoundArrow):
    """Takes the first column of a type for all of that type."""

    def project(self, projection: Projection, sides: Sequence[Records]) -> ArrowRecords:
        columns = tuple(
            column if column.source is None or len(sides) > 1
            else replace(column, source=(0, _first_of(sides[0], column.source[1])))
            for column in projection.columns
        )  # fmt: skip
        return super().project(Projection(columns), sides)


def _first_of(records: Records, number: int) -> int:
    types = records.schema.data.types
    return types.index(types[number])


class PromotesByText(BoundArrow):
    """Integers become floats by way of 24 bits."""

    def project(self, projection: Projection, sides: Sequence[Records]) -> ArrowRecords:
        found = super().project(projection, sides)
        batch = found.batch
        for i, field in enumerate(batch.schema):
            if field.type == pa.float64():
                rounded = batch.column(i).cast(pa.float32(), safe=False).cast(pa.float64())
                batch = batch.set_column(i, field, rounded)
        return replace(found, batch=batch)


class ForgetsNestedRenames(BoundArrow):
    def rewrite(
        self,
        records: Records,
        renames: Mapping[str, str] | None = None,
        defaults: Mapping[str, object] | None = None,
    ) -> Records:
        flat = {new: old for new, old in (renames or {}).items() if "." not in new}
        return super().rewrite(records, flat, defaults)


class NarrowsTypes(BoundArrow):
    """What it cannot rewrite it takes for nothing."""

    def rewrite(self, records: Records, *given: Any) -> Records:
        try:
            return super().rewrite(records, *given)
        except SchemaError:
            batch = pa.record_batch(
                [pa.array([], f.type) for f in self.schema.batch_schema],
                schema=self.schema.batch_schema,
            )
            return self.from_arrow(batch)


class JoinsTheLeftOnly(BoundArrow):
    """What both have comes from the left."""

    def join(self, left: Records, right: Records) -> Records:
        found = super().join(left, right)
        shared = [n for n in self.schema.data.names if n in left.schema.data.names]
        assert isinstance(found, ArrowRecords)
        assert isinstance(left, ArrowRecords)
        batch = found.batch
        for name in shared:
            field = batch.schema.field(name)
            place = batch.schema.get_field_index(name)
            if left.batch.column(name).type == field.type:
                batch = batch.set_column(place, field, left.batch.column(name))
        return replace(found, batch=batch)


class GoesRoundThroughArrow(BoundArrow):
    """Says that it projects by itself, and does not."""

    def project(self, projection: Projection, sides: Sequence[Records]) -> Any:
        batches = [records.to_arrow() for records in sides]
        return self.from_arrow(project_batches(self.schema, projection, batches))


class CopiesByDecoding(BoundArrow):
    def copy(self, source: Frames, target: npt.NDArray[np.int32]) -> Frames:
        self.decode(source.frame)
        return super().copy(source, target)


class CopiesToTheOldTarget(BoundArrow):
    def copy(self, source: Frames, target: npt.NDArray[np.int32]) -> Frames:
        return replace(super().copy(source, target), target=source.target)


VERB_SABOTAGE: Mapping[type[BoundArrow], str] = {
    SaysNewFileGroupsExist: "records_answer_what_they_are_asked",
    LooksAtOperationsOnly: "rows_that_delete_are_known",
    ChangesKeysWithMetadata: "metadata_is_updated",
    SetsAnyOperation: "impossible_metadata_is_refused",
    PutsIndexRecordsElsewhere: "index_records_have_no_row",
    ConfusesColumns: "records_are_rewritten",
    PromotesByText: "types_are_promoted",
    ForgetsNestedRenames: "nested_fields_are_rewritten",
    NarrowsTypes: "impossible_rewriting_is_refused",
    JoinsTheLeftOnly: "records_are_joined",
    GoesRoundThroughArrow: "verbs_stay_on_the_representation",
    CopiesByDecoding: "frames_are_copied",
    CopiesToTheOldTarget: "frames_are_copied",
}
"""Each plug-in, and the law that must see it."""
