"""Buckets of consistent hashing are split and merged by size; every row stays what it was."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import replace

import fastavro
import pyarrow as pa
import pytest

from serde_lab.errors import ConcurrentWrite, OptionError, TableError
from serde_lab.table.config import TableConfig
from serde_lab.table.files.base_file import BaseFileWriter
from serde_lab.table.files.file_system_view import BaseFile, FileSlice, LogFile
from serde_lab.table.files.log_file import LogTarget, LogWriter
from serde_lab.table.index.consistent_hashing import (
    HashingMetadata,
    create_initial,
    load_hashing_metadata,
    metadata_path,
)
from serde_lab.table.services.bucket_resizing import (
    ResizePlan,
    ResizeRules,
    carry_out,
    complete_resizing,
    resizes_of,
    schedule_resizing,
)
from serde_lab.table.services.cleaning import clean
from serde_lab.table.services.rollback import recover
from serde_lab.table.storage.data_files import Writing
from serde_lab.table.storage.storage import Storage
from serde_lab.table.timeline.archive import archive
from serde_lab.table.timeline.timeline import Instant
from serde_lab.table.validation import validate_table
from tests.table.made_up_tables import (
    SMALL,
    PlainWriter,
    Row,
    avro_schema,
    batch_of,
    hudi_rs_rows,
    our_rows,
)
from tests.table.test_services import dying, survives


def sized(file_id: str, base_bytes: int, log_bytes: int = 0) -> FileSlice:
    base = BaseFile("t", file_id, "p", f"p/{file_id}", base_bytes, "0-0-0")
    log = LogFile("t", 1, "0-0-0", file_id, "p", f"p/.{file_id}", log_bytes)
    return FileSlice("p", file_id, "t", base, (log,) if log_bytes else ())


RULES = ResizeRules(split_above_bytes=100, merge_below_bytes=10)


def planned(sizes: Sequence[int | None], rules: ResizeRules = RULES) -> list[tuple[list[int], int]]:
    """Of buckets of these sizes (None: without data): the numbers of each resize, and its new nodes."""
    metadata = HashingMetadata.initial("p", len(sizes))
    ids = [node.file_id for node in metadata.nodes]
    slices = [sized(i, size) for i, size in zip(ids, sizes, strict=True) if size is not None]
    return [
        ([ids.index(s.file_id) for s in resize.slices], len(resize.kept))
        for resize in resizes_of(metadata, slices, rules, "s")
    ]


def test_large_buckets_are_split_and_small_neighbours_merged() -> None:
    assert planned([50, 101, 50, 100]) == [([1], 2)]
    assert planned([5, 50, 6, 7, 50]) == [([2, 3], 1)]
    # a run ends once what it holds is no longer small
    assert planned([6, 6, 6, 50]) == [([0, 1], 1)]
    # the ring goes around
    assert planned([5, 50, 50, 5]) == [([3, 0], 1)]
    assert planned([1, 1, 1, 1]) == [([1, 2, 3, 0], 1)]
    assert planned([5]) == []
    assert planned([200, 5, 5, 50]) == [([0], 2), ([1, 2], 1)]
    # a bucket without data stands between
    assert planned([50, 5, None, 5, 50]) == []


def test_bounds_of_buckets_are_kept() -> None:
    assert planned([101, 101, 50], replace(RULES, max_buckets=4)) == [([0], 2)]
    assert planned([101, 101, 50], replace(RULES, max_buckets=3)) == []
    assert planned([1, 1, 1, 1], replace(RULES, min_buckets=3)) == [([3, 0], 1)]
    assert planned([1, 1, 1, 1], replace(RULES, min_buckets=4)) == []
    # what splitting adds, merging may take away
    assert planned([200, 5, 5], replace(RULES, min_buckets=3)) == [([0], 2), ([1, 2], 1)]
    with pytest.raises(OptionError, match=r"min\.num\.buckets is 5 and \.max\.num\.buckets 4"):
        ResizeRules(min_buckets=5, max_buckets=4)


def test_logs_count_and_strangers_are_refused() -> None:
    metadata = HashingMetadata.initial("p", 2)
    large = sized(metadata.nodes[0].file_id, 60, 41)
    (resize,) = resizes_of(metadata, [large], RULES, "s")
    assert resize.kept == resize.children
    assert len({node.file_id for node in resize.children}) == 2
    with pytest.raises(TableError, match=r"file group other-0 .* belongs to no hashing node"):
        resizes_of(metadata, [sized("other-0", 1)], RULES, "s")


# -------------------------------------------------------------------------------------------------


def config(version: int = 9) -> TableConfig:
    return TableConfig(
        "trips",
        ("id",),
        table_type="MERGE_ON_READ",
        version=version,
        ordering_fields=("ts",),
        bucket_count=2,
        bucket_engine="CONSISTENT_HASHING",
    )


def row(number: int, ts: int) -> Row:
    return {"id": f"k{number}", "ts": ts, "value": f"v{ts}"}


class RingWriter(PlainWriter):
    """Writes each row to the file group of its node: a base file first, logs then."""

    def put(self, rows: Sequence[Row]) -> Instant:
        create_initial(self.storage, "", 2)
        ring = load_hashing_metadata(self.table, [""])[""].ring()
        slices = {s.file_id: s for s in self.table.view().latest_file_slices()}
        instant = self.begin("deltacommit")
        batch = batch_of(rows, self.schema)
        numbers = ring.nodes_of(batch.column("id"), ("id",), ("id",))
        stats = []
        for number in sorted(set(numbers.tolist())):
            own = batch.filter(pa.array(numbers == number))
            file_id = ring.file_ids[number]
            slice_ = slices.get(file_id)
            if slice_ is None:
                base = BaseFileWriter(
                    self.storage,
                    Writing(instant.time, f"{number}-1-0"),
                    data_schema=self.schema,
                    partition_path="",
                    file_id=file_id,
                )
                base.append(own.column("id"), own)
                stats.append(base.close())
                continue
            assert slice_.base_file is not None
            target = LogTarget(
                "",
                file_id,
                slice_.base_instant,
                slice_.base_file.path,
                max((log.version for log in slice_.log_files), default=0),
            )
            log = LogWriter(
                self.storage,
                Writing(instant.time, f"{number}-1-0"),
                table_name=self.config.name,
                table_version=self.config.version,
                data_schema=self.schema,
                target=target,
            )
            log.append(own.column("id"), own)
            stats += log.close()
        return self.complete(instant, stats)


def made(storage: Storage, version: int = 9) -> RingWriter:
    writer = RingWriter(storage, config(version), SMALL)
    writer.put([row(n, 1) for n in range(60)])
    writer.put([row(n, 2) for n in range(0, 60, 7)])
    return writer


def resize(writer: PlainWriter, rules: ResizeRules) -> Instant | None:
    plan = schedule_resizing(writer.table, rules)
    if plan is None:
        return None
    stats = [
        stat
        for number, one in enumerate(plan.resizes)
        for stat in carry_out(plan, one, f"{number}-3-0")
    ]
    return complete_resizing(writer.table, plan, stats, avro_schema(SMALL, "trips"))


SPLIT, MERGE = ResizeRules(split_above_bytes=1), ResizeRules(merge_below_bytes=1 << 20)


def same_rows(writer: PlainWriter, expected: list[Row]) -> None:
    """Rows with who wrote them; only the file's name is another."""

    def without_file(rows: list[Row]) -> list[Row]:
        return [{k: v for k, v in r.items() if k != "_hoodie_file_name"} for r in rows]

    found = our_rows(writer.table)
    assert without_file(found) == without_file(expected)
    assert hudi_rs_rows(writer.storage) == found
    assert validate_table(writer.storage, deep=True).findings == ()


