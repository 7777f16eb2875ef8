"""Estimates the time and the disk space of a run before it starts, and refuses one that would fill the disk.

The time comes from an earlier run of the same scenario if there is one, else from the number of rows and
rough costs. The space is in bytes per row, measured on lineitem with zstd; rows of the user's own files
count in proportion to their size.
"""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from tempfile import gettempdir

from serde_lab.errors import LabError, SetupError
from serde_lab.lab.cells.codec_cases import codec_cases
from serde_lab.lab.inputs import own_files
from serde_lab.lab.inputs.prepared import are_prepared, default_cache
from serde_lab.lab.run_settings import RunSettings
from serde_lab.lab.search import PlannedRung
from serde_lab.runs.directory import load_run, resolve_run
from serde_lab.scenario.identity import asked, asked_of
from serde_lab.scenario.model import Arm, ParquetData, Scenario
from serde_lab.scenario.sections import ShapesData
from serde_lab.scenario.sweep import OPEN_TABLES, query_metric, tables_of, writes_several
from tpch import TABLES

# seconds for Spark's start, data and checks; microseconds per row on two cores, by kind of arm
_FIXED_S, _CELL_S, _SESSION_S = 25.0, 2.5, 12.0
_MICROSECONDS = {
    "avro": 18.0,
    "pickle": 7.0,
    "hudi_avro": 20.0,
    "hudi_spark": 13.0,
    "hudi_one_exchange": 11.0,
    "hudi_spark_tuned": 11.0,
    "hudi_spark_tuned_before": 11.0,
}
_OTHER_EXECUTIONS = {("avro", "batch"): 5.5, ("internal_row", "row"): 18.0}
_OTHER_MICROSECONDS = 3.5
_CHECK_MICROSECONDS, _ORACLE_MICROSECONDS = 1.0, 2.5
_BATCH_S, _PEER_BATCH_S = 0.8, 2.0
"""Seconds of a stream's micro-batch before its rows count."""
_COMMIT_S, _QUERY_S, _QUERY_MICROSECONDS = 0.8, 1.5, 0.1
"""Seconds of a commit and of a query before their rows count, and microseconds of a query per written row."""
_CASE_S, _RECORD_CASE_S = 0.6, 25.0
_RECORD_COLUMNS = 17
# bytes per row of lineitem: as generated, as a batch of the input, in the shuffle, in a table, in the oracle
_GENERATED, _INPUT, _SHUFFLE, _TABLE, _ORACLE = 36, 48, 120, 90, 110
_SHUFFLES = 2
"""Spark deletes the files of a shuffle some time after its last use, so the previous cell's may remain."""
_WORTH_SAYING = 1 << 30
_SHAPED_ROW = 80
"""Bytes of a made-up row that need as much disk as a row of lineitem, which compresses better."""
_COLUMNS, _ROW_BYTES, _FILE_GROUP_S = 16, 150, 0.01
"""Columns and bytes of a row of lineitem in memory, and seconds of a file group before its rows count."""


def estimate_run(
    points: Sequence[tuple[Scenario, Sequence[Arm]]], results: Path
) -> tuple[float, str]:
    """Seconds for all points of a run, and a description of what the estimate is based on."""
    estimates = [estimate_seconds(scenario, arms, results) for scenario, arms in points]
    return sum(seconds for seconds, _ in estimates), estimates[-1][1]


