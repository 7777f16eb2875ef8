"""Estimates the time and the disk space of a run before it starts, and refuses one that would fill the disk.

The time comes from an earlier run of the same scenario if there is one, which may be a reference run, else
from the number of rows and rough costs. It counts what is outside the clock too: starts, set-ups and checks.
The space is in bytes per row, measured on lineitem with zstd; rows of the user's own files
count in proportion to their size.
"""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from statistics import mean, median
from tempfile import gettempdir

from serde_lab.errors import LabError, SetupError
from serde_lab.lab.cells.codec_cases import codec_cases
from serde_lab.lab.inputs import user_files
from serde_lab.lab.inputs.prepared import are_prepared, default_cache
from serde_lab.lab.plan import cells_of_points, hops_of
from serde_lab.lab.run_settings import RunSettings
from serde_lab.lab.search import PlannedRung
from serde_lab.runs.directory import RunEntry, list_runs, load_run
from serde_lab.runs.model import MeasuredCell, Run
from serde_lab.scenario.identity import asked, asked_of
from serde_lab.scenario.model import Arm, ParquetData, Scenario
from serde_lab.scenario.sections import ShapesData
from serde_lab.scenario.sweep import SweepPoint, tables_of
from tpch import TABLES

# Rough costs on two cores, fitted to the runs in results/reference, whose real durations a test compares.
_POINT_S, _WARM_POINT_S, _SESSION_S = 20.0, 7.0, 12.0
"""Seconds before the first cell of a point and after its last: Spark's start, set-up, and checks of frames;
the same in a session that has started already; and of one session more."""
_CELL_S, _PEER_CELL_S, _TABLE_S = 3.8, 1.0, 1.5
"""Seconds of a cell before its rows count, most of which start fresh workers, which peers do without; and of
each table but the first, for its clone and its checks."""
_INPUT_MICROSECONDS = 2.0
"""Microseconds of a row of a batch, and of a made-up row; TPC-H's generator needs next to none."""
_MICROSECONDS = {
    "avro": 18.0,
    "pickle": 8.5,
    "hudi_avro": 15.0,
    "hudi_spark": 12.5,
    "hudi_one_exchange": 6.5,
    "hudi_spark_tuned": 7.5,
    "hudi_spark_tuned_before": 7.5,
    "exchange_only": 1.5,
    "sql_merge": 10.0,
    "arrow_udf": 12.0,
    "pandas_udf": 21.0,
    "rdd_cloudpickle": 121.0,
    "delta_merge": 19.0,
    "iceberg_merge": 18.0,
    "hudi_rs": 8.0,
    "duckdb_scan": 0.5,
}
"""Microseconds of a timed row by kind of arm, and below of a row that is checked, by type of table."""
_OTHER_EXECUTIONS = {("avro", "batch"): 4.5, ("internal_row", "row"): 17.0}
_OTHER_MICROSECONDS = 3.2
_FOUND, _FOUND_WHILE_WRITING = 0.22, 2.5
"""How often as long as a written row a row takes that a read or a compaction finds; the latter is for three
reads beside another process that writes."""
_INTO_NOTHING = 0.65
"""The share of these that a strategy takes if the table is empty at first."""
_CHECK_MICROSECONDS = {"COPY_ON_WRITE": 1.3, "MERGE_ON_READ": 4.6}
_ORACLE_MICROSECONDS = 2.5
_BATCH_S, _PEER_BATCH_S = 0.3, 1.3
"""Seconds of a stream's micro-batch before its rows count."""
_COMMIT_S, _QUERY_S, _QUERY_MICROSECONDS = 0.5, 2.5, 0.2
"""Seconds of a commit and of a query before their rows count, and microseconds of a query per written row."""
_CASE_ROWS, _RECORD_CASE_S = 170_000, 12.0
"""A case of a codec run takes as long as so many rows of a write; one of Apache Hudi's records, seconds."""
_RECORD_COLUMNS = 17
# bytes per row of lineitem: as generated, as a batch of the input, in the shuffle, in a table, in the oracle
_GENERATED, _INPUT, _SHUFFLE, _TABLE, _ORACLE = 36, 48, 120, 90, 110
_SHUFFLES = 2
"""Spark deletes the files of a shuffle some time after its last use, so the previous cell's may remain."""
_WORTH_SAYING = 1 << 30
_SHAPED_ROW = 80
"""Bytes of a made-up row that need as much disk as a row of lineitem, which compresses better."""
_COLUMNS, _ROW_BYTES, _FILE_GROUP_S = 22, 550, 0.006
"""Columns and bytes of a row of lineitem in memory, and seconds of a file group before its rows count."""


