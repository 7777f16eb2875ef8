"""Compaction, cleaning, archiving: the rows stay what they were, and a service that dies is taken up."""

from __future__ import annotations

import io
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pytest

from serde_lab.errors import OptionError, StorageError, TableError
from serde_lab.lab.lab_reader import LabReader
from serde_lab.pipeline.read import parse_read_options, plan_read
from serde_lab.table.config import TableConfig
from serde_lab.table.services.cleaning import clean, finish_pending_cleans
from serde_lab.table.services.compaction import (
    CompactionPlan,
    compact_slice,
    complete_compaction,
    schedule_compaction,
)
from serde_lab.table.services.rollback import recover
from serde_lab.table.storage.storage import Storage
from serde_lab.table.table import HoodieTable
from serde_lab.table.timeline.archive import archive
from serde_lab.table.timeline.commit_metadata import CommitMetadata
from serde_lab.table.timeline.lsm_timeline import ArchivedInstant, LsmTimeline
from serde_lab.table.timeline.timeline import Instant
from serde_lab.verify.readers import HudiRs
from tests.table.made_up_tables import (
    SMALL,
    LogAppender,
    PlainWriter,
    Row,
    avro_schema,
    hudi_rs_rows,
    our_rows,
    without_meta,
)
from tests.table.savepoints import save

COW = TableConfig("trips", ("id",), ordering_fields=("ts",))
MOR = TableConfig("trips", ("id",), table_type="MERGE_ON_READ", ordering_fields=("ts",))


def row(key: str, ts: int) -> Row:
    return {"id": key, "ts": ts, "value": f"{key}@{ts}"}


def longs(*values: int) -> pa.Array:
    return pa.array(values, pa.int64())


def compact(table: HoodieTable) -> Instant | None:
    plan = schedule_compaction(table)
    if plan is None:
        return None
    stats = [compact_slice(plan, task) for task in range(len(plan.reads.slices))]
    return complete_compaction(
        table, plan, stats, avro_schema(plan.reads.data_schema, plan.reads.config.name)
    )


def data_files(storage: Storage) -> list[str]:
    return [
        f.path
        for f in storage.list_files()
        if f.name.endswith(".parquet") or ".log." in f.name
        if not f.path.startswith(".hoodie/")
    ]


def mor_table(storage: Storage, version: int = 9) -> PlainWriter:
    writer = PlainWriter(storage, replace(MOR, version=version), SMALL)
    writer.upsert([row("a", 5), row("b", 5), row("c", 5)])
    LogAppender(writer).rows(row("a", 6), row("b", 4), row("d", 1)).commit()
    LogAppender(writer).rows(row("d", 2)).deletes("c", ordering=longs(5)).commit()
    return writer


MERGED = [row("a", 6), row("b", 5), row("d", 2)]


@pytest.mark.slow
def test_compaction_keeps_every_row_and_who_wrote_it(storage: Storage) -> None:
    writer = mor_table(storage)
    before = our_rows(writer.table)
    done = compact(writer.table)
    assert done is not None
    after = our_rows(writer.table)
    assert after == hudi_rs_rows(storage)
    assert without_meta(after) == MERGED
    (slice_,) = writer.table.view().latest_file_slices()
    assert slice_.log_files == ()
    assert slice_.base_instant == done.time
    assert slice_.base_file is not None
    assert {r["_hoodie_file_name"] for r in after} == {slice_.base_file.path}
    for name in ("_hoodie_commit_time", "_hoodie_commit_seqno"):
        assert [r[name] for r in after] == [r[name] for r in before]
    assert our_rows(writer.table, read_optimised=True) == after
    assert compact(writer.table) is None
    LogAppender(writer).rows(row("a", 7)).commit()
    assert without_meta(our_rows(writer.table)) == [row("a", 7), row("b", 5), row("d", 2)]
    assert our_rows(writer.table) == hudi_rs_rows(storage)


def test_a_compaction_says_what_it_did(local: Storage) -> None:
    writer = mor_table(local)
    (slice_,) = writer.table.view().latest_file_slices()
    done = compact(writer.table)
    assert done is not None
    assert (done.action, done.completed_action) == ("commit", "commit")
    metadata = writer.table.commit_metadata(done)
    (stat,) = metadata.write_stats
    assert (metadata.operation_type, metadata.compacted) == ("COMPACT", True)
    assert (stat.numWrites, stat.numUpdateWrites, stat.numInserts, stat.numDeletes) == (3, 1, 1, 1)
    assert (stat.totalLogFiles, stat.totalLogBlocks, stat.totalLogRecords) == (2, 3, 5)
    assert stat.prevCommit == slice_.base_instant
    timeline = writer.table.timeline()
    content = timeline.read(Instant(done.time, "compaction", "requested"))
    (plan,) = fastavro.reader(io.BytesIO(content))
    (operation,) = plan["operations"]
    assert operation["deltaFilePaths"] == [log.path for log in slice_.log_files]
    assert slice_.base_file is not None
    assert operation["dataFilePath"] == slice_.base_file.path
    assert operation["fileId"] == slice_.file_id


