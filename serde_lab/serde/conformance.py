"""The laws of `interface.py` as tests: subclass `Conformance`, and a strategy is judged by all of them.

    class TestJsonLines(Conformance):
        name = "json_lines"
        golden = Path(__file__).parent / "golden"

pytest finds the subclass by its name; each `test_…` method is a plain method, so that any other runner
can call it. What a strategy does not promise is declared in the class attributes: a declared limit
narrows the data that is drawn, it skips no law. Needs hypothesis, which only tests need.

Environment: SERDE_LAB_EXAMPLES is the number of examples of the main law (default 500, others a
fifth of it); SERDE_LAB_EXPLORE=1 draws new examples each time; SERDE_LAB_UPDATE_GOLDEN=1 writes golden
frames where there are none, or where the newest differ from what the strategy writes now.
Owns the laws; must not know any strategy.
"""

from __future__ import annotations

import os
import pickle
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import ClassVar, TypeVar

import numpy as np
import pyarrow as pa
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from serde_lab.errors import DecodeError, LabError, OptionError, SchemaError, SetupError
from serde_lab.records.schema import ENVELOPE, RecordSchema
from serde_lab.records.types import plain_schema
from serde_lab.serde import conformance_cases as cases
from serde_lab.serde import registry
from serde_lab.serde.allocation import Allocation
from serde_lab.serde.equality import first_difference
from serde_lab.serde.golden import GoldenFolder
from serde_lab.serde.interface import Bounds, BoundSerde, Frames, SerdeOptions, Strategy

EXAMPLES = int(os.environ.get("SERDE_LAB_EXAMPLES", "500"))
PHASES: Sequence[Phase] = tuple(Phase)

Case = tuple[RecordSchema, pa.RecordBatch]
T = TypeVar("T")
E = TypeVar("E", bound=LabError)


def for_all(examples: int, data: st.SearchStrategy[T], law: Callable[[T], None]) -> None:
    """Check `law` on this many values drawn from `data`; the same ones each time unless exploring."""
    profile = settings(
        max_examples=examples,
        deadline=None,
        database=None,
        derandomize=os.environ.get("SERDE_LAB_EXPLORE") != "1",
        suppress_health_check=list(HealthCheck),
        phases=PHASES,
        report_multiple_bugs=False,
    )

    @profile
    @given(data)
    def check(value: T) -> None:
        law(value)

    check()


