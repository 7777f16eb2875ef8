"""The conformance kit can fail: a strategy that breaks a law is caught by the law that it breaks."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import Phase

from serde_lab.errors import DecodeError
from serde_lab.records.schema import RecordSchema
from serde_lab.serde.arrow.records import ArrowRecords, ArrowStrategy, BoundArrow
from serde_lab.serde.conformance import Conformance
from serde_lab.serde.conformance import kit as conformance
from serde_lab.serde.conformance import subject as conformance_subject
from serde_lab.serde.conformance.cases import Reached, awkward_case
from serde_lab.serde.conformance.values import KINDS
from serde_lab.serde.interface import (
    Bounds,
    Execution,
    Fairness,
    Frames,
    Records,
    SerdeOptions,
    Strategy,
)
from tests.sabotage.record_verbs import VERB_SABOTAGE

GOLDEN = Path(__file__).parent / "golden"


class Bound(BoundArrow):
    """`arrow`, to be broken by a subclass."""

    def with_frames(self, frames: Frames, change: Callable[[bytes], bytes]) -> Frames:
        changed = pa.array([change(f) for f in frames.frame.to_pylist()], pa.binary())
        return replace(frames, frame=changed)


class Broken(ArrowStrategy):
    """`arrow` with another class of bound SerDe."""

    bound: type[BoundArrow] = Bound

    def bind(self, schema: RecordSchema, options: SerdeOptions) -> BoundArrow:
        real = super().bind(schema, options)
        return self.bound(real.schema, real.options)


class LosesTheSignOfZero(Bound):
    def from_arrow(self, batch: pa.RecordBatch) -> ArrowRecords:
        columns = [
            pa.compute.add(c, pa.scalar(0.0, c.type)) if pa.types.is_floating(c.type) else c
            for c in batch.columns
        ]
        return super().from_arrow(pa.record_batch(columns, schema=batch.schema))


class CutsHugeText(Bound):
    def from_arrow(self, batch: pa.RecordBatch) -> ArrowRecords:
        columns = [
            pa.compute.utf8_slice_codeunits(c, 0, 60_000) if pa.types.is_string(c.type) else c
            for c in batch.columns
        ]
        return super().from_arrow(pa.record_batch(columns, schema=batch.schema))


class KeepsGarbage(Bound):
    def from_arrow(self, batch: pa.RecordBatch) -> ArrowRecords:
        plain = super().from_arrow(batch)
        kept = [
            batch.column(n) if batch.column(n).type == t else plain.batch.column(n)
            for n, t in zip(plain.batch.schema.names, plain.batch.schema.types, strict=True)
        ]
        return replace(plain, batch=pa.record_batch(kept, schema=plain.batch.schema))


class LoopWritesOtherBytes(Bound):
    def encode(self, records: Records, bounds: Bounds) -> Frames:
        frames = super().encode(records, bounds)
        last = b"\1" if self.options.execution == "row" else b"\0"
        return self.with_frames(frames, lambda frame: frame + last)

    def decode(self, frames: pa.BinaryArray) -> ArrowRecords:
        return super().decode(pa.array([f and f[:-1] for f in frames.to_pylist()], pa.binary()))


class SendsAnEmptyFrame(Bound):
    def encode(self, records: Records, bounds: Bounds) -> Frames:
        frames = super().encode(records, bounds)
        if len(records):
            return frames
        return Frames(
            pa.array([0], pa.int32()), pa.array([b""], pa.binary()), pa.array([0], pa.int32())
        )


class ForgetsItsOptions(Bound):
    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.schema, SerdeOptions(own=self.options.own))


class HidesItsOptions(Bound):
    def __repr__(self) -> str:
        return "arrow"


class BearsNoMark(Bound):
    def encode(self, records: Records, bounds: Bounds) -> Frames:
        return self.with_frames(super().encode(records, bounds), lambda f: b"\0" + f[1:])

    def decode(self, frames: pa.BinaryArray) -> ArrowRecords:
        whole = [f and self.mark + f[1:] for f in frames.to_pylist()]
        return super().decode(pa.array(whole, pa.binary()))


class GuessesAtDamage(Bound):
    """What it cannot read, it takes for nothing."""

    def decode(self, frames: pa.BinaryArray) -> ArrowRecords:
        try:
            return super().decode(frames)
        except DecodeError:
            return super().decode(frames.slice(0, 0))


class NamesNoRecord(Bound):
    def decode(self, frames: pa.BinaryArray) -> ArrowRecords:
        try:
            return super().decode(frames)
        except DecodeError as error:
            raise DecodeError("arrow", None, error.problem) from error


class IgnoresWhatFollows(Bound):
    def decode(self, frames: pa.BinaryArray) -> ArrowRecords:
        whole = [f[: len(f) // 8 * 8] if f else f for f in frames.to_pylist()]
        return super().decode(pa.array(whole, pa.binary()))


class RaisesAnything(Bound):
    def decode(self, frames: pa.BinaryArray) -> ArrowRecords:
        try:
            return super().decode(frames)
        except DecodeError as error:
            raise ValueError("what is this?") from error


class AllocatesAsItLikes(Bound):
    def decode(self, frames: pa.BinaryArray) -> ArrowRecords:
        assert len(np.ones(1 << 22, np.uint8))
        return super().decode(frames)


class ReturnsInvalidText(Bound):
    def decode(self, frames: pa.BinaryArray) -> ArrowRecords:
        try:
            return super().decode(frames)
        except DecodeError:
            found = super().decode(frames.slice(0, 0))
            keys = pa.Array.from_buffers(
                pa.string(), 1, [None, pa.py_buffer(bytes(4) + b"\1\0\0\0"), pa.py_buffer(b"\xff")]
            )
            columns = [pa.nulls(1, f.type) for f in found.batch.schema]
            for i, field in enumerate(found.batch.schema):
                if not field.nullable:
                    columns[i] = pa.repeat(False if field.type == pa.bool_() else "", 1)
            return replace(
                found, batch=pa.record_batch([keys, *columns[1:]], schema=found.batch.schema)
            )


class TakesAnySchema(Bound):
    @property
    def _fingerprint(self) -> int:
        return 7


class WritesOtherBytes(Bound):
    def encode(self, records: Records, bounds: Bounds) -> Frames:
        return self.with_frames(super().encode(records, bounds), lambda f: f + b"2222BBBB")

    def decode(self, frames: pa.BinaryArray) -> ArrowRecords:
        cut = [f and f.removesuffix(b"2222BBBB") for f in frames.to_pylist()]
        return super().decode(pa.array(cut, pa.binary()))


class CrossesBounds(Bound):
    def encode(self, records: Records, bounds: Bounds) -> Frames:
        return super().encode(records, Bounds.single(len(records), 7))


class ForgetsTargets(Bound):
    def encode(self, records: Records, bounds: Bounds) -> Frames:
        frames = super().encode(records, bounds)
        return replace(frames, target=pa.repeat(pa.scalar(7, pa.int32()), len(frames)))


class MakesLargeFrames(Bound):
    def encode(self, records: Records, bounds: Bounds) -> Frames:
        options = replace(self.options, max_frame_bytes=8 << 20)
        return BoundArrow(self.schema, options).encode(records, bounds)


class MakesSmallFrames(Bound):
    def encode(self, records: Records, bounds: Bounds) -> Frames:
        options = replace(self.options, rows_per_frame=1)
        return BoundArrow(self.schema, options).encode(records, bounds)


class TakesInOrder(Bound):
    def from_arrow(self, batch: pa.RecordBatch) -> ArrowRecords:
        return Sorted(*_parts(super().from_arrow(batch)))


class Sorted(ArrowRecords):
    def take(self, indices: Any) -> Any:
        return ArrowRecords.take(self, np.sort(indices))


class ReadsColumnsPlain(Bound):
    def from_arrow(self, batch: pa.RecordBatch) -> ArrowRecords:
        return PlainColumns(*_parts(super().from_arrow(batch)))


class PlainColumns(ArrowRecords):
    def column(self, name: str) -> pa.Array:
        found = super().column(name)
        return found.cast(pa.string()) if found.type == pa.large_string() else found


class FilesOtherRows(Bound):
    def decode(self, frames: pa.BinaryArray) -> ArrowRecords:
        return FiledBackwards(*_parts(super().decode(frames)))


class FiledBackwards(ArrowRecords):
    def to_rows(self) -> tuple[pa.StringArray, pa.RecordBatch]:
        backwards = np.arange(len(self))[::-1]
        return ArrowRecords.to_rows(ArrowRecords.take(self, backwards))


def _parts(records: ArrowRecords) -> tuple[Any, ...]:
    return records.schema, records.batch, records.constants


class TakesEverything(Broken):
    def bind(self, schema: RecordSchema, options: SerdeOptions) -> BoundArrow:
        known = SerdeOptions(own={"compression": "none"})
        return BoundArrow(schema, known)


class NeverSeals(Broken):
    def bind(self, schema: RecordSchema, options: SerdeOptions) -> BoundArrow:
        return super().bind(schema, replace(options, integrity="none"))


class SaysNothing(Broken):
    def fairness(self) -> Fairness:
        return Fairness("", "", "", "")


class TwoExecutions(Broken):
    executions: tuple[Execution, ...] = ("batch", "row")


def broken(bound: type[BoundArrow], strategy: type[Broken] = Broken) -> type[Broken]:
    return type(bound.__name__, (strategy,), {"bound": bound})


SABOTAGE: Mapping[type[Strategy], str] = {
    broken(LosesTheSignOfZero): "round_trip awkward_values",
    broken(CutsHugeText): "huge_values",
    broken(FilesOtherRows): "huge_values",
    broken(KeepsGarbage): "equal_batches_give_equal_bytes",
    broken(LoopWritesOtherBytes, TwoExecutions): "executions_give_equal_bytes",
    broken(SendsAnEmptyFrame): "empty_batches",
    broken(ForgetsItsOptions): "a_bound_serde_travels",
    broken(HidesItsOptions): "repr_shows_name_and_options",
    broken(BearsNoMark): "frames_bear_the_mark",
    broken(
        GuessesAtDamage
    ): "every_truncated_frame_is_refused longer_frames_are_refused foreign_frames_are_refused "
    "frames_of_another_schema_are_refused sealed_frames_refuse_every_flip",
    broken(NamesNoRecord): "every_truncated_frame_is_refused",
    broken(IgnoresWhatFollows): "longer_frames_are_refused",
    broken(RaisesAnything): "flipped_bits_raise_or_give_valid_records",
    broken(AllocatesAsItLikes): "flipped_bits_raise_or_give_valid_records",
    broken(ReturnsInvalidText): "flipped_bits_raise_or_give_valid_records",
    NeverSeals: "sealed_frames_refuse_every_flip repr_shows_name_and_options",
    broken(TakesAnySchema): "frames_of_another_schema_are_refused",
    broken(WritesOtherBytes): "golden_frames",
    broken(CrossesBounds): "frames_are_cut",
    broken(ForgetsTargets): "frames_are_cut",
    broken(MakesLargeFrames): "frames_are_cut frames_hold_as_many_rows_as_they_may",
    broken(MakesSmallFrames): "frames_hold_as_many_rows_as_they_may",
    broken(TakesInOrder): "records_are_taken_joined_and_read",
    broken(ReadsColumnsPlain): "records_are_taken_joined_and_read",
    TakesEverything: "unsupported_types_are_refused impossible_options_are_refused",
    SaysNothing: "fairness_is_stated",
    **{broken(bound): law for bound, law in VERB_SABOTAGE.items()},
}


def judged(strategy: type[Strategy]) -> Conformance:
    """The kit for this strategy, which need not be registered."""
    judge = type("Judge", (Conformance,), {"name": "arrow", "golden": GOLDEN})
    kit: Conformance = judge()
    kit.strategy = strategy  # type: ignore[method-assign]
    return kit


@pytest.mark.parametrize(
    ("strategy", "law"),
    [(s, law) for s, laws in SABOTAGE.items() for law in laws.split()],
    ids=lambda value: value if isinstance(value, str) else value.__name__,
)
def test_a_broken_law_is_seen(
    monkeypatch: pytest.MonkeyPatch, strategy: type[Strategy], law: str
) -> None:
    monkeypatch.setattr(conformance_subject, "EXAMPLES", 400)
    # that it fails is enough: no time is spent on the smallest batch for which it does
    monkeypatch.setattr(conformance_subject, "PHASES", (Phase.generate,))
    # AssertionError, or what the strategy raised: a test that ends any other way has passed
    with pytest.raises((AssertionError, DecodeError, ValueError, pa.ArrowInvalid)):
        getattr(judged(strategy), f"test_{law}")()


def test_each_law_has_a_sabotage() -> None:
    laws = {name for name in dir(Conformance) if name.startswith("test_")}
    tried = {f"test_{law}" for laws in SABOTAGE.values() for law in laws.split()}
    assert tried == laws


@pytest.mark.slow
def test_the_strategy_that_was_broken_keeps_the_laws(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conformance_subject, "EXAMPLES", 20)
    kit = judged(Broken)
    for name in ("round_trip", "frames_are_cut", "golden_frames", "foreign_frames_are_refused"):
        getattr(kit, f"test_{name}")()


def test_what_examples_do_not_reach_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    reached = Reached()
    reached.add(*awkward_case(KINDS - {"map", "decimal"}))
    missing = reached.missing(KINDS, 3)
    assert {"map: some null", "decimal: nested", "bool: none null", "rows: 0"} <= set(missing)
    assert "struct: some null" not in missing
    # and a run of the main law that misses something fails
    monkeypatch.setattr(conformance_subject, "EXAMPLES", 500)
    monkeypatch.setattr(conformance, "for_all", lambda *_: None)
    with pytest.raises(AssertionError, match="the examples never reached rows: 0"):
        judged(Broken).test_round_trip()


def test_a_declared_limit_narrows_the_data(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conformance_subject, "EXAMPLES", 60)
    drawn: set[str] = set()
    add = Reached.add

    def spy(self: Reached, schema: RecordSchema, batch: pa.RecordBatch) -> None:
        drawn.update(str(t) for t in schema.data.types)
        add(self, schema, batch)

    monkeypatch.setattr(Reached, "add", spy)
    kit = judged(Broken)
    kit.kinds = frozenset({"bool", "string", "list"})  # type: ignore[misc]
    kit.max_depth = 1  # type: ignore[misc]
    kit.test_round_trip()
    assert drawn == {"bool", "string", "list<item: bool>", "list<item: string>"}


def test_golden_frames_are_added_never_rewritten(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    old, new = judged(Broken), judged(broken(WritesOtherBytes))
    for kit in (old, new):
        kit.golden = tmp_path  # type: ignore[misc]
    with pytest.raises(AssertionError, match="no golden frames: run with SERDE_LAB_UPDATE_GOLDEN"):
        old.test_golden_frames()
    monkeypatch.setenv("SERDE_LAB_UPDATE_GOLDEN", "1")
    old.test_golden_frames()
    first = {p.name: p.read_bytes() for p in (tmp_path / "arrow").iterdir()}
    new.test_golden_frames()
    second = {p.name: p.read_bytes() for p in (tmp_path / "arrow").iterdir()}
    assert first.items() < second.items()
    assert {n.rpartition("-")[2] for n in second if n.endswith("json")} == {"1.json", "2.json"}
    monkeypatch.delenv("SERDE_LAB_UPDATE_GOLDEN")
    new.test_golden_frames()
    back = judged(broken(OldWriter))
    back.golden = tmp_path  # type: ignore[misc]
    with pytest.raises(AssertionError, match="no longer writes the bytes"):
        back.test_golden_frames()


class OldWriter(WritesOtherBytes):
    """Reads both versions, but writes the first again."""

    def encode(self, records: Records, bounds: Bounds) -> Frames:
        return BoundArrow.encode(self, records, bounds)
