"""Measures Apache Hudi's record classes in a codec run: the JVM's counterparts of the four verbs.

| verb | in the JVM |
|---|---|
| from_arrow | Spark's rows to Hudi's records, with their keys, by Hudi's own writer |
| encode | records through Kryo into memory |
| decode | and back |
| to_arrow | what Hudi's file writer takes: an Avro record is decoded; one of Spark's rows is there already |

CPU is that of the thread that runs the loop, without the JVM's collector and compiler, as Python's collector
rests in the other arms. Each verb runs on 100,000 records before it is timed, for the JVM's compiler.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from py4j.protocol import Py4JError

from serde_lab.errors import LabError
from serde_lab.lab.cells.cell import CellResult, MeasurableCell
from serde_lab.lab.cells.codec_cases import CodecBatch
from serde_lab.lab.cells.peer_arms import options_of_peer
from serde_lab.lab.cells.verb_times import COME_BACK, CaseTimes, VerbTime, cell_samples
from serde_lab.lab.session.session import SessionSettings, start_session, stop_session
from serde_lab.peers.apache_hudi import root_cause
from serde_lab.peers.record_classes import RECORD_CLASSES, RecordLoops
from serde_lab.records.plain_form import first_difference
from serde_lab.records.schema import RECORD_KEY
from serde_lab.runs.model import Check
from serde_lab.scenario.model import Arm, Scenario
from serde_lab.verify.table_checks import TableVerdict

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_WARM_RECORDS = 100_000
_RECORDS_A_LOOP = 10_000
_LOOPS = 5


@dataclass
class RecordBench:
    """The JVM in which record classes are measured; its Spark session starts when it is first needed."""

    scenario: Scenario
    batches: Sequence[CodecBatch]
    work: Path
    settings: SessionSettings
    differences: dict[str, str] = field(default_factory=dict)
    """For each arm that was measured, how the records that were read back differ; "" if they do not."""
    _session: SparkSession | None = None

    def cell(self, arm: Arm) -> MeasurableCell:
        return RecordCell(self, arm)

    def close(self) -> None:
        """Stop the session, if it was started."""
        if self._session is not None:
            stop_session(self._session)
            self._session = None

    def judge(self, arm: Arm) -> TableVerdict:
        """What the last cell of `arm` found when it compared what was read back with what was written."""
        found = self.differences[arm.name]
        records = sum(len(batch.rows) for batch in self.batches)
        detail = found or f"{records:,} records of {len(self.batches)} cases"
        return TableVerdict((Check(COME_BACK, not found, detail),), None)

    def loops(self, arm: Arm, batch: CodecBatch) -> RecordLoops:
        """The loops over the records of a batch."""
        if self._session is None:
            self._session = start_session(self.settings)
        rows = batch.rows.select(batch.schema.data.names)
        kind = RECORD_CLASSES[arm.peer or ""]
        options = options_of_peer(self.scenario, arm, 1)
        return RecordLoops(self._session, kind, rows, options, self.work)


@dataclass(frozen=True, slots=True)
class RecordCell(MeasurableCell):
    """One record class in one round: every verb on every batch, then what was read back is compared."""

    bench: RecordBench
    arm: Arm

    def measure(self) -> CellResult:
        cases: dict[int, CaseTimes] = {}
        differences = []
        try:
            for number, batch in enumerate(self.bench.batches, start=1):
                loops = self.bench.loops(self.arm, batch)
                cases[number] = measure_loops(loops)
                found = difference(loops, batch)
                differences += [f"{batch.case.name}: {found}"] if found else []
        except Py4JError as exc:
            cause = root_cause(str(exc))
            raise LabError(f"Apache Hudi's records cannot be measured: {cause}") from exc
        self.bench.differences[self.arm.name] = "; ".join(differences)
        return CellResult(cell_samples(cases), None)


def measure_loops(loops: RecordLoops) -> CaseTimes:
    """Each verb's time for one pass over the rows, and the bytes of the stream."""
    rows = len(loops.rows)
    # serialising an Avro record leaves its bytes in it, so every pass gets records that are new
    verbs: dict[str, tuple[Callable[[], Any], Callable[[Any], Any]]] = {
        "from_arrow": (lambda: None, lambda _: loops.converted()),
        "encode": (lambda: (loops.sink(), loops.fresh()), lambda made: loops.write(*made)),
        "decode": (lambda: _written(loops), loops.read),
        "to_arrow": (lambda: loops.read(_written(loops)), loops.forced),
    }
    times = {verb: _least(loops, prepare, act, rows) for verb, (prepare, act) in verbs.items()}
    _written(loops)
    return CaseTimes(rows, times, loops.sent_bytes)


def _written(loops: RecordLoops) -> Any:
    """A stream of the records, to be read."""
    records = loops.fresh()
    loops.write(loops.sink(), records)
    return loops.source()


def _least(
    loops: RecordLoops, prepare: Callable[[], Any], act: Callable[[Any], Any], rows: int
) -> VerbTime:
    """The time of the loop with the least CPU time, once the JVM has compiled it."""
    for _ in range(-(-_WARM_RECORDS // rows)):
        act(prepare())
    passes = max(1, _RECORDS_A_LOOP // rows)
    best = VerbTime(0.0, float("inf"))
    loops.collect_garbage()
    for _ in range(_LOOPS):
        cpu_ns = wall_ns = 0
        for _ in range(passes):
            made = prepare()
            began_ns, cpu_before_ns = time.perf_counter_ns(), loops.cpu_ns()
            act(made)
            cpu_ns += loops.cpu_ns() - cpu_before_ns
            wall_ns += time.perf_counter_ns() - began_ns
        if cpu_ns / passes < best.cpu_ns:
            best = VerbTime(wall_ns / passes, cpu_ns / passes)
    return best


def difference(loops: RecordLoops, batch: CodecBatch) -> str:
    """How the records that were read back differ from the batch: their keys, then their rows; "" if not."""
    keys = loops.keys(loops.read(_written(loops)))
    if keys != batch.rows.column(RECORD_KEY).to_pylist():
        return f"other keys came back: {len(keys):,} of {len(batch.rows):,}, the first {keys[:1]}"
    found = loops.rows_of(loops.read(_written(loops))).combine_chunks().to_batches()
    rows = found[0] if found else pa.RecordBatch.from_pylist([], schema=loops.rows.schema)
    return first_difference(rows, batch.rows.select(batch.schema.data.names)) or ""
