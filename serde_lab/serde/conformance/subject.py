"""Base class of the laws: the strategy under test, its declared limits, and steps that all laws share.

The steps include hypothesis's settings, the options to try, and the comparison of batches and frames.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import ClassVar, TypeVar

import pyarrow as pa
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from serde_lab.errors import LabError
from serde_lab.records.plain_form import first_difference
from serde_lab.records.schema import RecordSchema
from serde_lab.serde import registry
from serde_lab.serde.conformance import cases, values
from serde_lab.serde.interface import Bounds, BoundSerde, Frames, SerdeOptions, Strategy
from serde_lab.serde.record_verbs import as_filed


@dataclass(frozen=True, slots=True)
class Golden:
    """One file of golden frames; `newest` if no later version of its setting exists."""

    path: Path
    options: SerdeOptions
    batch: pa.RecordBatch
    frames: pa.BinaryArray
    newest: bool


@dataclass(frozen=True, slots=True)
class GoldenFolder:
    """The golden frames of one strategy."""

    path: Path

    def versions(self) -> list[Golden]:
        """All golden frames, by setting and version."""
        files = sorted(
            self.path.glob("*.json"), key=lambda p: (p.stem.rpartition("-")[0], _version(p))
        )
        newest = {p.stem.rpartition("-")[0]: p for p in files}
        return [_read(p, newest=p in newest.values()) for p in files]

    def offer(self, options: SerdeOptions, batch: pa.RecordBatch, frames: pa.BinaryArray) -> None:
        """With SERDE_LAB_UPDATE_GOLDEN=1, add `frames` unless they equal the newest ones of this setting."""
        if os.environ.get("SERDE_LAB_UPDATE_GOLDEN") != "1":
            return
        setting = _setting(options)
        olds = [g for g in self.versions() if g.path.stem.rpartition("-")[0] == setting]
        if olds and olds[-1].frames.equals(frames):
            return
        number = _version(olds[-1].path) + 1 if olds else 1
        self.path.mkdir(parents=True, exist_ok=True)
        content = {
            "options": asdict(options),
            "batch": self._keep(batch),
            "frames": [frame.hex() for frame in frames.to_pylist()],
        }
        target = self.path / f"{setting}-{number}.json"
        target.write_text(json.dumps(content, indent=1) + "\n")

    def _keep(self, batch: pa.RecordBatch) -> str:
        for path, kept in self._batches():
            if first_difference(kept, batch) is None:
                return path.name
        path = self.path / f"batch-{1 + len(list(self._batches()))}.arrow"
        with pa.ipc.new_stream(path, batch.schema) as stream:
            stream.write_batch(batch)
        return path.name

    def _batches(self) -> Iterator[tuple[Path, pa.RecordBatch]]:
        for path in sorted(self.path.glob("batch-*.arrow")):
            yield path, _read_batch(path)


def _setting(options: SerdeOptions) -> str:
    """A file name for options: those that differ from the defaults."""
    default = asdict(SerdeOptions())
    changed = {k: v for k, v in asdict(options).items() if k != "own" and v != default[k]}
    words = [f"{key}={value}" for key, value in {**changed, **options.own}.items()]
    return re.sub(r"[^A-Za-z0-9_=]+", "_", "-".join(words).replace("-", ",")) or "default"


def _version(path: Path) -> int:
    return int(path.stem.rpartition("-")[2])


def _read(path: Path, *, newest: bool) -> Golden:
    content = json.loads(path.read_text())
    frames = pa.array([bytes.fromhex(frame) for frame in content["frames"]], pa.binary())
    batch = _read_batch(path.parent / content["batch"])
    return Golden(path, SerdeOptions(**content["options"]), batch, frames, newest)


def _read_batch(path: Path) -> pa.RecordBatch:
    with pa.ipc.open_stream(path.read_bytes()) as stream:
        return stream.read_next_batch()


EXAMPLES = int(os.environ.get("SERDE_LAB_EXAMPLES", "500"))
PHASES: Sequence[Phase] = tuple(Phase)

Case = tuple[RecordSchema, pa.RecordBatch]
T = TypeVar("T")
E = TypeVar("E", bound=LabError)


def for_all(examples: int, data: st.SearchStrategy[T], law: Callable[[T], None]) -> None:
    """Check `law` on this many values drawn from `data`; the same ones each time unless exploring is on."""
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


class Subject:
    """The strategy called `name`, and the limits that it declares."""

    name: ClassVar[str]
    golden: ClassVar[Path]
    """Folder of golden frames; those of this strategy are in its subfolder `name`."""
    kinds: ClassVar[frozenset[str]] = values.KINDS
    """The kinds of types that the strategy supports."""
    max_depth: ClassVar[int] = 3
    own_options: ClassVar[Sequence[Mapping[str, object]]] = ({},)
    """Settings of the strategy's own options to try; the first is the default."""
    survives_flipped_bits: ClassVar[bool] = True
    """False if `fairness()` says that a damaged frame may do anything unless it is sealed."""
    allocation_slack_bytes: ClassVar[int] = 512 << 10
    """Bytes that decoding may allocate beside the frame's share: Python objects, tables of the schema."""

    def strategy(self) -> Strategy:
        return registry.strategy(self.name)

    def expected(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The batch that a round trip of `batch` returns; override it if `losses()` declares a loss."""
        return batch

    def bind(self, schema: RecordSchema, options: SerdeOptions | None = None) -> BoundSerde:
        return self.strategy().bind(schema, options or SerdeOptions(own=self.own_options[0]))

    def drawn(
        self,
        min_rows: int = 0,
        max_rows: int = 6,
        first: tuple[str, str] | None = None,
        inside: bool = False,
    ) -> st.SearchStrategy[Case]:
        """Batches within the strategy's limits."""
        return cases.cases(self.kinds, self.max_depth, min_rows, max_rows, first, inside)

    def awkward(self) -> Case:
        """The batch of all awkward values, within the strategy's limits."""
        return cases.awkward_case(self.kinds, self.max_depth)

    def drawn_options(self) -> st.SearchStrategy[SerdeOptions]:
        """Drawn options, including the strategy's own."""
        return st.builds(
            SerdeOptions,
            execution=st.sampled_from(["", *self.strategy().executions]),
            rows_per_frame=st.sampled_from([1, 1, 2, 3, 0]),
            max_frame_bytes=st.sampled_from([8 << 20, 8 << 20, 1, 300]),
            integrity=st.sampled_from(["none", "none", "crc32c"]),
            own=st.sampled_from(list(self.own_options)),
        )

    def check_each(self, law: Callable[[tuple[Case, SerdeOptions]], None], examples: int) -> None:
        """Check a law for drawn batches, and for the one that has every kind."""
        for options in self.fixed_options():
            law((self.awkward(), options))
        for_all(examples, st.tuples(self.drawn(), self.drawn_options()), law)

    def fixed_options(self) -> list[SerdeOptions]:
        """Variants of the default options, each with one change."""
        first = SerdeOptions(own=self.own_options[0])
        changed = [replace(first, execution=e) for e in self.strategy().executions]
        changed += [replace(first, rows_per_frame=0), replace(first, integrity="crc32c")]
        return changed + [replace(first, rows_per_frame=0, own=own) for own in self.own_options[1:]]

    def check_batch(self, found: pa.RecordBatch, batch: pa.RecordBatch, what: object) -> None:
        """Fail unless `found` is the expected result of a round trip of `batch`."""
        found.validate(full=True)
        difference = first_difference(found, self.expected(batch))
        assert difference is None, f"{self.name} ({what}): {difference}"

    def round_trip(self, case: Case, options: SerdeOptions) -> Frames:
        """Check that a batch survives the round trip; returns its frames."""
        schema, batch = case
        bound = self.bind(schema, options)
        records = bound.from_arrow(batch)
        assert len(records) == len(batch)
        frames = bound.encode(records, Bounds.single(len(batch)))
        decoded = bound.decode(frames.frame)
        assert len(decoded) == len(batch)
        filed = decoded.to_rows()
        whole = decoded.to_arrow()
        self.check_batch(whole, batch, options)
        difference = first_difference(as_filed(whole, *filed), whole)
        assert difference is None, f"{self.name} ({options}), to_rows: {difference}"
        return frames

    def encode(self, bound: BoundSerde, batch: pa.RecordBatch) -> Frames:
        """The frames of `batch`, all for one target."""
        return bound.encode(bound.from_arrow(batch), Bounds.single(len(batch)))


def raised(kind: type[E], act: Callable[[], object], what: str) -> E:
    """The error of class `kind` that `act` raises; fails on any other outcome."""
    try:
        outcome = act()
    except kind as error:
        return error
    raise AssertionError(f"no {kind.__name__} but {outcome} for {what}")


def some() -> int:
    """The number of examples for laws other than the main one."""
    return max(10, EXAMPLES // 5)


def check_frames(found: Frames, expected: Frames, what: str) -> None:
    """Fail unless both have the same bytes in the same frames."""
    assert found.rows.equals(expected.rows), f"{what}: {found.rows}, expected {expected.rows}"
    assert found.target.equals(expected.target), what
    for i, (a, b) in enumerate(
        zip(found.frame.to_pylist(), expected.frame.to_pylist(), strict=True)
    ):
        assert a == b, f"{what}: frame {i} is {a.hex()}, expected {b.hex()}"
