"""Tests a strategy against the laws of `interface.py`; a subclass of `Conformance` runs all of them.

    class TestJsonLines(Conformance):
        name = "json_lines"
        golden = Path(__file__).parent / "golden"

pytest finds the subclass by its name; each `test_…` method is a plain method, so that any other runner
can call it. Class attributes declare what a strategy does not promise: a declared limit narrows the data
that is drawn but skips no law. The kit needs hypothesis, which only tests need.

Environment: SERDE_LAB_EXAMPLES is the number of examples of the main law (default 500, others a
fifth of it); SERDE_LAB_EXPLORE=1 draws new examples each time; SERDE_LAB_UPDATE_GOLDEN=1 writes golden
frames if there are none, or if the newest differ from what the strategy writes now.
"""

from __future__ import annotations

import pickle
from dataclasses import replace
from functools import partial

import numpy as np
import pyarrow as pa
from hypothesis import strategies as st

from serde_lab.errors import OptionError, SchemaError
from serde_lab.records.plain_form import first_difference
from serde_lab.records.schema import ENVELOPE, RecordSchema
from serde_lab.serde.conformance import cases, values
from serde_lab.serde.conformance import subject as conformance_subject
from serde_lab.serde.conformance.damage import DamageLaws
from serde_lab.serde.conformance.subject import (
    Case,
    GoldenFolder,
    check_frames,
    for_all,
    raised,
    some,
)
from serde_lab.serde.conformance.verbs import VerbLaws
from serde_lab.serde.interface import Bounds, SerdeOptions


