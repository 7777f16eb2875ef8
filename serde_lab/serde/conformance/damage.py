"""Tests law 4: frames that are truncated, foreign or of another schema raise, and damage does no harm.

Flipped bits raise DecodeError or give valid records; in a sealed frame every flip raises.
"""

from __future__ import annotations

import pickle
import tracemalloc
from collections.abc import Sequence
from dataclasses import replace
from typing import Self

import pyarrow as pa
from hypothesis import strategies as st

from serde_lab.errors import DecodeError, SchemaError, SetupError
from serde_lab.records.schema import ENVELOPE, RecordSchema, plain_schema
from serde_lab.serde import registry
from serde_lab.serde.conformance import cases
from serde_lab.serde.conformance.subject import Case, Subject, for_all, raised, some
from serde_lab.serde.interface import BoundSerde, SerdeOptions


class DamageLaws(Subject):
    """The laws about damaged and foreign frames."""

    def test_frames_bear_the_mark(self) -> None:
        """Every frame begins with the strategy's own mark and with that of no other strategy."""
        schema, batch = self.awkward()
        for options in self.fixed_options():
            bound = self.bind(schema, options)
            assert len(type(bound).mark) == 1
            for frame in self.encode(bound, batch).frame.to_pylist():
                assert frame[:1] == type(bound).mark
                assert bound.sniff(frame)
        for other in self._others(schema):
            assert type(other).mark != type(bound).mark, f"{other} has the mark of {self.name}"

    def test_every_truncated_frame_is_refused(self) -> None:
        """Every prefix of a frame raises DecodeError, which names the record."""
        parts = cases.split(self.awkward(), width=12)
        # all prefixes of a frame of one column; of longer frames the ends, and enough of the middle
        narrow = cases.split(parts[0], width=1)[0]

        def law(case: Case, every: int) -> None:
            schema, batch = case[0], case[1].slice(0, 4)
            for options in self.fixed_options():
                bound = self.bind(schema, options)
                frames = self.encode(bound, batch).frame.to_pylist()
                at = len(frames) // 2
                size = len(frames[at])
                ends = {*range(min(size, every)), size - 2, size - 1}
                for length in sorted(ends | {*range(0, size, 1 + size // every)}):
                    damaged = [*frames[:at], frames[at][:length], *frames[at + 1 :]]
                    what = f"a frame cut to {length} of {size} bytes"
                    error = self._check_refused(bound, damaged, what)
                    if options.rows_per_frame == 1:
                        assert error.record == at, f"{what} is record {at}, but: {error}"

        law(narrow, 1 << 30)
        for part in parts:
            law(part, 80)
        for_all(some() // 10, self.drawn(min_rows=1, max_rows=3), lambda case: law(case, 80))

    def test_longer_frames_are_refused(self) -> None:
        """A byte appended to a frame raises DecodeError, so frames cannot carry hidden bytes."""
        schema, batch = self.awkward()
        for options in self.fixed_options():
            bound = self.bind(schema, options)
            frames = self.encode(bound, batch).frame.to_pylist()
            self._check_refused(
                bound, [*frames[:-1], frames[-1] + b"\0"], "a frame with a byte more"
            )

    def test_foreign_frames_are_refused(self) -> None:
        """Arbitrary bytes, and frames of every other known strategy, raise."""
        schema, batch = cases.awkward_case(self.kinds, 0)
        for options in self.fixed_options():
            bound = self.bind(schema, options)
            own = self.encode(bound, batch).frame.to_pylist()
            junk = [b"", b"\0", b"\0" * 64, b"\xff" * 64, pickle.dumps(("a", 1)), b"{}", b"PAR1"]
            for foreign in [*junk, *(type(bound).mark + frame for frame in junk)]:
                self._check_refused(bound, [own[0], foreign], f"the foreign frame {foreign!r}")
            self._check_refused(bound, [own[0], None], "a null frame")
            for other in self._others(schema):
                frames = self.encode(other, batch).frame.to_pylist()
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
                # another plug-in may fail to load, or support fewer types
                continue
        return others

    def test_frames_of_another_schema_are_refused(self) -> None:
        """A frame that was written with other columns or types raises."""

        def law(drawn: tuple[Case, Case, SerdeOptions]) -> None:
            (schema, batch), (other, _), options = drawn
            if plain_schema(schema.batch_schema) == plain_schema(other.batch_schema):
                return
            frames = self.encode(self.bind(schema, options), batch).frame.to_pylist()
            self._check_refused(self.bind(other, options), frames, f"a frame of {schema.data}")

        one = self.drawn(min_rows=1)
        for_all(some(), st.tuples(one, one, self.drawn_options()), law)

    def test_flipped_bits_raise_or_give_valid_records(self) -> None:
        """A flipped bit raises DecodeError or gives records valid for the schema, in bounded memory."""
        if not self.survives_flipped_bits:
            assert self.strategy().fairness().trust
            return

        def law(drawn: tuple[Case, SerdeOptions, list[tuple[int, int]]]) -> None:
            (schema, batch), options, flips = drawn
            bound = self.bind(schema, replace(options, integrity="none"))
            frames = self.encode(bound, batch).frame.to_pylist()
            for position, bit in flips:
                damaged = bytearray(frames[position % len(frames)])
                damaged[position // len(frames) % len(damaged)] ^= 1 << bit
                self._check_damaged(bound, [bytes(damaged)], schema)

        flips = st.lists(st.tuples(st.integers(0, 1 << 12), st.integers(0, 7)), max_size=12)
        for_all(some(), st.tuples(self.drawn(min_rows=1), self.drawn_options(), flips), law)
        parts = cases.split(self.awkward(), width=12)
        # all bytes of a record of one column, and some bytes of a record of all columns
        narrow = cases.split(parts[0], width=1)[0]
        for (schema, batch), places in [(narrow, 1 << 30), *((part, 40) for part in parts)]:
            unsealed = [replace(o, integrity="none") for o in self.fixed_options()]
            for options in {repr(o): o for o in unsealed}.values():
                bound = self.bind(schema, options)
                frame = self.encode(bound, batch.slice(0, 3)).frame[-1].as_py()
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
            frames = self.encode(bound, batch.slice(0, 3)).frame.to_pylist()
            for at in range(len(frames[0])):
                damaged = bytearray(frames[0])
                damaged[at] ^= 1 << at % 8
                what = f"a sealed frame with byte {at} flipped"
                self._check_refused(bound, [bytes(damaged), *frames[1:]], what)

    def _check_refused(
        self, bound: BoundSerde, frames: Sequence[bytes | None], what: str
    ) -> DecodeError:
        error = raised(DecodeError, lambda: bound.decode(pa.array(frames, pa.binary())), what)
        assert error.strategy == self.name, f"{what}: the error names {error.strategy}"
        return error


# a buffer returns its memory to its pool, however late, so pools must outlive their buffers
_POOLS: list[pa.MemoryPool] = []


class Allocation:
    """A context manager; `peak_bytes` is the peak of memory in use inside it, minus that before it.

    It counts Arrow's pool and what Python and numpy allocate; tracing the latter is slow.
    """

    peak_bytes: int = 0

    def __enter__(self) -> Self:
        self._usual = pa.default_memory_pool()
        self._pool = pa.proxy_memory_pool(self._usual)
        _POOLS.append(self._pool)
        pa.set_memory_pool(self._pool)
        self._was_tracing = tracemalloc.is_tracing()
        if not self._was_tracing:
            tracemalloc.start()
        self._before = tracemalloc.get_traced_memory()[0]
        tracemalloc.reset_peak()
        return self

    def __exit__(self, *_: object) -> None:
        python = tracemalloc.get_traced_memory()[1] - self._before
        if not self._was_tracing:
            tracemalloc.stop()
        pa.set_memory_pool(self._usual)
        self.peak_bytes = python + (self._pool.max_memory() or 0)