def estimate_run(
    points: Sequence[tuple[SweepPoint, Sequence[Arm]]], results: Path, cache: Path | None = None
) -> tuple[float, str]:
    """Seconds for all points of a run, and a description of what the estimate is based on.

    Input that `cache` holds already takes no time; None is the default cache.
    """
    cells = Counter(cell.arm for plan in cells_of_points(points) for cell in plan)
    inputs_s = sum(_inputs_s(point.scenario, cache) for point, _ in points)
    earlier = _earlier(points[0][0].scenario, cells, results)
    if earlier is not None:
        return inputs_s + earlier.seconds(cells), _AS_EARLIER
    known_s = inputs_s - sum(_POINT_S - _WARM_POINT_S for point, _ in points[1:] if point.of_shapes)
    return known_s + sum(_from_rows(p.scenario, arms, cells) for p, arms in points), _FROM_ROWS


def estimate_search(
    scenario: Scenario, arms: Sequence[Arm], rungs: Sequence[PlannedRung], results: Path
) -> tuple[float, str]:
    """The same for a search that measures `rungs`; its sessions start anew in each heat."""
    cells = Counter(name for rung in rungs for name in rung.cells)
    starts_s = _SESSION_S * sum(rung.sessions for rung in rungs)
    earlier = _earlier(scenario, cells, results)
    if earlier is not None:
        return earlier.seconds(cells) + starts_s, _AS_EARLIER
    return _from_rows(scenario, arms, cells) + starts_s, _FROM_ROWS


_AS_EARLIER = "as in an earlier run of this scenario"
_FROM_ROWS = "estimated from the number of rows; no earlier run has them"


def _from_rows(scenario: Scenario, arms: Sequence[Arm], cells: Mapping[str, int]) -> float:
    """Seconds of one point, by rough costs; `cells` is how many each arm has."""
    if scenario.codec_only:
        cases = len(codec_cases(scenario, _RECORD_COLUMNS))
        per_case = {
            arm.name: _RECORD_CASE_S if arm.peer else _CASE_ROWS * 1e-6 * _microseconds(arm)
            for arm in arms
        }
        return cases * sum(cells[name] * s for name, s in per_case.items())
    tables = tables_of(scenario).values()
    rows = {one.name: [_weight(one) * n for n in one.rows_of(_source(one)[0])] for one in tables}
    timed = sum(_timed_rows(one, rows[one.name]) for one in tables)
    every = sum(map(sum, rows.values()))
    commits = sum(len(one.commits) for one in tables)
    batches = 0 if scenario.stream is None else scenario.stream.batches
    # a process without Spark has no second core
    cores = 1.0 if scenario.measure.exchange == "spark" else 2.0
    seconds = {
        arm.name: (_PEER_CELL_S if arm.peer else _CELL_S)
        + (len(rows) - 1) * _TABLE_S
        + commits * _COMMIT_S
        + batches * (_PEER_BATCH_S if arm.peer else _BATCH_S)
        + len(scenario.queries) * (_QUERY_S + timed * 1e-6 * _QUERY_MICROSECONDS)
        + _of_file_groups(scenario)
        + timed * 1e-6 * _microseconds(arm) * _passes(scenario, arm) * cores
        + every * 1e-6 * _CHECK_MICROSECONDS[scenario.table_of(arm).type]
        for arm in arms
    }
    return (
        _POINT_S
        + every * 1e-6 * _ORACLE_MICROSECONDS
        + sum(cells[name] * s for name, s in seconds.items())
    )