class Conformance:
    """The laws, for the strategy called `name`."""

    name: ClassVar[str]
    golden: ClassVar[Path]
    """Folder of golden frames; they stand in its subfolder `name`."""
    kinds: ClassVar[frozenset[str]] = cases.KINDS
    """The kinds of types that the strategy supports."""
    max_depth: ClassVar[int] = 3
    own_options: ClassVar[Sequence[Mapping[str, object]]] = ({},)
    """Settings of the strategy's own options to try; the first is the default."""
    survives_flipped_bits: ClassVar[bool] = True
    """False where `fairness()` says that a damaged frame may do anything unless it is sealed."""
    allocation_slack_bytes: ClassVar[int] = 512 << 10
    """What decoding may allocate whatever the frame's size: Python objects, tables of the schema."""

    # -- what the laws use ---------------------------------------------------------------------

    def strategy(self) -> Strategy:
        """The strategy under test."""
        return registry.strategy(self.name)

    def expected(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """What comes back for `batch`: override it where `losses()` declares a loss."""
        return batch

    def bind(self, schema: RecordSchema, options: SerdeOptions | None = None) -> BoundSerde:
        """The strategy bound to `schema`."""
        return self.strategy().bind(schema, options or SerdeOptions(own=self.own_options[0]))

    def _cases(
        self, min_rows: int = 0, max_rows: int = 6, first: tuple[str, str] | None = None
    ) -> st.SearchStrategy[Case]:
        return cases.cases(self.kinds, self.max_depth, min_rows, max_rows, first)

    def _options(self) -> st.SearchStrategy[SerdeOptions]:
        return st.builds(
            SerdeOptions,
            execution=st.sampled_from(["", *self.strategy().executions]),
            rows_per_frame=st.sampled_from([1, 1, 2, 3, 0]),
            max_frame_bytes=st.sampled_from([8 << 20, 8 << 20, 1, 300]),
            integrity=st.sampled_from(["none", "none", "crc32c"]),
            own=st.sampled_from(list(self.own_options)),
        )

    def _fixed_options(self) -> list[SerdeOptions]:
        """Each option changed once, from the default."""
        first = SerdeOptions(own=self.own_options[0])
        changed = [replace(first, execution=e) for e in self.strategy().executions]
        changed += [replace(first, rows_per_frame=0), replace(first, integrity="crc32c")]
        return changed + [replace(first, rows_per_frame=0, own=own) for own in self.own_options[1:]]

    def _check_batch(self, found: pa.RecordBatch, batch: pa.RecordBatch, what: object) -> None:
        found.validate(full=True)
        difference = first_difference(found, self.expected(batch))
        assert difference is None, f"{self.name} ({what}): {difference}"

    def _round_trip(self, case: Case, options: SerdeOptions) -> Frames:
        schema, batch = case
        bound = self.bind(schema, options)
        records = bound.from_arrow(batch)
        assert len(records) == len(batch)
        frames = bound.encode(records, Bounds.single(len(batch)))
        decoded = bound.decode(frames.frame)
        assert len(decoded) == len(batch)
        self._check_batch(decoded.to_arrow(), batch, options)
        return frames

    # -- law 1: what comes back is what was sent ------------------------------------------------

    def test_round_trip(self) -> None:
        """Law 1 for every kind of type and null pattern, counted."""
        reached = cases.Reached()

        def law(drawn: tuple[Case, SerdeOptions]) -> None:
            reached.add(*drawn[0])
            self._round_trip(*drawn)

        directed = [(kind, p) for kind in sorted(self.kinds) for p in cases.PATTERNS]
        share = -(-EXAMPLES // (2 * len(directed)))
        for first in directed:
            case = self._cases(first=first, min_rows=2)
            for_all(share, st.tuples(case, self._options()), law)
        for_all(-(-EXAMPLES // 2), st.tuples(self._cases(), self._options()), law)
        if EXAMPLES >= 500:
            missing = reached.missing(self.kinds, self.max_depth)
            assert not missing, f"the examples never reached {', '.join(missing)}"

    def test_awkward_values(self) -> None:
        """Law 1 for every awkward value of every kind, alone and nested."""
        case = cases.awkward_case(self.kinds, self.max_depth)
        for options in self._fixed_options():
            self._round_trip(case, options)

    def test_huge_values(self) -> None:
        """A value of a megabyte travels, in a frame larger than `max_frame_bytes`."""
        huge = 1 << 20
        t = pa.string() if "string" in self.kinds else pa.binary()
        value = "é" * huge if "string" in self.kinds else b"\xff" * huge
        envelope = ("k" * 70_000, "p", "", "", "I", False)
        small = ("k", "p", "", "", "I", False)
        case = cases.batch_of(
            pa.schema([pa.field("c", t)]), [[value, None, value[:7]]], [small, envelope, small]
        )
        for options in self._fixed_options():
            self._round_trip(case, replace(options, max_frame_bytes=4096))

    # -- law 2: equal batches, equal bytes ------------------------------------------------------

    def test_equal_batches_give_equal_bytes(self) -> None:
        """However a batch lies in memory, its frames are the same."""

        def law(drawn: tuple[Case, SerdeOptions]) -> None:
            (schema, batch), options = drawn
            bound = self.bind(schema, options)
            first = self._encode(bound, batch)
            for other in (batch, cases.copied(batch), cases.with_garbage_under_nulls(batch)):
                _check_frames(self._encode(bound, other), first, f"{self.name} ({options})")

        for_all(_some(), st.tuples(self._cases(), self._options()), law)

    def test_executions_give_equal_bytes(self) -> None:
        """Each execution writes the bytes of the first, and reads what the others wrote."""
        executions = self.strategy().executions

        def law(drawn: tuple[Case, SerdeOptions]) -> None:
            (schema, batch), options = drawn
            each = [self.bind(schema, replace(options, execution=e)) for e in executions]
            first = self._encode(each[0], batch)
            for bound, execution in zip(each, executions, strict=True):
                _check_frames(self._encode(bound, batch), first, f"{self.name} ({execution})")
                self._check_batch(bound.decode(first.frame).to_arrow(), batch, execution)

        for_all(_some(), st.tuples(self._cases(), self._options()), law)

    def _encode(self, bound: BoundSerde, batch: pa.RecordBatch) -> Frames:
        return bound.encode(bound.from_arrow(batch), Bounds.single(len(batch)))

    # -- law 3: empty batches, travel, repr -----------------------------------------------------

    def test_empty_batches(self) -> None:
        """Zero rows, zero runs and zero frames are as good as any other number."""
        schema, batch = cases.awkward_case(self.kinds, self.max_depth)
        for options in self._fixed_options():
            frames = self._round_trip((schema, batch.slice(0, 0)), options)
            assert len(frames) == 0
            assert frames.frame.type == pa.binary()
            assert frames.target.type == frames.rows.type == pa.int32()
            bound = self.bind(schema, options)
            none = Bounds(np.array([], np.int32), np.array([0], np.int64))
            records = bound.from_arrow(batch.slice(0, 0))
            assert len(bound.encode(records, none)) == 0
            both = type(records).concatenate([records, bound.from_arrow(batch), records])
            self._check_batch(both.to_arrow(), batch, options)
            self._check_batch(records.take(np.array([], np.int64)).to_arrow(), batch[:0], options)

    def test_a_bound_serde_travels(self) -> None:
        """A pickled and unpickled bound SerDe writes the same bytes and reads them."""
        schema, batch = cases.awkward_case(self.kinds, self.max_depth)
        for options in self._fixed_options():
            bound = self.bind(schema, options)
            there = pickle.loads(pickle.dumps(bound))
            assert repr(there) == repr(bound)
            assert (there.schema, there.options) == (bound.schema, bound.options)
            frames = self._encode(there, batch)
            _check_frames(frames, self._encode(bound, batch), f"{self.name} ({options})")
            self._check_batch(there.decode(frames.frame).to_arrow(), batch, options)

    def test_repr_shows_name_and_options(self) -> None:
        """The repr names the strategy and every option as it holds."""
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

    # -- law 4: damaged and foreign frames ------------------------------------------------------

    def test_frames_bear_the_mark(self) -> None:
        """Every frame begins with the strategy's own mark, and with no other strategy's."""
        schema, batch = cases.awkward_case(self.kinds, self.max_depth)
        for options in self._fixed_options():
            bound = self.bind(schema, options)
            assert len(type(bound).mark) == 1
            for frame in self._encode(bound, batch).frame.to_pylist():
                assert frame[:1] == type(bound).mark
                assert bound.sniff(frame)
        for other in self._others(schema):
            assert type(other).mark != type(bound).mark, f"{other} has the mark of {self.name}"

    def test_every_truncated_frame_is_refused(self) -> None:
        """Every prefix of a frame raises DecodeError, which names the record."""
        whole = cases.awkward_case(self.kinds, self.max_depth)[1].schema
        per_column = [
            (s, b.slice(0, 4))
            for s, b in cases.split(cases.awkward_case(self.kinds, self.max_depth), width=12)
        ]
        assert sum(b.num_columns - len(ENVELOPE) for _, b in per_column) == len(whole) - len(
            ENVELOPE
        )

        def law(case: Case) -> None:
            schema, batch = case
            for options in self._fixed_options():
                bound = self.bind(schema, options)
                frames = self._encode(bound, batch).frame.to_pylist()
                at = len(frames) // 2
                # of a long frame the ends, and enough of the middle
                size = len(frames[at])
                kept = {*range(min(size, 80)), *range(0, size, 1 + size // 100), size - 1, size - 2}
                for length in sorted(kept):
                    damaged = [*frames[:at], frames[at][:length], *frames[at + 1 :]]
                    what = f"a frame cut to {length} of {size} bytes"
                    error = self._check_refused(bound, damaged, what)
                    if options.rows_per_frame == 1:
                        assert error.record == at, f"{what} is record {at}, but: {error}"

        for case in per_column:
            law(case)
        for_all(_some() // 10, self._cases(min_rows=1, max_rows=3), law)

    def test_longer_frames_are_refused(self) -> None:
        """A byte behind a frame raises DecodeError: no frame hides anything."""
        schema, batch = cases.awkward_case(self.kinds, self.max_depth)
        for options in self._fixed_options():
            bound = self.bind(schema, options)
            frames = self._encode(bound, batch).frame.to_pylist()
            self._check_refused(
                bound, [*frames[:-1], frames[-1] + b"\0"], "a frame with a byte more"
            )

    def test_foreign_frames_are_refused(self) -> None:
        """Bytes of anything else, and frames of every other strategy that there is, raise."""
        schema, batch = cases.awkward_case(self.kinds, 0)
        for options in self._fixed_options():
            bound = self.bind(schema, options)
            own = self._encode(bound, batch).frame.to_pylist()
            junk = [b"", b"\0", b"\0" * 64, b"\xff" * 64, pickle.dumps(("a", 1)), b"{}", b"PAR1"]
            for foreign in [*junk, *(type(bound).mark + frame for frame in junk)]:
                self._check_refused(bound, [own[0], foreign], f"the foreign frame {foreign!r}")
            self._check_refused(bound, [own[0], None], "a null frame")
            for other in self._others(schema):
                frames = self._encode(other, batch).frame.to_pylist()
                self._check_refused(bound, frames[:1], f"a frame of {other}")
                assert not bound.sniff(frames[0]), f"sniffed a frame of {other}"

    def _others(self, schema: RecordSchema) -> list[BoundSerde]:
        others = []
        for name in registry.names():
            try:
                if name != self.name:
                    strategy = registry.strategy(name)
                    rows = strategy.default_rows_per_frame
                    others.append(strategy.bind(schema, SerdeOptions(rows_per_frame=rows)))
            except (SetupError, SchemaError):
                # a plug-in that cannot be loaded, or has fewer types, is no fault of this strategy
                continue
        return others

    def test_frames_of_another_schema_are_refused(self) -> None:
        """A frame that was written with other columns or types raises."""

        def law(drawn: tuple[Case, Case, SerdeOptions]) -> None:
            (schema, batch), (other, _), options = drawn
            if plain_schema(schema.batch_schema) == plain_schema(other.batch_schema):
                return
            frames = self._encode(self.bind(schema, options), batch).frame.to_pylist()
            self._check_refused(self.bind(other, options), frames, f"a frame of {schema.data}")

        one = self._cases(min_rows=1)
        for_all(_some(), st.tuples(one, one, self._options()), law)

    def test_flipped_bits_raise_or_give_valid_records(self) -> None:
        """Damage raises DecodeError or gives records valid for the schema, in bounded memory."""
        if not self.survives_flipped_bits:
            assert self.strategy().fairness().trust
            return

        def law(drawn: tuple[Case, SerdeOptions, list[tuple[int, int]]]) -> None:
            (schema, batch), options, flips = drawn
            bound = self.bind(schema, replace(options, integrity="none"))
            frames = self._encode(bound, batch).frame.to_pylist()
            for position, bit in flips:
                damaged = bytearray(frames[position % len(frames)])
                damaged[position // len(frames) % len(damaged)] ^= 1 << bit
                self._check_damaged(bound, [bytes(damaged)], schema)

        flips = st.lists(st.tuples(st.integers(0, 1 << 12), st.integers(0, 7)), max_size=12)
        for_all(_some(), st.tuples(self._cases(min_rows=1), self._options(), flips), law)
        parts = cases.split(cases.awkward_case(self.kinds, self.max_depth), width=12)
        # all bytes of a record of one column, and some of all columns
        narrow = cases.split(parts[0], width=1)[0]
        for (schema, batch), places in [(narrow, 1 << 30), *((part, 60) for part in parts)]:
            unsealed = [replace(o, integrity="none") for o in self._fixed_options()]
            for options in {repr(o): o for o in unsealed}.values():
                bound = self.bind(schema, options)
                frame = self._encode(bound, batch.slice(0, 3)).frame[-1].as_py()
                for at in range(0, len(frame), 1 + len(frame) // places):
                    for value in {0, 255, frame[at] ^ 0x80, frame[at] ^ 1} - {frame[at]}:
                        damaged = frame[:at] + bytes([value]) + frame[at + 1 :]
                        self._check_damaged(bound, [damaged], schema)

    def _check_damaged(self, bound: BoundSerde, frames: list[bytes], schema: RecordSchema) -> None:
        column = pa.array(frames, pa.binary())
        with Allocation() as allocation:
            try:
                found = bound.decode(column).to_arrow()
            except DecodeError:
                found = None
        limit = 16 * sum(map(len, frames)) + self.allocation_slack_bytes
        assert allocation.peak_bytes <= limit, (
            f"{bound}: {allocation.peak_bytes} bytes allocated for a frame of {len(frames[0])}"
        )
        if found is not None:
            assert found.schema.equals(schema.batch_schema)
            found.validate(full=True)
            assert not any(found.column(name).null_count for name in ENVELOPE.names)

    def test_sealed_frames_refuse_every_flip(self) -> None:
        """With integrity crc32c each single flipped bit raises DecodeError."""
        schema, batch = cases.awkward_case(self.kinds, 0)
        for rows in (1, 0):
            options = SerdeOptions(rows_per_frame=rows, integrity="crc32c", own=self.own_options[0])
            bound = self.bind(schema, options)
            frames = self._encode(bound, batch.slice(0, 3)).frame.to_pylist()
            for at in range(len(frames[0])):
                damaged = bytearray(frames[0])
                damaged[at] ^= 1 << at % 8
                what = f"a sealed frame with byte {at} flipped"
                self._check_refused(bound, [bytes(damaged), *frames[1:]], what)

    def _check_refused(
        self, bound: BoundSerde, frames: Sequence[bytes | None], what: str
    ) -> DecodeError:
        error = _raised(DecodeError, lambda: bound.decode(pa.array(frames, pa.binary())), what)
        assert error.strategy == self.name, f"{what}: the error names {error.strategy}"
        return error

    # -- law 5: frames of older versions --------------------------------------------------------

    def test_golden_frames(self) -> None:
        """Frames of every older version decode; the newest are what is written today."""
        case = cases.golden_case(self.kinds, self.max_depth)
        folder = GoldenFolder(self.golden / self.name)
        for options in self._fixed_options():
            bound = self.bind(case[0], options)
            folder.offer(options, case[1], self._encode(bound, case[1]).frame)
        versions = folder.versions()
        assert versions, f"{folder.path} has no golden frames: run with SERDE_LAB_UPDATE_GOLDEN=1"
        seen = set()
        for golden in versions:
            schema = RecordSchema(
                pa.schema(list(golden.batch.schema)[len(ENVELOPE) :]),
                record_key=(golden.batch.schema.names[len(ENVELOPE)],),
            )
            bound = self.bind(schema, golden.options)
            self._check_batch(bound.decode(golden.frames).to_arrow(), golden.batch, golden.path)
            if golden.newest:
                seen.add(repr(golden.options))
                frames = self._encode(bound, golden.batch).frame
                assert frames.equals(golden.frames), (
                    f"{self.name} no longer writes the bytes of {golden.path}: if that is meant, "
                    "SERDE_LAB_UPDATE_GOLDEN=1 adds the new ones beside them"
                )
        for options in self._fixed_options():
            assert repr(options) in seen, f"{folder.path} has no golden frames for {options}"

    # -- framing --------------------------------------------------------------------------------

    def test_frames_are_cut(self) -> None:
        """At every bound, at `rows_per_frame` and at `max_frame_bytes`; each is read alone."""
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
                self._check_batch(alone.to_arrow(), batch.slice(at, count), options)
                at += count
            assert at == rows

        for_all(_some(), st.tuples(self._cases(), self._options(), runs), law)

    def test_frames_hold_as_many_rows_as_they_may(self) -> None:
        """`rows_per_frame` and `max_frame_bytes` bound the frames, and nothing cuts them smaller."""
        schema, batch = cases.awkward_case(self.kinds & {"bool", "int32", "int64", "string"}, 0)
        batch = pa.Table.from_batches([batch.slice(0, 4)] * 50).combine_chunks().to_batches()[0]
        own = self.own_options[0]
        for rows, expected in ((1, [1] * 200), (60, [60, 60, 60, 20]), (0, [200])):
            bound = self.bind(schema, SerdeOptions(rows_per_frame=rows, own=own))
            assert self._encode(bound, batch).rows.to_pylist() == expected
        whole = len(self._encode(bound, batch).frame[0].as_py())
        limit = max(whole // 4, 4096)
        bound = self.bind(schema, SerdeOptions(rows_per_frame=0, max_frame_bytes=limit, own=own))
        frames = self._encode(bound, batch)
        # a frame's own overhead may cost a few more than the quotient
        assert whole // limit <= len(frames) <= 4 * (whole // limit + 1)

    # -- the record API -------------------------------------------------------------------------

    def test_records_are_taken_joined_and_read(self) -> None:
        """take, concatenate and column agree with Arrow, before and after the frames."""

        def law(drawn: tuple[Case, SerdeOptions, list[int]]) -> None:
            (schema, batch), options, picks = drawn
            indices = np.array([p % len(batch) for p in picks if len(batch)], np.int64)
            bound = self.bind(schema, options)
            sent = bound.from_arrow(batch)
            expected = self.expected(batch)
            taken = cases.taken(batch, indices)
            for records in (sent, bound.decode(self._encode(bound, batch).frame)):
                assert records.schema == schema
                self._check_batch(records.take(indices).to_arrow(), taken, options)
                both = type(records).concatenate([records.take(indices), records])
                assert len(both) == len(indices) + len(batch)
                self._check_batch(both.to_arrow(), cases.joined([taken, batch]), options)
                for name in batch.schema.names:
                    column = pa.record_batch([records.column(name)], names=[name])
                    wanted = expected.select([name])
                    difference = first_difference(column, wanted.cast(column.schema))
                    assert difference is None, f"{self.name} ({options}): {difference}"
                    assert column.schema.field(0).type == wanted.schema.field(0).type
                assert records.record_keys().equals(expected.column(0))
                again = bound.encode(both, Bounds.single(len(both))).frame
                whole = bound.decode(again).to_arrow()
                self._check_batch(whole, cases.joined([taken, batch]), options)

        picks = st.lists(st.integers(0, 5), max_size=8)
        for_all(_some(), st.tuples(self._cases(), self._options(), picks), law)

    # -- what cannot be -------------------------------------------------------------------------

    def test_unsupported_types_are_refused(self) -> None:
        """Types that the project, or this strategy, does not support are refused by column and type."""
        refused = dict(cases.REFUSED)
        refused |= {kind: cases.fixed_type(kind) for kind in cases.KINDS - self.kinds}
        for what, t in refused.items():
            data = pa.schema([pa.field("id", pa.string()), pa.field("odd one", t)])
            schema = RecordSchema(data, record_key=("id",))
            error = str(_raised(SchemaError, partial(self.bind, schema), f"{what}: {t}"))
            assert "odd one" in error, f"{what}: {error} does not name the column"
            named = [str(t), *(str(f.type) for f in _fields_below(t))]
            assert any(n in error for n in named), f"{what}: {error} names no type"

    def test_impossible_options_are_refused(self) -> None:
        """An option that is unknown or has an impossible value is refused by name."""
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
            error = str(_raised(OptionError, partial(self.bind, schema, options), f"{change}"))
            assert word in error, f"{error} does not name {word}"
            assert self.name in error, f"{error} does not name {self.name}"

    def test_fairness_is_stated(self) -> None:
        """The strategy says what it gets for free, and its name is the one it is known by."""
        strategy = self.strategy()
        fairness = strategy.fairness()
        for part in (fairness.schema_known, fairness.copies, fairness.batching, fairness.trust):
            assert part.strip()
        assert strategy.name == self.name
        assert strategy.default_rows_per_frame >= 0
        assert strategy.executions


def _raised(kind: type[E], act: Callable[[], object], what: str) -> E:
    """The error of this kind that `act` raises; any other outcome fails."""
    try:
        outcome = act()
    except kind as error:
        return error
    raise AssertionError(f"no {kind.__name__} but {outcome} for {what}")


def _some() -> int:
    """Examples of the laws beside the main one."""
    return max(10, EXAMPLES // 5)


def _check_frames(found: Frames, expected: Frames, what: str) -> None:
    assert found.rows.equals(expected.rows), f"{what}: {found.rows}, expected {expected.rows}"
    assert found.target.equals(expected.target), what
    for i, (a, b) in enumerate(
        zip(found.frame.to_pylist(), expected.frame.to_pylist(), strict=True)
    ):
        assert a == b, f"{what}: frame {i} is {a.hex()}, expected {b.hex()}"


def _fields_below(t: pa.DataType) -> list[pa.Field]:
    fields = [t.field(i) for i in range(t.num_fields)]
    return fields + [below for f in fields for below in _fields_below(f.type)]
