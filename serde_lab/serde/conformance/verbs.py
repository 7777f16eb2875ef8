"""Tests law 6: every verb of the record API gives what the same change of an Arrow batch gives.

Expected values are columns of the batch, casts by Arrow, or values written by hand (`verb_cases.py`); they
never come from code that strategies use. For a verb that a strategy runs on its own representation, the
tests also check that nothing is converted out or in.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from unittest import mock

import numpy as np
import pyarrow as pa
from hypothesis import strategies as st

from serde_lab.errors import DataError, DecodeError, SchemaError
from serde_lab.merging.rules import DeleteMarkers
from serde_lab.records.plain_form import first_difference
from serde_lab.records.schema import ENVELOPE, IS_INDEX_RECORD, RecordSchema
from serde_lab.serde.conformance import cases, verb_cases
from serde_lab.serde.conformance import subject as conformance_subject
from serde_lab.serde.conformance.subject import Case, Subject, check_frames, for_all, raised
from serde_lab.serde.conformance.verb_cases import Rewriting
from serde_lab.serde.interface import (
    Bounds,
    BoundSerde,
    Frames,
    Records,
    SerdeOptions,
    verbs_through_arrow,
)
from serde_lab.serde.record_verbs import Locations, MetadataValues


class VerbLaws(Subject):
    """The laws about the record API."""

    # verbs that read

    def test_records_answer_what_they_are_asked(self) -> None:
        """Columns, keys, partitions, locations, deletes and records to skip match the envelope."""

        def law(drawn: tuple[Case, SerdeOptions]) -> None:
            (schema, batch), options = drawn
            expected = self.expected(batch)
            names = [batch.schema.names[-1], IS_INDEX_RECORD, batch.schema.names[0]]
            for records in self._both_ways(schema, batch, options):
                for name, found in zip(names, records.column_values(names), strict=True):
                    self._check_column(found, expected.column(name), options)
                assert records.record_keys().equals(batch.column(0))
                assert records.partition_paths().equals(batch.column(1))
                current, new = records.current_locations(), records.new_locations("20990101")
                stored, put = verb_cases.places(batch)
                assert [*zip(*_lists(current), strict=True)] == stored
                assert [*zip(*_lists(new), strict=True)] == put
                assert records.should_ignore().equals(batch.column(IS_INDEX_RECORD))
                assert records.is_delete().to_pylist() == cases.deleting(batch, {})

        self.check_each(law, _few())

    def test_rows_that_delete_are_known(self) -> None:
        """Deletes are found by `_hoodie_is_deleted` and by the user's column and marker, not by null."""
        schema, batch = cases.deletes(self.kinds)
        ordered = schema.ordering
        for options in self.fixed_options():
            for records in self._both_ways(schema, batch, options):
                for rule, marked in cases.delete_rules(schema):
                    wanted = cases.deleting(batch, marked)
                    assert records.is_delete(rule).to_pylist() == wanted, f"{options}: {rule}"
                missing = partial(records.is_delete, DeleteMarkers("no such column", "x"))
                assert "no such column" in str(raised(SchemaError, missing, "a delete field"))
                found = records.ordering_values()
                assert len(found) == len(ordered)
                for name, values in zip(ordered, found, strict=True):
                    self._check_column(values, self.expected(batch).column(name), options)

    # metadata

    def test_metadata_is_updated(self) -> None:
        """File id, instant time and operation are set, for all records or one each; all else stays."""
        schema, batch = self._small()
        for options in self.fixed_options():
            for rows in (len(batch), 1, 0):
                # few rows try only the first, which sets nothing, and the last, which sets everything
                several = verb_cases.metadata(rows)[:: 1 if rows > 1 else 5]
                for number, values in enumerate(several):
                    # each uses another of the three records that _both_ways returns
                    self._updated((schema, batch[:rows]), options, values, number % 3)

        def law(drawn: tuple[Case, SerdeOptions, int]) -> None:
            case, options, number = drawn
            found = verb_cases.metadata(len(case[1]))
            self._updated(case, options, found[number % len(found)], number % 3)

        data = st.tuples(self.drawn(), self.drawn_options(), st.integers(0, 99))
        for_all(_few(), data, law)

    def _updated(self, case: Case, options: SerdeOptions, values: MetadataValues, way: int) -> None:
        schema, batch = case
        expected = batch
        for name, column in values.arrays(len(batch)).items():
            place = ENVELOPE.get_field_index(name)
            expected = expected.set_column(place, ENVELOPE.field(place), column)
        bound = self.bind(schema, options)
        records = self._both_ways(schema, batch, options)[way]
        found = bound.update_metadata(records, values)
        self._check_records(bound, found, expected, f"{values}, {options}")
        # records are never changed in place
        self.check_batch(records.to_arrow(), batch, options)

    def test_impossible_metadata_is_refused(self) -> None:
        """Null values, a wrong number of values, and operations that Hudi does not have raise DataError."""
        schema, batch = self.awkward()
        bound = self.bind(schema)
        records = bound.from_arrow(batch)
        nulls = pa.nulls(len(batch), pa.string())
        for word, values in (
            ("'X'", MetadataValues(operation="X")),
            ("null", MetadataValues(file_id=nulls)),
            (str(len(batch)), MetadataValues(instant_time=pa.array(["1"]))),
        ):
            act = partial(bound.update_metadata, records, values)
            assert word in str(raised(DataError, act, f"{values}"))

    def test_index_records_have_no_row(self) -> None:
        """Index records keep their locations in frames, have no row, and are skipped by a write."""
        schema, _ = self.awkward()
        keys = pa.array(["k1", "é😀", ""])
        paths, files = pa.array(["", "p", "p"]), pa.array(["f1", "f2", "f3"])
        for options in self.fixed_options():
            bound = self.bind(schema, options)
            for n in (0, 1, 3):
                made = bound.index_records(keys[:n], paths[:n], files[:n], "2024")
                frames = bound.encode(made, Bounds.single(n)).frame
                found = bound.decode(frames)
                assert found.should_ignore().to_pylist() == [True] * n
                assert found.is_delete().to_pylist() == [False] * n
                assert found.record_keys().equals(keys[:n])
                assert found.partition_paths().equals(paths[:n])
                places = found.current_locations()
                assert places.file_id.equals(files[:n])
                assert places.instant_time.to_pylist() == ["2024"] * n
                for name in schema.data.names:
                    assert found.column(name).null_count == n

    # other schemas

    def test_records_are_rewritten(self) -> None:
        """Columns are left out, reordered, renamed, or new, with and without a default."""

        def law(drawn: tuple[Case, SerdeOptions, list[int]]) -> None:
            case, options, picks = drawn
            self._rewritten(verb_cases.rearranged(case, self.kinds, picks), options)

        for options in self.fixed_options():
            for rewriting in verb_cases.exchanged_names(self.kinds):
                self._rewritten(rewriting, options)
            law((self.awkward(), options, [3, 200, 8, 101, 5, 4, 210, 1]))
            schema, batch = self._small()
            for rows in (1, 0):
                law(((schema, batch[:rows]), options, [3, 200, 101, 2, 210, 1]))
        picks = st.lists(st.integers(0, 255), max_size=6)
        for_all(_few(), st.tuples(self.drawn(), self.drawn_options(), picks), law)

    def test_types_are_promoted(self) -> None:
        """Every promotion works for every awkward value, alone and inside lists, maps and structs."""
        for options in self.fixed_options():
            for rewriting in verb_cases.promotions(self.kinds, self.max_depth):
                self._rewritten(rewriting, options)

    def test_nested_fields_are_rewritten(self) -> None:
        """Fields of structs, also inside lists and maps, are new, left out, reordered or renamed."""
        for rewriting in verb_cases.nested_changes(self.kinds, self.max_depth):
            for options in self.fixed_options():
                self._rewritten(rewriting, options)

    def _rewritten(self, rewriting: Rewriting, options: SerdeOptions) -> None:
        source, batch = rewriting.before
        target, expected = rewriting.after
        bound = self.bind(target, options)
        what = f"{options}: {target.data} from {source.data} by {rewriting.renames}"
        for records in self._both_ways(source, batch, options):
            with _on_its_own_representation("rewrite", bound, records):
                found = bound.rewrite(records, rewriting.renames, rewriting.defaults)
            assert found.schema == target, what
            self._check_records(bound, found, expected, what)
            self.check_batch(records.to_arrow(), batch, options)

    def test_impossible_rewriting_is_refused(self) -> None:
        """An impossible change raises before any value is read; the error names the column."""
        for source, target, renames, defaults, words in verb_cases.impossible(self.kinds):
            nothing = pa.record_batch([[]] * len(source.batch_schema), schema=source.batch_schema)
            records = self.bind(source).from_arrow(nothing)
            act = partial(self.bind(target).rewrite, records, renames, defaults)
            error = str(raised(SchemaError, act, f"{target.data} from {source.data}"))
            for word in words:
                assert word in error, f"{error} does not name {word}"

    def test_records_are_joined(self) -> None:
        """Joining two halves of the columns gives the whole; a column of both comes from the right."""

        def law(drawn: tuple[Case, SerdeOptions, list[int]]) -> None:
            (schema, batch), options, picks = drawn
            left_names, right_names = verb_cases.halves(schema.data.names, picks)
            left = cases.selected((schema, batch), left_names)
            right = cases.selected((schema, batch), right_names)
            self._joined(schema, left, right, batch, options)

        for options in self.fixed_options():
            law((self.awkward(), options, [1, 0, 1, 2]))
            schema, batch = self._small()
            for rows in (1, 0):
                law(((schema, batch[:rows]), options, [1, 0, 1, 2]))
            self._joined(*verb_cases.halves_without_rows(self.kinds), options)
        picks = st.lists(st.integers(0, 2), min_size=1, max_size=4)
        for_all(_few(), st.tuples(self.drawn(), self.drawn_options(), picks), law)
        bound = self.bind(schema)
        records = bound.from_arrow(batch)
        act = partial(bound.join, records, records.take(np.arange(1)))
        assert str(len(batch)) in str(raised(DataError, act, "records of two lengths"))

    def _joined(
        self,
        target: RecordSchema,
        left: Case,
        right: Case,
        expected: pa.RecordBatch,
        options: SerdeOptions,
    ) -> None:
        bound = self.bind(target, options)
        lefts = self._both_ways(*left, options)
        rights = self._both_ways(*right, options)
        for one, other in zip(lefts, rights, strict=True):
            with _on_its_own_representation("join", bound, one, other):
                found = bound.join(one, other)
            self._check_records(bound, found, expected, f"join, {options}")

    def test_verbs_stay_on_the_representation(self) -> None:
        """Verbs that a strategy runs on its own representation convert nothing out or in."""
        schema, batch = self._small()
        for options in self.fixed_options():
            bound = self.bind(schema, options)
            for records in self._both_ways(schema, batch, options):
                with _on_its_own_representation("update_metadata", bound, records):
                    bound.update_metadata(records, MetadataValues(file_id="f", operation="D"))
                with _on_its_own_representation("rewrite", bound, records):
                    bound.rewrite(records)
                with _on_its_own_representation("join", bound, records, records):
                    bound.join(records, records)

    # hops that only route

    def test_frames_are_copied(self) -> None:
        """Frames go byte for byte to other targets, without decoding; frames of another mark raise."""
        schema, batch = self._small()
        for options in self.fixed_options():
            bound = self.bind(schema, options)
            for rows in (len(batch), 1, 0):
                source = self.encode(bound, batch[:rows])
                target = np.arange(5, 5 + len(source), dtype=np.int32)
                with mock.patch.object(type(bound), "decode", _refuse("decode")):
                    found = bound.copy(source, target)
                right = Frames(pa.array(target, pa.int32()), source.frame, source.rows)
                check_frames(found, right, f"copy, {options}")
                self.check_batch(bound.decode(found.frame).to_arrow(), batch[:rows], options)
            foreign = pa.array([b"\0" + f[1:] for f in self.encode(bound, batch).frame.to_pylist()])
            source = replace(self.encode(bound, batch), frame=foreign)
            act = partial(bound.copy, source, np.zeros(len(source), np.int32))
            assert self.name in str(raised(DecodeError, act, "frames of another mark"))

    # shared steps

    def _small(self) -> Case:
        """A batch of a few rows with every kind of leaf, one of them an index record."""
        return cases.golden_case(self.kinds, self.max_depth)

    def _both_ways(
        self, schema: RecordSchema, batch: pa.RecordBatch, options: SerdeOptions
    ) -> list[Records]:
        """The records of a batch: converted in, decoded from frames, and taken from a larger batch."""
        bound = self.bind(schema, options)
        sent = bound.from_arrow(batch)
        crossed = bound.decode(bound.encode(sent, Bounds.single(len(batch))).frame)
        twice = type(sent).concatenate([crossed, crossed])
        return [sent, crossed, twice.take(np.arange(len(batch), 2 * len(batch)))]

    def _check_records(
        self, bound: BoundSerde, found: Records, expected: pa.RecordBatch, what: str
    ) -> None:
        """Fail unless these are the expected records, in memory and as encoded frames."""
        assert len(found) == len(expected), what
        self.check_batch(found.to_arrow(), expected, what)
        frames = bound.encode(found, Bounds.single(len(found)))
        check_frames(frames, self.encode(bound, self.expected(expected)), what)

    def _check_column(self, found: pa.Array, expected: pa.Array, what: object) -> None:
        assert found.type == expected.type, f"{self.name} ({what}): {found.type}"
        batches = [pa.record_batch([array], names=["column"]) for array in (found, expected)]
        difference = first_difference(*batches)
        assert difference is None, f"{self.name} ({what}): {difference}"


def _few() -> int:
    """The number of examples for these laws; it is low, as each tries every drawn batch in three ways."""
    return max(5, conformance_subject.EXAMPLES // 25)


def _lists(places: Locations) -> tuple[list[str | None], list[str | None]]:
    return places.file_id.to_pylist(), places.instant_time.to_pylist()


@contextmanager
def _on_its_own_representation(verb: str, bound: BoundSerde, *records: Records) -> Iterator[None]:
    """Fail if the block converts records, unless this verb of the strategy goes through Arrow."""
    if verb in verbs_through_arrow(bound):
        yield
        return
    with ExitStack() as patches:
        patches.enter_context(mock.patch.object(type(bound), "from_arrow", _refuse("from_arrow")))
        for kind in {type(r) for r in records}:
            patches.enter_context(mock.patch.object(kind, "to_arrow", _refuse("to_arrow")))
        yield


def _refuse(name: str) -> Callable[..., object]:
    def refused(*_: object, **__: object) -> object:
        raise AssertionError(f"{name} was called by a verb that says it does without")

    return refused
