"""Measures the cells of a codec run: times the four verbs of an arm's strategy on every case.

There is no exchange, table or Spark: only a strategy and its records. The `commit` of a sample is the
number of its case, from 1.
"""

from __future__ import annotations

import gc
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Self

import pyarrow as pa

from serde_lab.lab.cells.cell import CellResult, MeasurableCell
from serde_lab.lab.cells.codec_cases import CodecBatch, codec_batches, frame_bytes
from serde_lab.lab.cells.verb_times import COME_BACK, CaseTimes, VerbTime, cell_samples
from serde_lab.lab.checks.referee import LEAST_SHARE, WORK_IS_DONE_IN_THE_CELLS, shuffled
from serde_lab.lab.inputs.prepared import PreparedInputs
from serde_lab.lab.plan import serde_options
from serde_lab.measure.environment import calibrate
from serde_lab.records.plain_form import first_difference
from serde_lab.records.schema import RecordSchema
from serde_lab.runs.model import Check
from serde_lab.scenario.model import Arm, Scenario
from serde_lab.serde.interface import Bounds, BoundSerde
from serde_lab.serde.registry import strategy
from serde_lab.verify.table_checks import TableVerdict

if TYPE_CHECKING:
    from serde_lab.lab.cells.record_cells import RecordBench
    from serde_lab.lab.session.session import SessionSettings

_RECORDS_A_LOOP = 10_000
_MOST_PASSES = 50
_LOOPS, _LOOPS_NS = 5, 50_000_000
_FEWEST_UNSEEN, _PASSES = 10_000, 2
"""Of fewer records, CPU times of the first passes say too little."""


@dataclass(frozen=True, slots=True)
class CodecCells:
    """The cells of a codec run, and their checks. The batches are held in memory.

    `records` measures Apache Hudi's record classes, None for a run without them.
    """

    batches: Sequence[CodecBatch]
    work: Path
    records: RecordBench | None = None

    @classmethod
    def of(
        cls,
        scenario: Scenario,
        inputs: PreparedInputs,
        schema: RecordSchema,
        work: Path,
        session: SessionSettings | None = None,
    ) -> Self | None:
        """The cells of a codec run; None if the scenario writes tables.

        `session` has the settings of a Spark session with Apache Hudi, if there are to be peers.
        """
        if not scenario.codec_only:
            return None
        batches = tuple(codec_batches(scenario, inputs, schema))
        if session is None:
            return cls(batches, work)
        from serde_lab.lab.cells.record_cells import RecordBench

        return cls(batches, work, RecordBench(scenario, batches, work, session))

    def close(self) -> None:
        """Stop the session of the record classes, if there is one."""
        if self.records is not None:
            self.records.close()

    def set_up(self) -> None:
        """Do nothing: codec cells need no table."""

    def cell(self, name: str, arm: Arm) -> MeasurableCell:
        if self.records is not None and arm.kind == "peer":
            return self.records.cell(arm)
        return CodecCell(self.batches, arm)

    def discard(self, name: str) -> None:
        """Do nothing: codec cells leave nothing behind."""

    def calibrate(self) -> Mapping[str, float]:
        return calibrate(self.work)

    def judge(self, arm: Arm, result: CellResult) -> TableVerdict:
        """Check that every record of every case is decoded as it was encoded."""
        if self.records is not None and arm.kind == "peer":
            return self.records.judge(arm)
        lossy = bool(strategy(arm.strategy or "").losses())
        records = 0
        for batch in self.batches:
            bound = _bound(arm, batch)
            found = _again(bound, batch.rows)
            # with declared losses, a second round trip must give the same rows as the first
            expected = _again(bound, found) if lossy else batch.rows
            difference = first_difference(found, expected)
            if difference is not None:
                detail = f"{batch.case.name}: {difference}"
                return TableVerdict((Check(COME_BACK, False, detail),), None)
            records += len(found)
        detail = f"{records:,} records of {len(self.batches)} cases"
        found_right = Check(COME_BACK, True, detail)
        return TableVerdict((found_right, *self._of_unseen(arm, result)), None)

    def _of_unseen(self, arm: Arm, result: CellResult) -> Iterator[Check]:
        """Compare the CPU time of the largest batch of records with that of rows which the arm never got.

        A cell gives a strategy the same batch again and again, so it could keep what it made of it.
        """
        of_records = [n for n, one in enumerate(self.batches, 1) if one.case.group == "record"]
        number = max(of_records, key=lambda n: len(self.batches[n - 1].rows))
        batch = self.batches[number - 1]
        if len(batch.rows) < _FEWEST_UNSEEN:
            return
        cpu = (s for s in result.samples if s.metric == "phase_cpu_s" and s.commit == number)
        cpu_s = math.fsum(sample.value for sample in cpu)
        with _one_thread():
            bound = _bound(arm, batch)
            unseen_s = min(_first_time_s(bound, shuffled(batch.rows)) for _ in range(_PASSES))
        detail = (
            f"{batch.case.name} took {cpu_s:.2g} s of CPU, and {unseen_s:.2g} s for unseen rows"
        )
        yield Check(WORK_IS_DONE_IN_THE_CELLS, cpu_s >= LEAST_SHARE * unseen_s, detail)


