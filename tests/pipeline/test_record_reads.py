"""Reads and compactions that merge logs as a strategy's own records: the rows and files that Arrow gives."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from serde_lab.errors import OptionError
from serde_lab.measure.timeline import TaskTimeline
from serde_lab.pipeline.commit.table_services import compact
from serde_lab.pipeline.read import parse_read_options, plan_read
from serde_lab.serde.registry import StrategyRecords, strategy
from serde_lab.table.files.slice_rows import StrategyRows
from serde_lab.table.read_plan import ReadPlan, plan_snapshot
from serde_lab.table.services.compaction import compact_slice, schedule_compaction
from serde_lab.verify.table_checks import check_contents
from tests.pipeline import test_merge_modes as modes
from tests.pipeline import test_partial_updates as partial
from tests.pipeline import test_schema_evolution as evolution
from tests.pipeline.lab_table import BACK, FIRST, GONE, MOR, PARTITIONED, SECOND, LabTable

ALL = ("pickle", "pickle_columns", "avro", "internal_row", "arrow")
WAYS = [(name, how) for name in ALL for how in strategy(name).executions]
QUERY = "hoodie.datasource.query.type"
BEGIN = "hoodie.datasource.read.begin.instanttime"

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore:fields ts, i.:serde_lab.errors.PortabilityWarning"),
]


def deletes_and_late_rows(folder: Path, **options: str) -> LabTable:
    table = LabTable(folder, MOR | options)
    table.upsert(FIRST)
    table.upsert(SECOND)
    table.delete(GONE)
    table.upsert(BACK)
    return table


def of_mode(folder: Path, mode: str) -> LabTable:
    """Rows with gaps and marks of deletes, of few keys."""
    table = LabTable(folder, modes.MODES[mode] | MOR, modes.SCHEMA)
    draw = np.random.default_rng(7)
    for number in range(4):
        if number == 2:
            table.delete(modes.rows(draw, 4, 30).select(["k", "n", "p"]))
        table.upsert(modes.rows(draw, 60, 30))
    return table


def evolved(folder: Path) -> LabTable:
    table = LabTable(folder, MOR | evolution.FILL, evolution.LAST)
    table.upsert(evolution.rows(evolution.FIRST, range(30), 1))
    table.upsert(evolution.rows(evolution.SECOND, range(20, 40), 2))
    table.upsert(evolution.rows(evolution.FIRST, range(35, 45), 3))
    table.upsert(evolution.rows(evolution.LAST, range(10), 3))
    table.delete(evolution.rows(evolution.FIRST, range(3, 6), 9).select(["k", "n", "p"]))
    return table


def partly_updated(folder: Path) -> LabTable:
    table = partial.table_in(folder)
    table.upsert(partial.batch({"k": "k", "ts": 6, "a": "new"}, {"k": "l", "ts": 4, "a": "late"}))
    table.upsert(partial.batch({"b": [7], "ts": 7, "k": "k"}, {"b": [7], "ts": 7, "k": "o"}))
    partial.delete(table, "k", "m")
    table.upsert(partial.batch({"k": "k", "ts": 7, "a": "back"}))
    return table


TABLES: dict[str, Callable[[Path], LabTable]] = {
    "version 9": deletes_and_late_rows,
    "version 6": lambda folder: deletes_and_late_rows(
        folder, **{"hoodie.write.table.version": "6"}
    ),
    "partitioned, parquet blocks": lambda folder: deletes_and_late_rows(
        folder, **PARTITIONED, **{"hoodie.logfile.data.block.format": "parquet"}
    ),
    "by commit time": lambda folder: deletes_and_late_rows(folder, **modes.COMMIT),
    "marked rows": lambda folder: of_mode(folder, "own marker"),
    "two ordering fields": lambda folder: of_mode(folder, "two fields"),
    "gaps filled": lambda folder: of_mode(folder, "ignore defaults"),
    "evolved": evolved,
    "partial updates": partly_updated,
}


@pytest.fixture(scope="module", params=TABLES)
def table(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> LabTable:
    return TABLES[request.param](tmp_path_factory.mktemp("table"))


def read(table: LabTable, **given: str) -> pa.Table:
    options = {"serde_lab.meta_columns": "true", **given}
    return plan_read(table.table, parse_read_options(options)).read()


def by(name: str, how: str) -> dict[str, str]:
    return {"serde_lab.strategy": name, "serde_lab.execution": how}


@pytest.mark.parametrize(("name", "how"), WAYS)
def test_a_snapshot_has_the_rows_of_arrow_and_of_the_oracle(
    name: str, how: str, table: LabTable
) -> None:
    found = read(table, **by(name, how))
    assert found.equals(read(table))
    assert found.schema.equals(read(table).schema)
    if table.schema is not partial.SCHEMA:  # the oracle knows no partial updates
        verdict = check_contents(found, table.expected(), table.rules, name).results[0]
        assert verdict.passed, verdict.detail


@pytest.mark.parametrize(("name", "how"), WAYS)
def test_changes_are_those_that_arrow_finds(name: str, how: str, table: LabTable) -> None:
    version_6 = table.table.config.layout_version == 1
    times = [i.time if version_6 else i.completion_time for i in table.table.timeline().completed()]
    for begin in ("000", *times):
        given = {QUERY: "incremental", BEGIN: str(begin)}
        assert read(table, **given, **by(name, how)).equals(read(table, **given)), begin
    assert read(table, **{QUERY: "incremental", BEGIN: str(times[0])}).num_rows


def test_a_compaction_by_any_strategy_writes_the_files_of_arrow(table: LabTable) -> None:
    plan = schedule_compaction(table.table)
    assert plan is not None

    def files(records: StrategyRecords | None) -> list[tuple[Any, bytes]]:
        made = []
        for task in range(len(plan.reads.slices)):
            stat = compact_slice(replace(plan, reads=replace(plan.reads, records=records)), task)
            file = table.path / stat.path
            made.append((stat, file.read_bytes()))
            file.unlink()
        return made

    try:
        by_arrow = files(None)
        assert by_arrow
        for name, how in WAYS:
            options = replace(StrategyRecords(name).options, execution=how)  # type: ignore[arg-type]
            assert files(StrategyRecords(name, options)) == by_arrow, (name, how)
    finally:
        table.table.storage.delete(plan.inflight_path)
        for left in (table.path / ".hoodie").rglob(f"{plan.instant}*"):
            left.unlink() if left.is_file() else None


def test_chosen_columns_in_their_order_are_read(table: LabTable) -> None:
    names = [*reversed(table.schema.names)][:2]
    wanted = plan_snapshot(table.table, columns=names)
    for name in ALL:
        found = replace(wanted, records=StrategyRecords(name)).read()
        assert found.equals(wanted.read()), name


@pytest.mark.parametrize("name", ALL)
def test_every_step_is_timed_as_what_it_is(name: str, tmp_path: Path) -> None:
    table = deletes_and_late_rows(tmp_path)

    def phases(plan: ReadPlan) -> set[str]:
        timeline = TaskTimeline("read")
        for slice_ in plan.slices:
            assert list(plan.batches(slice_, timeline))
        return {verb for verb, time in timeline.report().phases.items() if time.calls}

    plan = plan_snapshot(table.table)
    assert phases(plan) == {"read_base", "merge"}
    serde = {"bind", "from_arrow", "read_columns", "take", "to_arrow"}
    assert phases(replace(plan, records=StrategyRecords(name))) == {"read_base", "merge"} | serde


def test_records_are_freed_under_the_clock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    freed = []

    def note(rows: StrategyRows) -> None:
        freed.append(rows.form.timeline.open_phase)

    plan = plan_snapshot(deletes_and_late_rows(tmp_path).table)
    monkeypatch.setattr(StrategyRows, "__del__", note, raising=False)
    for slice_ in plan.slices:
        list(replace(plan, records=StrategyRecords("pickle")).batches(slice_, TaskTimeline("read")))
    assert {*freed} == {"merge"}


def test_a_compaction_as_a_whole_by_a_strategy(tmp_path: Path) -> None:
    table = deletes_and_late_rows(tmp_path)
    before = read(table)
    assert compact(table.table, records=StrategyRecords("pickle")) is not None
    assert not table.logs()
    key = [("k", "ascending"), ("n", "ascending")]
    names = [n for n in before.schema.names if n != "_hoodie_file_name"]
    assert read(table).select(names).sort_by(key).equals(before.select(names).sort_by(key))


def test_columns_named_like_meta_columns_are_kept_apart(tmp_path: Path) -> None:
    schema = pa.schema(
        [
            ("k", pa.string()),
            ("ts", pa.int64()),
            ("commit_time", pa.string()),
            ("file_name", pa.int64()),
        ]
    )
    table = LabTable(tmp_path, {**MOR, "hoodie.datasource.write.recordkey.field": "k"}, schema)
    rows = pa.table([["a", "b"], [1, 1], ["x", None], [1, 2]], schema=schema)
    table.upsert(rows)
    table.upsert(rows.slice(0, 1))
    assert read(table, **by("avro", "row")).equals(read(table))


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"serde_lab.strategy": "arow"}, "unknown strategy 'arow'"),
        ({"serde_lab.execution": "row"}, "serde_lab.execution is for a strategy, and"),
        ({"serde_lab.strategy.flavour": "x"}, "serde_lab.strategy.flavour is for a strategy"),
        (
            {"serde_lab.strategy": "avro", QUERY: "read_optimized"},
            "merges logs, and .* is read_optimized, which reads none",
        ),
        ({"serde_lab.strategy": "pickle", "serde_lab.execution": "batch"}, "execution"),
        ({"serde_lab.strategy": "pickle", "serde_lab.strategy.flavour": "x"}, "flavour"),
    ],
)
def test_what_cannot_be_is_refused_by_name(
    options: dict[str, str], says: str, tmp_path: Path
) -> None:
    table = LabTable(tmp_path, MOR)
    table.upsert(FIRST)
    with pytest.raises(OptionError, match=says):
        plan_read(table.table, parse_read_options(options))