def test_a_compaction_waits_for_pending_writes(local: Storage) -> None:
    writer = mor_table(local)
    writer.begin("deltacommit")
    with pytest.raises(TableError, match=r"deltacommit \d+ is pending"):
        schedule_compaction(writer.table)


def scheduled(plan: CompactionPlan) -> None:
    pass


def written(plan: CompactionPlan) -> None:
    for task in range(len(plan.reads.slices)):
        compact_slice(plan, task)


@pytest.mark.slow
@pytest.mark.parametrize("died", [scheduled, written])
def test_a_compaction_that_died_leaves_nothing(
    storage: Storage, died: Callable[[CompactionPlan], None]
) -> None:
    writer = mor_table(storage)
    before = data_files(storage)
    plan = schedule_compaction(writer.table)
    assert plan is not None
    died(plan)
    assert without_meta(hudi_rs_rows(storage)) == without_meta(our_rows(writer.table)) == MERGED
    recover(writer.table)
    assert data_files(storage) == before
    assert writer.table.timeline().pending() == ()
    assert compact(writer.table) is not None
    assert without_meta(hudi_rs_rows(storage)) == MERGED


def test_cleaning_keeps_what_kept_commits_need(storage: Storage) -> None:
    writer = PlainWriter(storage, COW, SMALL)
    commits = [writer.upsert([row("a", ts), row("b", 1)]) for ts in range(1, 6)]
    cleaned = clean(writer.table, 2)
    assert cleaned is not None
    assert cleaned.earliest_kept == commits[3].time
    assert len(cleaned.deleted_files) == 3
    assert len(data_files(storage)) == 2
    assert without_meta(hudi_rs_rows(storage)) == [row("a", 5), row("b", 1)]
    time = commits[3].completion_time
    assert without_meta(our_rows(writer.table, as_of=time)) == [row("a", 4), row("b", 1)]
    assert clean(writer.table, 2) is None
    assert [i.action for i in writer.table.timeline().instants()] == ["commit"] * 5 + ["clean"]
    with pytest.raises(OptionError, match="1 is the least"):
        clean(writer.table, 0)


def test_a_compaction_of_version_6_that_died_locks_nobody_out(local: Storage) -> None:
    writer = mor_table(local, version=6)
    before, seen = data_files(local), without_meta(our_rows(writer.table))
    plan = schedule_compaction(writer.table)
    assert plan is not None
    written(plan)
    recover(writer.table)
    assert (data_files(local), writer.table.timeline().pending()) == (before, ())
    assert without_meta(our_rows(writer.table)) == seen
    assert compact(writer.table) is not None


def two_partitions(storage: Storage, **config: Any) -> PlainWriter:
    """A table with one file group in each of the partitions p and q."""
    parted = TableConfig(
        "trips", ("id",), partition_fields=("value",), ordering_fields=("ts",), **config
    )
    writer = PlainWriter(storage, parted, SMALL)
    writer.upsert([at("p", 1), at("q", 1)])
    return writer


def at(partition: str, ts: int) -> Row:
    return {"id": partition, "ts": ts, "value": partition}


def test_changes_up_to_a_write_whose_files_a_slow_one_replaced_are_refused(
    local: Storage,
) -> None:
    """A clean goes by when writes began, and an incremental read by when they completed."""
    writer = two_partitions(local)
    slow = writer.begin()
    stats = writer.write(slow, [at("p", 2)])
    quick = writer.upsert([at("q", 2)])
    writer.complete(slow, stats)
    writer.upsert([at("q", 3)])
    assert clean(writer.table, 2) is not None
    options = {
        "hoodie.datasource.query.type": "incremental",
        "hoodie.datasource.read.begin.instanttime": "0",
        "hoodie.datasource.read.end.instanttime": quick.completion_time or "",
    }
    with pytest.raises(OptionError, match="were cleaned"):
        plan_read(writer.table, parse_read_options(options))