@pytest.mark.parametrize("version", [9, 6])
def test_rows_stay_what_they_were(local: Storage, version: int) -> None:
    writer = made(local, version)
    expected = our_rows(writer.table)
    same_rows(writer, expected)
    before = writer.table.timeline().completed()[-1]
    done = resize(writer, SPLIT)
    assert done is not None
    same_rows(writer, expected)
    assert len(writer.table.view().latest_file_slices()) == 4
    ring = load_hashing_metadata(writer.table, [""])[""]
    assert (len(ring.nodes), ring.sequence, ring.instant) == (4, 1, done.time)
    metadata = writer.table.commit_metadata(done)
    assert metadata.operation_type == "CLUSTER"
    assert len((metadata.replaced_file_ids or {})[""]) == 2
    assert sum(stat.numInserts for stat in metadata.write_stats) == 60
    assert our_rows(writer.table, as_of=before.completion_time) == expected
    # updates find their keys in the new file groups
    writer.put([row(n, 3) for n in range(0, 60, 9)])
    expected = our_rows(writer.table)
    assert len(expected) == 60
    assert resize(writer, MERGE) is not None
    same_rows(writer, expected)
    assert len(load_hashing_metadata(writer.table, [""])[""].nodes) == 1
    assert resize(writer, MERGE) is None


def test_the_plan_is_a_clustering_of_hudis(local: Storage) -> None:
    writer = made(local)
    plan = schedule_resizing(writer.table, SPLIT)
    assert plan is not None
    assert plan.inflight_path.endswith(".clustering.inflight")
    content = writer.table.timeline().read(Instant(plan.instant, "clustering", "requested"))
    (requested,) = fastavro.reader(io.BytesIO(content))
    assert requested["operationType"] == "CLUSTER"
    groups = requested["clusteringPlan"]["inputGroups"]
    assert [g["numOutputFileGroups"] for g in groups] == [2, 2]
    extra = groups[0]["extraMetadata"]
    assert extra["clustering.group.sequence.no"] == "0"
    nodes = json.loads(extra["clustering.group.child.node"])
    assert [n["tag"] for n in nodes] == ["REPLACE", "REPLACE"]
    assert groups[0]["slices"][0]["fileId"] == plan.resizes[0].slices[0].file_id


