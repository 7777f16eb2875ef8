"""Compaction, cleaning, archiving and rollback after writes and between them, without Spark."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

from serde_lab.errors import DataError, LabError, StorageError
from serde_lab.pipeline.commit.coordinator import Coordinator
from serde_lab.pipeline.commit.table_services import compact, deltacommits_to_compact
from serde_lab.table.services.compaction import CompactionPlan, compact_slice
from serde_lab.table.timeline.commit_metadata import WriteStat
from tests.pipeline.lab_table import BACK, FIRST, GONE, MOR, PARTITIONED, SECOND, LabTable, table_of

pytestmark = pytest.mark.slow

INLINE = {
    **MOR,
    "hoodie.compact.inline": "true",
    "hoodie.compact.inline.max.delta.commits": "2",
}


@pytest.mark.parametrize("layout", [{}, PARTITIONED], ids=["plain", "partitioned"])
@pytest.mark.parametrize("blocks", ["avro", "parquet"])
@pytest.mark.parametrize("version", ["6", "9"])
def test_a_compaction_between_any_two_writes_changes_no_row(
    version: str, blocks: str, layout: dict[str, str], tmp_path: Path
) -> None:
    options = {
        **MOR,
        **layout,
        "hoodie.logfile.data.block.format": blocks,
        "hoodie.write.table.version": version,
    }
    writes: list[Callable[[LabTable], object]] = [
        lambda t: t.upsert(FIRST),
        lambda t: t.upsert(SECOND),
        lambda t: t.delete(GONE),
        lambda t: t.upsert(BACK),
    ]
    for place in (2, 3, 4):
        table = LabTable(tmp_path / str(place), options)
        for number, write in enumerate(writes, 1):
            write(table)
            if number == place:
                assert table.compact() is not None
                assert table.logs() == []
                table.check()
        table.check()


def test_a_row_that_came_back_older_stands_only_after_a_compaction_in_between(
    tmp_path: Path,
) -> None:
    for name, compacted in (("with", True), ("without", False)):
        table = LabTable(tmp_path / name, MOR)
        table.upsert(FIRST)
        table.delete([("a", 10, 0, None)])
        if compacted:
            table.compact()
        table.upsert([("a", 10, 99, 8.0)])
        rows = table.check().rows.table()  # type: ignore[attr-defined]
        (found,) = [row for row in rows.to_pylist() if row["k"] == "a" and row["n"] == 10]
        assert found["ts"] == (99 if compacted else 100)


def test_what_a_compaction_says_of_itself(tmp_path: Path) -> None:
    table = LabTable(tmp_path, MOR)
    table.upsert(FIRST)
    assert table.compact() is None
    table.upsert([("a", 1, 11, 1.0), ("new", 1, 1, 1.0)])
    table.delete([("a", 2, 0, None)])
    before = {base.path for base in table.table.view().latest_base_files()}
    done = table.compact()
    assert done is not None
    assert (done.action, done.operation) == ("commit", "compact")
    assert sum(stat.numUpdateWrites for stat in done.stats) == 1
    assert (done.rows_inserted, done.rows_deleted) == (1, 1)
    for stat in done.stats:
        assert stat.prevBaseFile in before
        assert stat.totalLogFilesCompacted >= 1
    metadata = table.table.commit_metadata(table.table.timeline().completed()[-1])
    assert (metadata.operation_type, metadata.compacted) == ("COMPACT", True)
    assert table.compact() is None


def test_rows_keep_their_commit_through_a_compaction(tmp_path: Path) -> None:
    from serde_lab.table.read_plan import plan_snapshot

    table = LabTable(tmp_path, MOR)
    table.upsert(FIRST)
    table.upsert(SECOND)
    names = ["_hoodie_record_key", "_hoodie_commit_time", "_hoodie_commit_seqno"]

    def contents() -> list[tuple[object, ...]]:
        rows = plan_snapshot(table.table, columns=names).read().to_pylist()
        return sorted(tuple(row.values()) for row in rows)

    before = contents()
    table.compact()
    assert contents() == before


def test_inline_compaction_comes_after_so_many_deltacommits(tmp_path: Path) -> None:
    table = LabTable(tmp_path, INLINE)
    seen = []
    for number in range(6):
        table.upsert([("a", n, 100 * number + n, 0.0) for n in range(20)])
        seen.append(deltacommits_to_compact(table.table))
    # the first write stands in base files, so that there are no logs yet, but it counts
    assert seen == [1, 0, 1, 0, 1, 0]
    assert [c.operation for c in table.commits].count("compact") == 3
    table.check()


def test_cleaning_keeps_what_the_retained_commits_see(tmp_path: Path) -> None:
    for name, kind in (("cow", {}), ("mor", INLINE)):
        options = {**kind, "hoodie.clean.commits.retained": "2"}
        table = LabTable(tmp_path / name, options)
        for number in range(8):
            table.upsert([("a", n, 100 * number + n, float(number)) for n in range(10)])
        files = table.table.view().files
        groups = {base.file_id for base in files.base_files}
        assert len(files.base_files) <= 4 * len(groups)
        assert any(i.action == "clean" for i in table.table.timeline().instants())
        table.check()


def test_nothing_is_cleaned_where_it_is_not_wanted(tmp_path: Path) -> None:
    table = LabTable(tmp_path, {"hoodie.clean.automatic": "false"})
    for number in range(13):
        table.upsert([("a", 1, number, 0.0)])
    assert len(table.table.view().files.base_files) == 13


def test_a_long_history_is_archived_and_reads_as_before(tmp_path: Path) -> None:
    options = {
        **INLINE,
        "hoodie.clean.commits.retained": "1",
        "hoodie.keep.min.commits": "2",
        "hoodie.keep.max.commits": "4",
    }
    table = LabTable(tmp_path, options)
    for number in range(10):
        table.upsert([("a", n, 100 * number + n, float(number)) for n in range(10)])
        if number % 3 == 2:
            table.delete([("a", number, 0, None)])
        table.check()
    assert list((table.path / ".hoodie/timeline/history").glob("*.parquet"))
    assert len(table.table.timeline().completed()) <= 5


def test_a_compaction_that_fails_is_rolled_back_at_once(tmp_path: Path) -> None:
    table = LabTable(tmp_path, MOR)
    table.upsert(FIRST)
    table.upsert(SECOND)

    def fails_halfway(plan: CompactionPlan) -> tuple[WriteStat, ...]:
        assert len(plan.reads.slices) > 1
        compact_slice(plan, 0)
        raise StorageError("the disk is full")

    with pytest.raises(StorageError, match="full"):
        compact(table.table, fails_halfway)
    assert table.table.timeline().pending() == ()
    assert not list((table.path / ".hoodie/.temp").glob("*"))
    table.check()
    table.compact()
    table.check()


def test_a_second_attempt_at_a_compaction_task_leaves_one_file(tmp_path: Path) -> None:
    table = LabTable(tmp_path, MOR)
    table.upsert(FIRST)
    table.upsert(SECOND)

    def twice(plan: CompactionPlan) -> tuple[WriteStat, ...]:
        tasks = range(len(plan.reads.slices))
        first = [compact_slice(plan, task) for task in tasks]
        assert [compact_slice(plan, task) for task in tasks] == first
        return tuple(first)

    done = compact(table.table, twice)
    assert done is not None
    written = [base for base in table.table.view().files.base_files if base.instant == done.instant]
    assert len(written) == len(done.stats)


def test_a_write_that_dies_is_rolled_back_by_the_next_one(tmp_path: Path) -> None:
    table = LabTable(tmp_path, MOR)
    table.upsert(FIRST)
    good = table_of([("a", n, 1000, 1.0) for n in range(20)])
    keyless = good.slice(0, 1).set_column(0, "k", pa.nulls(1, pa.string()))
    keyless = keyless.set_column(1, "n", pa.nulls(1, pa.int64()))
    # the last input partition fails after the others have been read
    with pytest.raises(DataError, match="null or empty"):
        table.upsert(pa.concat_tables([good, keyless]), files=3)
    assert table.table.timeline().pending() == ()
    table.check()
    # a writer that was killed leaves requested and inflight behind
    Coordinator(table.table).begin("upsert")
    assert table.table.timeline().pending()
    table.upsert(SECOND)
    assert table.table.timeline().pending() == ()
    table.check()


def test_a_service_that_fails_leaves_the_write_standing(tmp_path: Path) -> None:
    table = LabTable(tmp_path, INLINE)
    table.upsert(FIRST)
    # a damaged log is found by the compaction that reads it, not by the write that adds another one
    table.upsert(SECOND, hoodie__compact__inline="false")
    log = next(path for path in table.path.glob(".*.log.*"))
    log.write_bytes(log.read_bytes()[:-9])
    with pytest.raises(LabError, match="damaged"):
        table.upsert(BACK)
    assert len(table.table.timeline().completed()) == 3
    assert table.table.timeline().pending() == ()
