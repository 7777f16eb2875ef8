"""Defines a cell, one arm in one round: what it measures, its steps, and its result.

Each kind of arm has its own class of cell, in `table_cells`, `spark_cells` and `codec_cells`.
"""

from __future__ import annotations

import gc
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, TypedDict

import pyarrow as pa
import pyarrow.parquet as pq

from serde_lab.errors import LabError
from serde_lab.lab.inputs.prepared import CommitInput, PreparedInputs
from serde_lab.lab.lab_reader import Read, located
from serde_lab.lab.plan import Write, hops_of, serde_options, timed_options
from serde_lab.measure.commit import CommitMeasure, measure_commit
from serde_lab.measure.metrics import Sample
from serde_lab.measure.timeline import THREADS_LEFT, AttemptReport, TaskReport, TaskTimeline
from serde_lab.pipeline.commit.coordinator import Commit
from serde_lab.pipeline.handles.file_groups import FLUSHES
from serde_lab.pipeline.read import open_table
from serde_lab.pipeline.write import PreparedWrite
from serde_lab.records.operation import Operation
from serde_lab.scenario.model import Arm, Scenario
from serde_lab.table.storage.storage import Storage
from serde_lab.table.table import HoodieTable

if TYPE_CHECKING:
    from serde_lab.lab.cells.bench import Bench, Window
    from serde_lab.pipeline.spark.exchange import SparkExchange


QueryRows: TypeAlias = tuple[tuple[Any, ...], ...]
"""The rows of a query's answer, in order."""


@dataclass(slots=True)
class Digest:
    """The rows of an answer, counted and hashed in any order by one kind of sink."""

    rows: int = 0
    hash: int = 0


@dataclass(frozen=True, slots=True)
class ReadAnswer:
    """What a timed read of commit `number` answered: the digest of its rows, and the rows of a second read as
    Parquet files in `folder`, with their digest by the same sink."""

    number: int
    folder: Path
    timed: Digest
    kept: Digest


@dataclass(frozen=True, slots=True)
class CellResult:
    """The result of a cell. `table` is its final table, None if the arm writes none.

    `sniffed` counts frames that reached a reduce task, and `foreign` those of them without the
    strategy's mark. `rows` is the number of rows that a control without a table moved. `threads_left`
    counts phases that ended while one of their threads still ran.
    """

    samples: tuple[Sample, ...]
    table: Path | None
    sniffed: int = 0
    foreign: int = 0
    rows: int = 0
    threads_left: int = 0
    frames: tuple[bytes, ...] = ()
    """Frames of the run, drawn at random where they arrived."""
    data_files: tuple[Path, ...] = ()
    """Of a table in another format, whose rows `table` holds as plain Parquet: its own data files."""
    parts: Mapping[str, CellResult] = field(default_factory=dict)
    """By table, the results of a cell that wrote several, whose `table` and `frames` are the first's."""
    answers: Mapping[str, QueryRows] = field(default_factory=dict)
    """The rows that Spark answered to each query."""
    reads: tuple[ReadAnswer, ...] = ()
    """What timed reads answered."""
    reads_beside: tuple[Read, ...] = ()
    """What readers saw of the table while the cell wrote it."""


@dataclass(frozen=True, slots=True)
class CommitResult:
    """The result of one timed commit; the counts are those of `CellResult`."""

    wall_ns: int
    samples: tuple[Sample, ...]
    sniffed: int = 0
    foreign: int = 0
    rows: int = 0
    threads_left: int = 0
    frames: tuple[bytes, ...] = ()


class MeasurableCell(ABC):
    """One arm in one round."""

    @abstractmethod
    def measure(self) -> CellResult:
        """Measure the cell, once. Raises whatever the arm raised."""