def scheduled(plan: ResizePlan) -> None:
    pass


def written(plan: ResizePlan) -> None:
    for one in plan.resizes:
        carry_out(plan, one, "0-3-0")


def with_its_ring(plan: ResizePlan) -> None:
    written(plan)
    children = [node for one in plan.resizes for node in one.children]
    ring = plan.rings[""].changed(children, plan.instant)
    plan.reads.storage.put_new(metadata_path("", plan.instant), ring.to_bytes())


@pytest.mark.parametrize("version", [9, 6])
@pytest.mark.parametrize("died", [scheduled, written, with_its_ring])
def test_a_resizing_that_died_leaves_nothing(
    local: Storage, version: int, died: Callable[[ResizePlan], None]
) -> None:
    writer = made(local, version)
    expected = our_rows(writer.table)
    files = sorted(f.path for f in local.list_files() if not f.path.startswith(".hoodie"))
    plan = schedule_resizing(writer.table, SPLIT)
    assert plan is not None
    died(plan)
    assert hudi_rs_rows(local) == our_rows(writer.table) == expected
    assert load_hashing_metadata(writer.table, [""])[""].sequence == 0
    recover(writer.table)
    assert sorted(f.path for f in local.list_files() if not f.path.startswith(".hoodie")) == files
    assert not local.exists(metadata_path("", plan.instant))
    same_rows(writer, expected)
    with pytest.raises(ConcurrentWrite):
        complete_resizing(writer.table, plan, [], "")
    # the ring that it wrote before it was refused is in force for nobody
    assert load_hashing_metadata(writer.table, [""])[""].sequence == 0
    assert resize(writer, SPLIT) is not None
    same_rows(writer, expected)


@pytest.mark.slow
def test_a_resizing_that_dies_anywhere_is_done_or_undone(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    for steps in range(60):
        writer = made(Storage.open(tmp_path_factory.mktemp("lake")))
        expected = our_rows(writer.table)
        doomed = copy(writer)
        doomed.table = dying(writer.table, steps)
        done = survives(lambda doomed=doomed: resize(doomed, SPLIT))  # type: ignore[misc]
        assert [r["id"] for r in hudi_rs_rows(writer.storage)] == [r["id"] for r in expected]
        recover(writer.table)
        same_rows(writer, expected)
        slices = writer.table.view().latest_file_slices()
        ring = load_hashing_metadata(writer.table, [""])[""]
        # either all of it happened or nothing
        assert (len(slices), len(ring.nodes)) in ((2, 2), (4, 4))
        if done:
            assert steps > 12
            assert len(ring.nodes) == 4
            return
    pytest.fail("the resizing never got to its end")


def test_a_ring_stays_in_force_when_its_instant_is_archived(local: Storage) -> None:
    writer = made(local)
    done = resize(writer, SPLIT)
    assert done is not None
    for ts in range(3, 7):
        writer.put([row(1, ts)])
    expected = our_rows(writer.table)
    clean(writer.table, 1)
    # a resizing that died at its very end left this to be noted
    local.delete(metadata_path("", done.time).replace(".hashing_meta", ".commit"))
    archived = archive(writer.table, 1, 2)
    assert local.exists(metadata_path("", done.time).replace(".hashing_meta", ".commit"))
    assert archived is not None
    assert done in archived.instants
    assert load_hashing_metadata(writer.table, [""])[""].instant == done.time
    # if nothing notes that it completed, its file groups show it
    local.delete(metadata_path("", done.time).replace(".hashing_meta", ".commit"))
    assert load_hashing_metadata(writer.table, [""])[""].instant == done.time
    same_rows(writer, expected)


def test_resizing_waits_for_pending_writes_and_knows_its_index(local: Storage) -> None:
    writer = made(local)
    pending = writer.begin("deltacommit")
    with pytest.raises(TableError, match=rf"deltacommit {pending.time} is pending"):
        schedule_resizing(writer.table, SPLIT)
    other = PlainWriter(Storage.open(f"{local.url}-other"), TableConfig("t", ("id",)), SMALL)
    with pytest.raises(TableError, match="is not written with consistent hashing"):
        schedule_resizing(other.table, SPLIT)


def test_a_partition_begins_once(storage: Storage) -> None:
    first = create_initial(storage, "p/q", 3)
    assert create_initial(storage, "p/q", 3) == first
    folder = ".hoodie/.bucket_index/consistent_hashing_metadata/p/q"
    assert storage.exists(f"{folder}/00000000000000.hashing_meta")
    with pytest.raises(TableError, match="began with 3 buckets, and this write begins it with 4"):
        create_initial(storage, "p/q", 4)