@pytest.mark.parametrize("is_empty", [False, True])
def test_cleaning_keeps_what_a_savepoint_lists(is_empty: bool, local: Storage) -> None:
    """Nothing is cleaned if the savepoint is empty, as a power cut may leave it."""
    writer = two_partitions(local)
    slow = writer.begin()
    stats = writer.write(slow, [at("p", 2)])
    listed = min(base.path for base in writer.table.view().latest_base_files())
    assert listed.startswith("p/")
    quick = writer.upsert([at("q", 2)])
    writer.complete(slow, stats)
    saved = save(writer.table, quick, [listed])
    for ts in (3, 4):
        writer.upsert([at("p", ts), at("q", ts)])
    if is_empty:
        local.replace(writer.table.timeline().path(saved), b"")
        with pytest.raises(TableError, match=r"savepoint: is not a readable Avro file"):
            clean(writer.table, 1)
    else:
        clean(writer.table, 1)
    assert local.exists(listed)


def test_a_clean_that_died_leaves_what_a_savepoint_lists_since(local: Storage) -> None:
    """Apache Hudi makes savepoints of earlier commits, too, and knows completed cleans alone."""
    writer = two_partitions(local)
    first = writer.table.timeline().completed()[0]
    listed = [base.path for base in writer.table.view().latest_base_files()]
    for ts in (2, 3):
        writer.upsert([at("p", ts), at("q", ts)])
    planned = survives(lambda: clean(dying(writer.table, 2), 1))
    assert not planned
    assert [i.action for i in writer.table.timeline().pending()] == ["clean"]
    save(writer.table, first, listed[:1])
    finish_pending_cleans(writer.table)
    assert [local.exists(path) for path in listed] == [True, False]


@pytest.mark.parametrize("saved", [False, True])
def test_archiving_leaves_the_write_that_states_the_columns(saved: bool, local: Storage) -> None:
    """Where a savepoint is, of the writes up to it, too: a restore takes away what came later."""
    writer = two_partitions(local)
    wide = PlainWriter(local, writer.config, SMALL.append(pa.field("more", pa.int64())))
    states = wide.upsert([{**at("q", 9), "more": 7}])
    timeline = writer.table.timeline()
    for ts in range(2, 7):
        silent = writer.begin()
        written = CommitMetadata("UPSERT", tuple(writer.write(silent, [at("p", ts)])))
        timeline.create_completed(silent, written.to_bytes(writer.config.layout_version))
    schema = writer.table.data_schema()
    assert schema is not None
    assert "more" in schema.names
    if saved:
        save(writer.table, timeline.completed()[-1], [])
        for ts in range(7, 12):
            wide.upsert([{**at("q", ts), "more": ts}])
    archived = archive(writer.table, 2, 3)
    assert archived is not None
    assert states.time not in {one.time for one in archived.instants}
    assert writer.table.data_schema() == schema
    last = {**at("q", 11), "more": 11} if saved else {**at("q", 9), "more": 7}
    assert without_meta(our_rows(writer.table))[1] == last


def test_cleaning_takes_the_logs_of_compacted_slices(local: Storage) -> None:
    writer = mor_table(local)
    compact(writer.table)
    assert clean(writer.table, 4) is None
    LogAppender(writer).rows(row("e", 1)).commit()
    cleaned = clean(writer.table, 1)
    assert cleaned is not None
    assert len(cleaned.deleted_files) == 3  # the old base file and its two logs
    assert without_meta(hudi_rs_rows(local)) == [*MERGED, row("e", 1)]


def test_cleaning_spares_a_group_that_no_commit_touched_since(local: Storage) -> None:
    config = TableConfig("trips", ("id",), partition_fields=("value",))
    writer = PlainWriter(local, config, SMALL)
    writer.upsert([{"id": "old", "ts": 1, "value": "p"}])
    for ts in range(5):
        writer.upsert([{"id": "new", "ts": ts, "value": "q"}])
    clean(writer.table, 1)
    assert [r["id"] for r in hudi_rs_rows(local)] == ["new", "old"]


class DiesOnTheWay(Storage):
    """Lets some deletes and writes through, then fails each one, as if the process had died."""

    left = 0

    def _spend(self) -> None:
        if self.left <= 0:
            raise OSError("the process is dead")
        self.left -= 1

    def _put(self, path: str, data: object, mode: object) -> None:
        self._spend()
        super()._put(path, data, mode)  # type: ignore[arg-type]

    def _delete(self, path: str) -> None:
        self._spend()
        super()._delete(path)