@dataclass(frozen=True, slots=True)
class CodecCell(MeasurableCell):
    """One arm in one round: every verb of its strategy on every case."""

    batches: Sequence[CodecBatch]
    arm: Arm

    def measure(self) -> CellResult:
        with _one_thread():
            cases = {
                number: CaseTimes(
                    len(batch.rows), *measure_verbs(_bound(self.arm, batch), batch.rows)
                )
                for number, batch in enumerate(self.batches, start=1)
            }
        return CellResult(cell_samples(cases), None)


def measure_verbs(bound: BoundSerde, rows: pa.RecordBatch) -> tuple[dict[str, VerbTime], int]:
    """Each verb's time for one pass over `rows`, and the bytes of the frames."""
    bounds = Bounds.single(len(rows))
    records = bound.from_arrow(rows)
    encoded = bound.encode(records, bounds)
    frames = encoded.frame
    # records cache what was read from them, so to_arrow gets newly decoded ones, made outside the clock
    verbs: dict[str, tuple[Callable[[], object], Callable[[object], object]]] = {
        "from_arrow": (lambda: None, lambda _: bound.from_arrow(rows)),
        "encode": (lambda: None, lambda _: bound.encode(records, bounds)),
        "decode": (lambda: None, lambda _: bound.decode(frames)),
        "to_arrow": (lambda: bound.decode(frames), lambda made: made.to_arrow()),  # type: ignore[attr-defined]
    }
    passes = max(1, min(_MOST_PASSES, _RECORDS_A_LOOP // max(1, len(rows))))
    times = {verb: least(prepare, act, passes) for verb, (prepare, act) in verbs.items()}
    return times, frame_bytes(encoded)


def least(
    prepare: Callable[[], object],
    act: Callable[[object], object],
    passes: int = 1,
    loops: int = _LOOPS,
    most_ns: float = _LOOPS_NS,
) -> VerbTime:
    """The time of the loop with the least CPU time, with Python's garbage collector switched off.

    The collector would run at random moments. No loop begins once the earlier ones took `most_ns`.
    """
    act(prepare())
    best = VerbTime(0.0, float("inf"))
    began = time.perf_counter_ns()
    for loop in range(loops):
        if loop and time.perf_counter_ns() - began > most_ns:
            break
        inputs = [prepare() for _ in range(passes)]
        gc.disable()
        try:
            cpu_ns, wall_ns = time.process_time_ns(), time.perf_counter_ns()
            for one in inputs:
                act(one)
            wall_ns = time.perf_counter_ns() - wall_ns
            cpu_ns = time.process_time_ns() - cpu_ns
        finally:
            gc.enable()
        if cpu_ns / passes < best.cpu_ns:
            best = VerbTime(wall_ns / passes, cpu_ns / passes)
    return best


def _bound(arm: Arm, batch: CodecBatch) -> BoundSerde:
    return strategy(arm.strategy or "").bind(batch.schema, serde_options(arm))


def _again(bound: BoundSerde, rows: pa.RecordBatch) -> pa.RecordBatch:
    """The rows encoded and decoded."""
    frames = bound.encode(bound.from_arrow(rows), Bounds.single(len(rows)))
    return bound.decode(frames.frame).to_arrow()


def _first_time_s(bound: BoundSerde, rows: pa.RecordBatch) -> float:
    """The CPU seconds of the four verbs on rows that the strategy has not got before."""
    begun_s = time.process_time()
    _again(bound, rows)
    return time.process_time() - begun_s


@contextmanager
def _one_thread() -> Iterator[None]:
    """Let pyarrow use one thread, as in a worker, so that CPU time is that of the call."""
    before = pa.cpu_count()
    pa.set_cpu_count(1)
    try:
        yield
    finally:
        pa.set_cpu_count(before)