def estimate_seconds(
    scenario: Scenario,
    arms: Sequence[Arm],
    results: Path,
    cells_of: Mapping[str, int] | None = None,
) -> tuple[float, str]:
    """The same for one point.

    `cells_of`: how many cells each arm has, None for one in each round of the scenario.
    """
    cells = scenario.measure.warmup + scenario.measure.rounds
    if scenario.codec_only:
        cases = len(codec_cases(scenario, _RECORD_COLUMNS))
        per_round = sum(_RECORD_CASE_S if arm.peer else _CASE_S for arm in arms)
        return cells * cases * per_round, "estimated from the number of cases"
    before = _measured(scenario, results)
    if before and all(arm.name in before for arm in arms):
        seconds = {arm.name: before[arm.name] + _CELL_S for arm in arms}
        return _FIXED_S + _in_all(seconds, cells, cells_of), "as in an earlier run of this scenario"
    tables = tables_of(scenario).values()
    rows = sum(
        _weight(one) * sum(one.rows_of(_source(one)[0])[len(one.setups) :]) for one in tables
    )
    batches = 0 if scenario.stream is None else scenario.stream.batches
    seconds = {
        arm.name: _CELL_S
        + batches * (_PEER_BATCH_S if arm.peer else _BATCH_S)
        + _of_several(scenario, rows)
        + _of_file_groups(scenario)
        + rows * 1e-6 * (_CHECK_MICROSECONDS + _microseconds(arm))
        for arm in arms
    }
    fixed_s = _FIXED_S + rows * 1e-6 * _ORACLE_MICROSECONDS
    measured_s = _in_all(seconds, cells, cells_of)
    return fixed_s + measured_s, "estimated from the number of rows; no earlier run has them"


def estimate_search(
    scenario: Scenario, arms: Sequence[Arm], rungs: Sequence[PlannedRung], results: Path
) -> tuple[float, str]:
    """The same for a search that measures `rungs`; its sessions start anew in each heat."""
    cells = Counter(name for rung in rungs for name in rung.cells)
    seconds, basis = estimate_seconds(scenario, arms, results, cells)
    return seconds + _SESSION_S * sum(rung.sessions for rung in rungs), basis


def _in_all(seconds: Mapping[str, float], cells: int, cells_of: Mapping[str, int] | None) -> float:
    return sum(s * (cells if cells_of is None else cells_of[arm]) for arm, s in seconds.items())


def _weight(scenario: Scenario) -> float:
    """How many rows of lineitem take as long as one row of the scenario."""
    data = scenario.data
    if not isinstance(data, ShapesData):
        return 1.0
    return (data.columns / _COLUMNS + data.shape.row_bytes / _ROW_BYTES) / 2


def _of_file_groups(scenario: Scenario) -> float:
    """Seconds of a cell for its file groups, if their number is known."""
    data = scenario.data
    if not isinstance(data, ShapesData):
        return 0.0
    return data.partitions * scenario.table.buckets * _FILE_GROUP_S


def _of_several(scenario: Scenario, rows: float) -> float:
    """Seconds of a cell with several tables or queries that do not depend on the strategy."""
    if not writes_several(scenario):
        return 0.0
    commits = sum(len(one.commits) for one in tables_of(scenario).values())
    per_query = _QUERY_S + rows * 1e-6 * _QUERY_MICROSECONDS
    return commits * _COMMIT_S + len(scenario.queries) * per_query


def _microseconds(arm: Arm) -> float:
    usual = _MICROSECONDS.get(arm.subject, _OTHER_MICROSECONDS)
    return _OTHER_EXECUTIONS.get((arm.subject, arm.options.execution or ""), usual)


def _measured(scenario: Scenario, results: Path) -> dict[str, float]:
    """Seconds of each arm in the newest run of the scenario; none if that had other data.

    The arms of a sweep and of shapes have names that tell their data.
    """
    try:
        run = load_run(resolve_run(scenario.name, results))
    except LabError:
        return {}
    then, now = asked_of(run.header.scenario_content), asked(scenario)
    other = any(then.get(key) != now.get(key) for key in ("data", "setup", "commit", "dataset"))
    if other and not (then.get("sweep") or then.get("shapes")):
        return {}
    queries = [query_metric(str(name)) for name in run.header.scenario_content.get("queries") or ()]
    seconds: dict[str, list[float]] = {}
    for cell in run.cells:
        whole = [sample for sample in cell.samples if sample.commit is None]
        if any(sample.metric == "seconds" for sample in whole):
            timed = [s.value for s in whole if s.metric in ("seconds", OPEN_TABLES, *queries)]
            seconds.setdefault(cell.arm, []).append(sum(timed))
    return {arm: median(values) for arm, values in seconds.items()}


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
    source = own_files.open_source(data)
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