def dying(table: HoodieTable, steps: int) -> HoodieTable:
    storage = DiesOnTheWay.open(table.storage.url)
    storage.left = steps
    return HoodieTable(storage, table.config)


def survives(action: Callable[[], object]) -> bool:
    """Whether the action got to its end before its process died."""
    try:
        action()
    except StorageError as exc:
        if "the process is dead" not in str(exc):
            raise
        return False
    return True


def test_a_clean_that_dies_anywhere_is_taken_up(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    for steps in range(40):
        writer = PlainWriter(Storage.open(tmp_path_factory.mktemp("lake")), COW, SMALL)
        for ts in range(1, 5):
            writer.upsert([row("a", ts)])
        table = dying(writer.table, steps)
        done = survives(lambda table=table: clean(table, 1))  # type: ignore[misc]
        assert without_meta(hudi_rs_rows(writer.storage)) == [row("a", 4)]
        recover(writer.table)
        clean(writer.table, 1)
        assert len(data_files(writer.storage)) == 1
        assert writer.table.timeline().pending() == ()
        if done:
            assert steps > 4
            return
    pytest.fail("the clean never got to its end")


@pytest.mark.parametrize("states", [("requested",), ("requested", "inflight")])
def test_a_clean_without_a_plan_is_removed(local: Storage, states: tuple[str, ...]) -> None:
    """Where timeline files are written in place, a writer may die before the plan is in its file."""
    writer = PlainWriter(local, COW, SMALL)
    for ts in range(1, 5):
        writer.upsert([row("a", ts)])
    timeline = writer.table.timeline()
    begun = timeline.new_instant("clean")
    for state in states:
        local.put_new(timeline.path(replace(begun, state=state)), b"")
    as_of = parse_read_options({"as.of.instant": begun.time})
    assert plan_read(writer.table, as_of).read().num_rows == 1
    assert recover(writer.table).cleaned == ()
    assert timeline.pending() == ()
    assert clean(writer.table, 1) is not None


def test_both_readers_of_the_lab_know_that_instants_were_archived(tmp_path: Path) -> None:
    """Else rows of archived commits would count as rows of commits that never were."""
    writer = PlainWriter(Storage.open(tmp_path), COW, SMALL)
    for ts in range(1, 5):
        writer.upsert([row(f"k{ts}", ts)])
    assert not LabReader(str(tmp_path)).facts().archived
    assert archive(writer.table, 1, 2) is not None
    facts = LabReader(str(tmp_path)).facts()
    assert facts.archived
    assert facts == HudiRs(str(tmp_path)).facts()


@pytest.mark.slow
def test_archiving_moves_old_instants_and_changes_no_row(storage: Storage) -> None:
    writer = PlainWriter(storage, COW, SMALL)
    commits = [writer.upsert([row("a", ts), row(f"k{ts}", ts)]) for ts in range(1, 8)]
    expected = our_rows(writer.table)
    assert archive(writer.table, 3, 7) is None
    archived = archive(writer.table, 3, 6)
    assert archived is not None
    assert archived.instants == tuple(commits[:4])
    assert archived.removed_files == ()
    assert writer.table.timeline().instants() == tuple(commits[4:])
    assert our_rows(writer.table) == hudi_rs_rows(storage) == expected
    history = writer.table.archived_timeline().instants()
    assert [(i.time, i.completion_time, i.action) for i in history] == [
        (c.time, c.completion_time, "commit") for c in commits[:4]
    ]
    (metadata,) = fastavro.reader(io.BytesIO(history[0].metadata or b""))
    assert metadata["operationType"] == "UPSERT"
    with pytest.raises(OptionError, match="in this order"):
        archive(writer.table, 5, 4)


def test_archiving_takes_services_along(local: Storage) -> None:
    writer = mor_table(local)
    compact(writer.table)
    clean(writer.table, 1)
    writer.begin("deltacommit")
    recover(writer.table)
    for ts in range(10, 16):
        LogAppender(writer).rows(row("a", ts)).commit()
    archived = archive(writer.table, 2, 3)
    assert archived is not None
    assert sorted({i.action for i in archived.instants}) == [
        "clean",
        "commit",
        "deltacommit",
        "rollback",
    ]
    assert len(writer.table.timeline().instants()) == 2
    assert our_rows(writer.table) == hudi_rs_rows(local)
    assert without_meta(our_rows(writer.table)) == [row("a", 15), row("b", 5), row("d", 2)]
    plans = {i.action: i.plan for i in writer.table.archived_timeline().instants()}
    assert plans["commit"]
    assert plans["clean"]
    compact(writer.table)
    assert without_meta(hudi_rs_rows(local)) == [row("a", 15), row("b", 5), row("d", 2)]


def test_archiving_makes_no_uncommitted_row_visible(local: Storage) -> None:
    writer = PlainWriter(local, COW, SMALL)
    writer.upsert([row("a", 1)])
    dead = writer.begin()
    (orphan,) = writer.write(dead, [row("a", 99), row("ghost", 1)])
    # its writer took its instant away and left the file: what Apache Hudi does without markers
    timeline = writer.table.timeline()
    timeline.delete(dead)
    timeline.delete(Instant(dead.time, "commit", "requested"))
    for ts in range(2, 9):
        writer.upsert([row("b", ts)])
    archived = archive(writer.table, 2, 3)
    assert archived is not None
    assert archived.removed_files == (orphan.path,)
    for ts in range(9, 12):
        writer.upsert([row("b", ts)])
        archive(writer.table, 1, 1)
    assert without_meta(hudi_rs_rows(local)) == [row("a", 1), row("b", 11)]


def test_archiving_stops_before_a_pending_instant_and_a_savepoint(local: Storage) -> None:
    writer = PlainWriter(local, COW, SMALL)
    commits = [writer.upsert([row("a", ts)]) for ts in range(3)]
    local.put_new(f".hoodie/timeline/{commits[1].time}.savepoint.inflight", b"")
    for ts in range(3, 8):
        writer.upsert([row("a", ts)])
    archived = archive(writer.table, 1, 1)
    assert archived is not None
    assert archived.instants == (commits[0],)


def test_archiving_leaves_a_completed_write_before_a_pending_one(local: Storage) -> None:
    """Apache Hudi takes files older than the timeline for committed, a live writer's too."""
    writer = PlainWriter(local, COW, SMALL)
    commits = [writer.upsert([row("a", ts)]) for ts in range(3)]
    writer.begin()
    for ts in range(3, 8):
        writer.upsert([row("a", ts)])
    archived = archive(writer.table, 1, 1)
    assert archived is not None
    assert archived.instants == (*commits[:2],)


@pytest.mark.slow
def test_an_archiving_that_dies_anywhere_is_taken_up(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    for steps in range(60):
        writer = PlainWriter(Storage.open(tmp_path_factory.mktemp("lake")), COW, SMALL)
        commits = [writer.upsert([row("a", ts), row(f"k{ts}", ts)]) for ts in range(6)]
        expected = our_rows(writer.table)
        table = dying(writer.table, steps)
        done = survives(lambda table=table: archive(table, 2, 3))  # type: ignore[misc]
        assert our_rows(writer.table) == hudi_rs_rows(writer.storage) == expected
        archive(writer.table, 2, 3)
        assert our_rows(writer.table) == hudi_rs_rows(writer.storage) == expected
        active = [i.time for i in writer.table.timeline().instants()]
        history = [i.time for i in writer.table.archived_timeline().instants()]
        assert history + active == [c.time for c in commits]
        if done:
            assert steps > 8
            return
    pytest.fail("the archiving never got to its end")


@pytest.mark.slow
def test_the_history_is_a_tree_of_files(storage: Storage) -> None:
    history = LsmTimeline(storage, "history")
    times = [f"202401010000000{n:02}" for n in range(25)]
    for time in times:
        history.add([ArchivedInstant(time, time, "commit", b"m", None)])
    assert [i.time for i in history.instants()] == times
    assert history.times() == {(time, "commit") for time in times}
    # files of other times are not read, and those of the wanted ones are read whole
    assert (times[24], "commit") in history.times({times[24]})
    assert (times[0], "commit") not in history.times({times[24]})
    assert history.times({times[3]}) >= {(time, "commit") for time in times[:10]}
    assert history.times({"20240102000000000"}) == set()
    names = sorted(f.name for f in storage.list_folder("history")[1])
    layers = [n.rpartition("_")[2] for n in names if n.endswith(".parquet")]
    assert layers.count("1.parquet") == 2
    assert len([n for n in names if n.startswith("manifest_")]) == 3
    assert storage.get("history/_version_") == b"27"


def test_a_table_of_version_6_is_not_archived(local: Storage) -> None:
    writer = PlainWriter(local, TableConfig("trips", ("id",), version=6), SMALL)
    with pytest.raises(TableError, match="version 6, whose timeline is not archived"):
        archive(writer.table, 1, 1)