def _timed_rows(scenario: Scenario, rows: Sequence[float]) -> float:
    """The rows that timed commits write, and in proportion those that reads and compactions find.

    `rows` are those of all batches.
    """
    written = 0.0
    for number, batch in enumerate(scenario.batches[len(scenario.setups) :], len(scenario.setups)):
        found = _FOUND_WHILE_WRITING if batch.while_writing else _FOUND
        written += rows[number] if batch.writes else found * sum(rows[:number])
    return written


def _inputs_s(scenario: Scenario, cache: Path | None) -> float:
    """Seconds for making the input that does not exist yet."""
    rows = 0.0
    for table in tables_of(scenario).values():
        if not are_prepared(table, cache):
            source, _ = _source(table)
            made_up = source if isinstance(table.data, ShapesData) else 0
            rows += _weight(table) * (made_up + sum(table.rows_of(source)))
    return rows * 1e-6 * _INPUT_MICROSECONDS


def _passes(scenario: Scenario, arm: Arm) -> float:
    """How often as long a row of `arm` takes as one that crosses once and meets a stored one."""
    if arm.strategy is None:
        return 1.0
    return hops_of(scenario, arm) * (1.0 if scenario.setups else _INTO_NOTHING)


def _weight(scenario: Scenario) -> float:
    """How many rows of lineitem take as long as one row of the scenario."""
    data = scenario.data
    if not isinstance(data, ShapesData):
        return 1.0
    return data.columns / _COLUMNS + data.shape.row_bytes / _ROW_BYTES


def _of_file_groups(scenario: Scenario) -> float:
    """Seconds of a cell for its file groups, if their number is known."""
    data = scenario.data
    if not isinstance(data, ShapesData):
        return 0.0
    return data.partitions * scenario.table.buckets * _FILE_GROUP_S


def _microseconds(arm: Arm) -> float:
    usual = _MICROSECONDS.get(arm.subject, _OTHER_MICROSECONDS)
    return _OTHER_EXECUTIONS.get((arm.subject, arm.options.execution or ""), usual)


@dataclass(frozen=True, slots=True)
class _Earlier:
    """An earlier run: its seconds before the first cell, and those of an arm's cell with all that followed
    before the next cell, such as its checks."""

    start_s: float
    cell_s: Mapping[str, float]

    def seconds(self, cells: Mapping[str, int]) -> float:
        return self.start_s + sum(n * self.cell_s[arm] for arm, n in cells.items())


_LONGEST_REST_S = 600.0
"""What follows a cell takes no longer: the rest of a longer pause is that of a run which was resumed."""


def _earlier(scenario: Scenario, arms: Collection[str], results: Path) -> _Earlier | None:
    """The newest run of the scenario with the same data and all `arms`: in `results`, else among the
    reference runs there. None without one.

    The arms of a sweep and of shapes have names that identify their data.
    """
    for folder in (results, results / "reference"):
        for entry in reversed(list_runs(folder)):
            if entry.scenario == scenario.name and (found := _times_of(entry, scenario, arms)):
                return found
    return None


def _times_of(entry: RunEntry, scenario: Scenario, arms: Collection[str]) -> _Earlier | None:
    """The cell times of `arms` in this run; None if it has other data or lacks some."""
    if entry.header is None:
        return None
    then, now = asked_of(entry.header.scenario_content), asked(scenario)
    several = then.get("sweep") or then.get("shapes")
    if not several and any(then.get(key) != now.get(key) for key in _DATA):
        return None
    try:
        run = load_run(entry.path)
        found = _whole_cells(run) if len(run.cells) >= 2 else None
    except (LabError, ValueError):  # it is damaged, or a time of it is none
        return None
    return found if found is not None and found.cell_s.keys() >= set(arms) else None


_DATA = ("data", "setup", "commit", "dataset", "codec", "queries", "stream")


def _whole_cells(run: Run) -> _Earlier:
    cells = sorted(run.cells, key=lambda cell: cell.started_at)
    begun = [datetime.fromisoformat(cell.started_at) for cell in cells]
    clocks = [_clock_s(cell) for cell in cells]
    rests = [
        min(_LONGEST_REST_S, max(0.0, (later - start).total_seconds() - clock))
        for (start, later), clock in zip(pairwise(begun), clocks, strict=False)
    ]
    rests.append(median(rests))  # nobody wrote down when the last cell's checks ended
    seconds: dict[str, list[float]] = {}
    for cell, clock, rest in zip(cells, clocks, rests, strict=True):
        seconds.setdefault(cell.arm, []).append(clock + rest)
    started = datetime.fromisoformat(run.header.started_at)
    return _Earlier(
        min(_LONGEST_REST_S, (begun[0] - started).total_seconds()),
        {arm: mean(values) for arm, values in seconds.items()},
    )