@dataclass(frozen=True, slots=True)
class InputSizes:
    """Uncompressed bytes per row of the input (at least 1), and bytes of the largest commit's files."""

    row_bytes: int
    source_bytes: int

    @classmethod
    def of(cls, inputs: PreparedInputs) -> InputSizes:
        """The sizes of `inputs`, from the footers of its files."""
        size = rows = 0
        for commit in (*inputs.setups, *inputs.commits):
            for file in commit.files:
                footer = pq.read_metadata(file)
                rows += footer.num_rows
                groups = (footer.row_group(i) for i in range(footer.num_row_groups))
                size += sum(group.total_byte_size for group in groups)
        largest = max((sum(f.stat().st_size for f in c.files) for c in inputs.commits), default=0)
        return cls(max(1, size // max(1, rows)), largest)

    def write(self, commit: CommitInput) -> Write:
        return Write(commit.operation, commit.partitions, self.row_bytes, self.source_bytes)


@dataclass(frozen=True, slots=True)
class CellJob:
    """What a cell measures: an arm of a scenario on `table`, its own clone of the set-up table.

    `follows`: the cell has written another table just before, with workers that serve for this one too.
    """

    name: str
    arm: Arm
    scenario: Scenario
    inputs: PreparedInputs
    sizes: InputSizes
    table: Path
    follows: bool = False


class CommitsCell(MeasurableCell):
    """A cell that measures the scenario's timed commits, one after the other."""

    slots = 1

    def __init__(self, job: CellJob) -> None:
        self.job = job

    @property
    def table(self) -> Path | None:
        """The table that it writes; None if it writes none."""
        return self.job.table

    def start(self) -> Iterator[Sample]:
        """Prepare for the first commit, before any clock starts; yields what this measured."""
        yield from ()

    @abstractmethod
    def commit(self, group: str, number: int, commit: CommitInput) -> CommitResult:
        """Measure commit `number`, from 1; `group` names it among all commits of the run."""

    def measure(self) -> CellResult:
        samples = list(self.start())
        done: list[CommitResult] = []
        for number, commit in enumerate(self.job.inputs.commits, start=1):
            found = self.commit(f"{self.job.name}#{number}", number, commit)
            samples.append(Sample("seconds", found.wall_ns / 1e9, number))
            samples += found.samples
            done.append(found)
        samples.append(Sample("seconds", sum(one.wall_ns for one in done) / 1e9))
        samples.append(Sample("slots", self.slots))
        return CellResult(
            tuple(samples),
            self.table,
            sniffed=sum(one.sniffed for one in done),
            foreign=sum(one.foreign for one in done),
            rows=sum(one.rows for one in done),
            threads_left=sum(one.threads_left for one in done),
            frames=tuple(frame for one in done for frame in one.frames),
        )


@dataclass(frozen=True, slots=True)
class Written:
    """A commit that the lab's pipeline wrote, and how it was measured."""

    commit: Commit
    wall_ns: int
    measure: CommitMeasure


class WriteCell(CommitsCell):
    """A cell whose arm writes a Hudi table through the lab's own pipeline."""

    def commit(self, group: str, number: int, commit: CommitInput) -> CommitResult:
        job = self.job
        options = timed_options(job.scenario, job.arm, job.sizes.write(commit))
        if options.operation is Operation.UPSERT_PREPPED:
            data = job.scenario.data
            key = tuple(dict.fromkeys([*data.record_key, *data.partition]))
            folder = job.table.parent / f"{job.table.name}-located-{commit.name}"
            commit = located(commit, job.table, key, folder)
        prepared = PreparedWrite.of(Storage.open(job.table), schema_of(commit), options)
        written = self.write(group, prepared, commit)
        counters = written.measure.counters.values()
        samples = [*written.measure.samples(number)]
        samples.append(Sample("files", len(written.commit.stats), number))
        samples.append(Sample("table_bytes", table_bytes(open_table(job.table)), number))
        if mini_batches := sum(counted.get(FLUSHES, 0) for counted in counters):
            samples.append(Sample("mini_batches", mini_batches, number))
        if number == 1 and job.arm.strategy is not None:
            samples.append(Sample("hops", hops_of(job.scenario, job.arm), number))
        return CommitResult(
            written.wall_ns,
            tuple(samples),
            **frame_counts(counters),
            frames=written.measure.kept,
        )

    @abstractmethod
    def write(self, group: str, prepared: PreparedWrite, commit: CommitInput) -> Written:
        """Write one commit under the clock."""


class SparkCell(CommitsCell):
    """A cell that works in the Spark session of `bench`."""

    def __init__(self, bench: Bench, job: CellJob) -> None:
        super().__init__(job)
        self.bench, self.slots = bench, bench.slots


class SparkWriteCell(SparkCell, WriteCell):
    """A cell whose tasks run in the Spark session of `bench`."""

    def start(self) -> Iterator[Sample]:
        job = self.job
        if job.follows:
            return
        rows = max((c.rows // max(1, len(c.files)) for c in job.inputs.commits), default=0)
        strategy, options = job.arm.strategy or "arrow", serde_options(job.arm)
        yield from self.bench.fresh_workers(job.name, strategy, options, rows)

    def write(self, group: str, prepared: PreparedWrite, commit: CommitInput) -> Written:
        driver, exchange = TaskTimeline("driver"), self.exchange(commit)
        with self.bench.batches_of(prepared.options.max_records_per_batch), prepared.hold():
            written, window = self.bench.measured(
                group, lambda: prepared.commit(exchange, timeline=driver)
            )
        if exchange.obstacle:
            raise LabError(
                f"arm {self.job.arm.name!r} has shuffle = 'rdd', but {exchange.obstacle}"
            )
        measure = measure_of(window, self.slots, exchange.reports, driver=driver.report())
        return Written(written, window.wall_ns, measure)

    @abstractmethod
    def exchange(self, commit: CommitInput) -> SparkExchange:
        """The exchange that carries the rows of `commit`."""


def measure_of(
    window: Window,
    slots: int,
    reports: Iterable[AttemptReport] = (),
    *,
    driver: TaskReport | None = None,
    labels: Mapping[int, str] | None = None,
) -> CommitMeasure:
    """The split of a window's time on `slots` task slots."""
    found, tree = window.history, window.tree
    return measure_commit(
        window.interval, slots, found, reports, driver=driver, labels=labels, tree=tree
    )


class FrameCounts(TypedDict):
    """Counts of `CellResult`."""

    sniffed: int
    foreign: int
    threads_left: int


def frame_counts(counters: Collection[Mapping[str, int]]) -> FrameCounts:
    """`sniffed`, `foreign` and `threads_left` of `CellResult`, from what stages or tasks counted."""
    return {
        # sent frames are counted without index records, so received ones are too
        "sniffed": sum(
            c.get("frames_sniffed", 0) - c.get("index_frames_sniffed", 0) for c in counters
        ),
        "foreign": sum(c.get("frames_foreign", 0) for c in counters),
        "threads_left": sum(c.get(THREADS_LEFT, 0) for c in counters),
    }


@contextmanager
def heap_set_aside() -> Iterator[None]:
    """Exclude the objects that exist now from garbage collections during the cell.

    A cell of many small objects would otherwise pay, every other time, for a scan of the whole process:
    twice its own SerDe time. Workers on Spark start the same way.
    """
    gc.collect()
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()


def schema_of(commit: CommitInput) -> pa.Schema:
    return pq.read_schema(commit.files[0]).remove_metadata()


def table_bytes(table: HoodieTable) -> int:
    """Total bytes of the files that a snapshot of `table` reads."""
    latest = table.view().latest_file_slices()
    files = [file for slice_ in latest for file in (slice_.base_file, *slice_.log_files)]
    return sum(file.size_bytes for file in files if file is not None)