class Conformance(DamageLaws, VerbLaws):
    """The laws, for the strategy called `name`."""

    # law 1: decoded records equal those that were encoded

    def test_round_trip(self) -> None:
        """Law 1 for every kind of type and null pattern; fails unless the examples covered them all."""
        reached = cases.Reached()

        def law(drawn: tuple[Case, SerdeOptions]) -> None:
            reached.add(*drawn[0])
            self.round_trip(*drawn)

        directed = [(kind, p) for kind in sorted(self.kinds) for p in values.PATTERNS]
        share = -(-conformance_subject.EXAMPLES // (2 * len(directed)))
        for first in directed:
            case = self.drawn(first=first, min_rows=2)
            for_all(share, st.tuples(case, self.drawn_options()), law)
        for kind in cases.kinds_inside(self.kinds, self.max_depth):
            case = self.drawn(first=(kind, "some"), min_rows=1, inside=True)
            for_all(1, st.tuples(case, self.drawn_options()), law)
        for_all(
            -(-conformance_subject.EXAMPLES // 2),
            st.tuples(self.drawn(), self.drawn_options()),
            law,
        )
        if conformance_subject.EXAMPLES >= 500:
            missing = reached.missing(self.kinds, self.max_depth)
            assert not missing, f"the examples never reached {', '.join(missing)}"

    def test_awkward_values(self) -> None:
        """Law 1 for every awkward value of every kind, alone and nested."""
        case = self.awkward()
        for options in self.fixed_options():
            self.round_trip(case, options)

    def test_huge_values(self) -> None:
        """A value of a megabyte survives the round trip, in a frame larger than `max_frame_bytes`."""
        huge = 1 << 20
        t = pa.string() if "string" in self.kinds else pa.binary()
        value = "é" * huge if "string" in self.kinds else b"\xff" * huge
        envelope = ("k" * 70_000, "p", "", "", "I", False)
        small = ("k", "p", "", "", "I", False)
        case = cases.batch_of(
            pa.schema([pa.field("c", t)]), [[value, None, value[:7]]], [small, envelope, small]
        )
        for options in self.fixed_options():
            self.round_trip(case, replace(options, max_frame_bytes=4096))

    # law 2: equal batches, equal bytes

    def test_equal_batches_give_equal_bytes(self) -> None:
        """The frames of a batch do not depend on its layout in memory."""

        def law(drawn: tuple[Case, SerdeOptions]) -> None:
            (schema, batch), options = drawn
            bound = self.bind(schema, options)
            first = self.encode(bound, batch)
            for other in (batch, cases.copied(batch), cases.with_garbage_under_nulls(batch)):
                check_frames(self.encode(bound, other), first, f"{self.name} ({options})")

        self.check_each(law, some())

    def test_executions_give_equal_bytes(self) -> None:
        """All executions write the same bytes, and each reads those of the others."""
        executions = self.strategy().executions

        def law(drawn: tuple[Case, SerdeOptions]) -> None:
            (schema, batch), options = drawn
            each = [self.bind(schema, replace(options, execution=e)) for e in executions]
            first = self.encode(each[0], batch)
            for bound, execution in zip(each, executions, strict=True):
                check_frames(self.encode(bound, batch), first, f"{self.name} ({execution})")
                self.check_batch(bound.decode(first.frame).to_arrow(), batch, execution)

        self.check_each(law, some())

    # law 3: empty batches, travel, repr

    def test_empty_batches(self) -> None:
        """Zero rows, zero runs and zero frames work like any other number."""
        schema, batch = self.awkward()
        for options in self.fixed_options():
            frames = self.round_trip((schema, batch.slice(0, 0)), options)
            assert len(frames) == 0
            assert frames.frame.type == pa.binary()
            assert frames.target.type == frames.rows.type == pa.int32()
            bound = self.bind(schema, options)
            none = Bounds(np.array([], np.int32), np.array([0], np.int64))
            records = bound.from_arrow(batch.slice(0, 0))
            assert len(bound.encode(records, none)) == 0
            both = type(records).concatenate([records, bound.from_arrow(batch), records])
            self.check_batch(both.to_arrow(), batch, options)
            self.check_batch(records.take(np.array([], np.int64)).to_arrow(), batch[:0], options)

    def test_a_bound_serde_travels(self) -> None:
        """A bound SerDe that was pickled and unpickled writes the same bytes and reads them."""
        schema, batch = self.awkward()
        for options in self.fixed_options():
            bound = self.bind(schema, options)
            there = pickle.loads(pickle.dumps(bound))
            assert repr(there) == repr(bound)
            assert (there.schema, there.options) == (bound.schema, bound.options)
            frames = self.encode(there, batch)
            check_frames(frames, self.encode(bound, batch), f"{self.name} ({options})")
            self.check_batch(there.decode(frames.frame).to_arrow(), batch, options)

    def test_repr_shows_name_and_options(self) -> None:
        """The repr names the strategy and every option with its value."""
        schema, _ = cases.awkward_case(self.kinds, 0)
        options = SerdeOptions(rows_per_frame=17, max_frame_bytes=12345, integrity="crc32c")
        for execution in self.strategy().executions:
            for own in self.own_options:
                shown = repr(self.bind(schema, replace(options, execution=execution, own=own)))
                for part in (
                    self.name,
                    execution,
                    "17",
                    "12345",
                    "crc32c",
                    *map(str, own.values()),
                ):
                    assert part in shown, f"{shown} does not show {part}"

    # law 5: frames of older versions

    def test_golden_frames(self) -> None:
        """Frames of every older version decode; the newest equal those that are written today."""
        case = cases.golden_case(self.kinds, self.max_depth)
        folder = GoldenFolder(self.golden / self.name)
        for options in self.fixed_options():
            bound = self.bind(case[0], options)
            folder.offer(options, case[1], self.encode(bound, case[1]).frame)
        versions = folder.versions()
        assert versions, f"{folder.path} has no golden frames: run with SERDE_LAB_UPDATE_GOLDEN=1"
        seen = set()
        for golden in versions:
            schema = RecordSchema(
                pa.schema(list(golden.batch.schema)[len(ENVELOPE) :]),
                record_key=(golden.batch.schema.names[len(ENVELOPE)],),
            )
            bound = self.bind(schema, golden.options)
            self.check_batch(bound.decode(golden.frames).to_arrow(), golden.batch, golden.path)
            if golden.newest:
                seen.add(repr(golden.options))
                frames = self.encode(bound, golden.batch).frame
                assert frames.equals(golden.frames), (
                    f"{self.name} no longer writes the bytes of {golden.path}: if that is meant, "
                    "SERDE_LAB_UPDATE_GOLDEN=1 adds the new ones beside them"
                )
        for options in self.fixed_options():
            assert repr(options) in seen, f"{folder.path} has no golden frames for {options}"

    # framing

    def test_frames_are_cut(self) -> None:
        """Frames end at every bound, at `rows_per_frame` and at `max_frame_bytes`; each decodes alone."""
        runs = st.lists(st.integers(0, 4), max_size=5)

        def law(drawn: tuple[Case, SerdeOptions, list[int]]) -> None:
            (schema, batch), options, cut = drawn
            rows = len(batch)
            ends = np.minimum(np.cumsum([0, *cut, rows]), rows).astype(np.int64)
            bounds = Bounds(np.arange(7, 7 + len(ends) - 1, dtype=np.int32), ends)
            bound = self.bind(schema, options)
            frames = bound.encode(bound.from_arrow(batch), bounds)
            at = 0
            for target, frame, count in zip(
                frames.target.to_pylist(), frames.frame, frames.rows.to_pylist(), strict=True
            ):
                run = target - 7
                assert ends[run] <= at, f"{options}: a frame begins before its run"
                assert count >= 1
                assert at + count <= ends[run + 1], f"{options}: a frame crosses a bound"
                assert not options.rows_per_frame or count <= options.rows_per_frame
                size = len(frame.as_py())
                assert count == 1 or size <= options.max_frame_bytes, f"{options}: {size} bytes"
                alone = bound.decode(pa.array([frame.as_py()], pa.binary()))
                self.check_batch(alone.to_arrow(), batch.slice(at, count), options)
                at += count
            assert at == rows

        for_all(some(), st.tuples(self.drawn(), self.drawn_options(), runs), law)

    def test_frames_hold_as_many_rows_as_they_may(self) -> None:
        """`rows_per_frame` and `max_frame_bytes` bound the frames, and nothing cuts them smaller."""
        schema, batch = cases.awkward_case(self.kinds & {"bool", "int32", "int64", "string"}, 0)
        batch = pa.Table.from_batches([batch.slice(0, 4)] * 50).combine_chunks().to_batches()[0]
        own = self.own_options[0]
        for rows, expected in ((1, [1] * 200), (60, [60, 60, 60, 20]), (0, [200])):
            bound = self.bind(schema, SerdeOptions(rows_per_frame=rows, own=own))
            assert self.encode(bound, batch).rows.to_pylist() == expected
        whole = len(self.encode(bound, batch).frame[0].as_py())
        limit = max(whole // 4, 4096)
        bound = self.bind(schema, SerdeOptions(rows_per_frame=0, max_frame_bytes=limit, own=own))
        frames = self.encode(bound, batch)
        # because of a frame's own overhead there may be a few more frames than the quotient
        assert whole // limit <= len(frames) <= 4 * (whole // limit + 1)

    # the record API

    def test_records_are_taken_joined_and_read(self) -> None:
        """take, pieces, concatenate and column agree with Arrow, before and after the round trip."""

        def law(drawn: tuple[Case, SerdeOptions, list[int]]) -> None:
            (schema, batch), options, picks = drawn
            indices = np.array([p % len(batch) for p in picks if len(batch)], np.int64)
            bound = self.bind(schema, options)
            sent = bound.from_arrow(batch)
            expected = self.expected(batch)
            taken = cases.taken(batch, indices)
            for records in (sent, bound.decode(self.encode(bound, batch).frame)):
                assert records.schema == schema
                self.check_batch(records.take(indices).to_arrow(), taken, options)
                for rows, wanted in ((None, batch), (indices, taken)):
                    for most in (2, 1000):
                        pieces = list(records.pieces(most, rows))
                        assert max(map(len, pieces)) <= most
                        in_turn = cases.joined([piece.to_arrow() for piece in pieces])
                        self.check_batch(in_turn, wanted, options)
                both = type(records).concatenate([records.take(indices), records])
                assert len(both) == len(indices) + len(batch)
                self.check_batch(both.to_arrow(), cases.joined([taken, batch]), options)
                for name in batch.schema.names:
                    column = pa.record_batch([records.column(name)], names=[name])
                    wanted = expected.select([name])
                    difference = first_difference(column, wanted.cast(column.schema))
                    assert difference is None, f"{self.name} ({options}): {difference}"
                    assert column.schema.field(0).type == wanted.schema.field(0).type
                assert records.record_keys().equals(expected.column(0))
                again = bound.encode(both, Bounds.single(len(both))).frame
                whole = bound.decode(again).to_arrow()
                self.check_batch(whole, cases.joined([taken, batch]), options)

        for options in self.fixed_options():
            law((self.awkward(), options, [3, 0, 0, 11]))
        picks = st.lists(st.integers(0, 5), max_size=8)
        for_all(some(), st.tuples(self.drawn(), self.drawn_options(), picks), law)

    # refusals

    def test_unsupported_types_are_refused(self) -> None:
        """Types that the project or this strategy does not support raise; the error names column and type."""
        refused = dict(values.REFUSED)
        refused |= {kind: values.fixed_type(kind) for kind in values.KINDS - self.kinds}
        for what, t in refused.items():
            data = pa.schema([pa.field("id", pa.string()), pa.field("odd one", t)])
            schema = RecordSchema(data, record_key=("id",))
            error = str(raised(SchemaError, partial(self.bind, schema), f"{what}: {t}"))
            assert "odd one" in error, f"{what}: {error} does not name the column"
            named = [t, *values.types_inside(t)]
            assert any(str(n) in error for n in named), f"{what}: {error} names no type"

    def test_impossible_options_are_refused(self) -> None:
        """An option that is unknown or has an invalid value raises; the error names it."""
        schema, _ = cases.awkward_case(self.kinds, 0)
        impossible: dict[str, dict[str, object]] = {
            "execution": {"execution": "sideways"},
            "rows_per_frame": {"rows_per_frame": -1},
            "max_frame_bytes": {"max_frame_bytes": 0},
            "integrity": {"integrity": "md5"},
            "no_such_key": {"own": {"no_such_key": 1}},
        }
        for word, change in impossible.items():
            options = replace(SerdeOptions(), **change)  # type: ignore[arg-type]
            error = str(raised(OptionError, partial(self.bind, schema, options), f"{change}"))
            assert word in error, f"{error} does not name {word}"
            assert self.name in error, f"{error} does not name {self.name}"

    def test_fairness_is_stated(self) -> None:
        """The strategy states its fairness, and its name is the one it is registered under."""
        strategy = self.strategy()
        fairness = strategy.fairness()
        for part in (fairness.schema_known, fairness.copies, fairness.batching, fairness.trust):
            assert part.strip()
        assert strategy.name == self.name
        assert strategy.default_rows_per_frame >= 0
        assert strategy.executions