def _clock_s(cell: MeasuredCell) -> float:
    return sum(s.value for s in cell.samples if s.metric == "seconds" and s.commit is None)


@dataclass(frozen=True, slots=True)
class DiskNeed:
    """Upper bounds of the bytes that a run writes to the cache, and has in its work folder at one time."""

    cache_bytes: int
    work_bytes: int


def disk_need(
    points: Sequence[tuple[Scenario, Sequence[Arm]]], cache: Path | None = None
) -> DiskNeed:
    """The need of all points, which run one after the other; inputs that exist already need nothing."""
    kept, work = 0.0, 0.0
    for point, _ in points:
        of_point = 0.0
        for scenario in tables_of(point).values():
            source_rows, scale = _source(scenario)
            rows = scenario.rows_of(source_rows)
            if not are_prepared(scenario, cache):
                made_up = not isinstance(scenario.data, ParquetData)
                kept += scale * (made_up * source_rows * _GENERATED + sum(rows) * _INPUT)
            if scenario.codec_only:
                continue
            timed = rows[len(scenario.setups) :]
            shuffles = _SHUFFLES * max(timed) * _SHUFFLE
            # a cell's table links the files of the set-up, and copy-on-write keeps the files it replaces
            tables = _TABLE * (sum(rows) + sum(timed))
            of_point += scale * (shuffles + tables + sum(rows) * _ORACLE)
        work = max(work, of_point)
    return DiskNeed(int(kept), int(work))


def check_disk(
    points: Sequence[tuple[Scenario, Sequence[Arm]]],
    settings: RunSettings,
    say: Callable[[str], None],
) -> DiskNeed:
    """Report the need if it is large. Raises SetupError if the disk has less free space."""
    cache = default_cache() if settings.cache is None else settings.cache
    work = Path(gettempdir()) if settings.work is None else settings.work
    need = disk_need(points, cache)
    if need.cache_bytes + need.work_bytes > _WORTH_SAYING:
        say(
            f"needs about {_size(need.cache_bytes)} of disk space for input in {cache}, and"
            f" {_size(need.work_bytes)} for tables in {work}"
        )
    free_cache, free_work = _free(cache), _free(work)
    together = _device(cache) == _device(work)
    for folder, wanted, free, option in (
        (cache, need.cache_bytes + together * need.work_bytes, free_cache, "--cache"),
        (work, need.work_bytes, free_work, "--work"),
    ):
        if wanted > free:
            raise SetupError(
                f"this run needs about {_size(wanted)} in {folder}, which has {_size(free)} free",
                f"name a folder on another disk by {option}, or use a smaller data.scale_factor",
            )
    return need


def _source(scenario: Scenario) -> tuple[int, float]:
    """The number of rows of the source, and the size of its rows relative to those of lineitem."""
    data = scenario.data
    if isinstance(data, ShapesData):
        return data.rows, data.shape.row_bytes / _SHAPED_ROW
    if not isinstance(data, ParquetData):
        return TABLES[data.table].rows_at(data.scale_factor), 1.0
    source = user_files.open_source(data)
    size = sum(file.stat().st_size for file in source.files)
    return source.rows, max(1.0, size / source.rows / _GENERATED)


def _existing(folder: Path) -> Path:
    """The folder itself, or its nearest parent that exists."""
    folder = folder.absolute()
    return next(place for place in (folder, *folder.parents) if place.exists())


def _free(folder: Path) -> int:
    return shutil.disk_usage(_existing(folder)).free


def _device(folder: Path) -> int:
    return _existing(folder).stat().st_dev


def _size(size: int) -> str:
    for unit, name in ((1e12, "TB"), (1e9, "GB"), (1e6, "MB")):
        if size >= unit:
            return f"{size / unit:,.1f} {name}"
    return f"{size / 1e3:,.1f} kB"
