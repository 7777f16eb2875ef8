"""Replaced file groups: gone for every reader from then on, there for reads of the time before."""

from __future__ import annotations

import io
from collections.abc import Sequence

import fastavro
import pytest

from serde_lab.errors import OptionError, TableError
from serde_lab.table.config import TableConfig
from serde_lab.table.read_plan import plan_incremental
from serde_lab.table.services.cleaning import clean
from serde_lab.table.services.replacing import (
    replaced_by_delete_partition,
    replaced_by_insert_overwrite,
    requested_content,
)
from serde_lab.table.services.rollback import recover
from serde_lab.table.storage.storage import Storage
from serde_lab.table.timeline.archive import archive
from serde_lab.table.timeline.timeline import Instant
from serde_lab.table.validation import validate_table
from tests.table.made_up_tables import (
    SMALL,
    LogAppender,
    PlainWriter,
    Row,
    hudi_rs_rows,
    our_rows,
    without_meta,
)
from tests.table.replacing_writer import (
    begin,
    complete,
    delete_partition,
    insert_overwrite,
    new_groups,
)


def config(version: int = 9, mor: bool = False) -> TableConfig:
    return TableConfig(
        "trips",
        ("id",),
        table_type="MERGE_ON_READ" if mor else "COPY_ON_WRITE",
        version=version,
        partition_fields=("value",),
        ordering_fields=("ts",),
    )


def row(key: str, ts: int, partition: str = "p") -> Row:
    return {"id": key, "ts": ts, "value": partition}


def check(writer: PlainWriter, expected: Sequence[Row]) -> None:
    """Our reader, hudi-rs and the doctor agree on the rows."""
    found = our_rows(writer.table)
    assert without_meta(found) == without_meta(expected)
    assert hudi_rs_rows(writer.storage) == found
    assert validate_table(writer.storage, deep=True).findings == ()


@pytest.mark.parametrize("version", [9, 6])
@pytest.mark.parametrize("mor", [False, True], ids=["cow", "mor"])
def test_what_is_replaced_is_gone_and_was_there(local: Storage, version: int, mor: bool) -> None:
    writer = PlainWriter(local, config(version, mor), SMALL)
    first = [row("a", 1), row("b", 1), row("c", 1, "q")]
    before = writer.upsert(first)
    if mor:
        before = LogAppender(writer).rows(row("a", 2)).commit()
        first[0] = row("a", 2)
    check(writer, first)
    done = insert_overwrite(writer, row("a", 7), row("n", 7, "r"))
    check(writer, [row("a", 7), row("c", 1, "q"), row("n", 7, "r")])
    metadata = writer.table.commit_metadata(done)
    assert metadata.operation_type == "INSERT_OVERWRITE"
    assert {p: len(ids) for p, ids in (metadata.replaced_file_ids or {}).items()} == {
        "p": 1,
        "r": 0,
    }
    past = before.completion_time or ""
    assert without_meta(our_rows(writer.table, as_of=past)) == first
    assert without_meta(hudi_rs_rows(local, as_of_timestamp=past)) == first
    delete_partition(writer, "q", "r")
    check(writer, [row("a", 7)])
    insert_overwrite(writer, row("z", 1, "q"), whole_table=True)
    check(writer, [row("z", 1, "q")])
    # the table goes on as any other does
    writer.upsert([row("z", 2, "q"), row("y", 1, "q")])
    check(writer, [row("y", 1, "q"), row("z", 2, "q")])


@pytest.mark.parametrize("version", [9, 6])
def test_an_incremental_read_sees_only_what_stayed(local: Storage, version: int) -> None:
    writer = PlainWriter(local, config(version), SMALL)
    start = writer.upsert([row("a", 1), row("c", 1, "q")])
    second = writer.upsert([row("b", 2), row("d", 2, "q")])
    insert_overwrite(writer, row("e", 3))

    def changed(begin: Instant, end: Instant | None = None) -> list[str]:
        plan = plan_incremental(
            writer.table,
            begin.completion_time or "",
            None if end is None else end.completion_time,
        )
        return sorted(plan.read().column("id").to_pylist())

    assert changed(start) == ["d", "e"]
    assert changed(start, second) == ["b", "d"]
    assert changed(second) == ["e"]


def test_a_replacecommit_that_is_empty_is_refused(local: Storage) -> None:
    """As a power cut may leave it: without what it states, the replaced rows would be back."""
    writer = PlainWriter(local, config(), SMALL)
    writer.upsert([row("a", 1)])
    done = insert_overwrite(writer, row("b", 2))
    local.replace(writer.table.timeline().path(done), b"")
    with pytest.raises(TableError, match=f"{done.time}.*is empty"):
        our_rows(writer.table)


def test_wildcards_name_partitions(local: Storage) -> None:
    writer = PlainWriter(local, config(), SMALL)
    writer.upsert([row("a", 1, "2024-01"), row("b", 1, "2024-02"), row("c", 1, "2025-01")])
    view = writer.table.view()
    assert list(replaced_by_delete_partition(view, ["2024-*"])) == ["2024-01", "2024-02"]
    assert list(replaced_by_delete_partition(view, ["*-01", "2024-01"])) == ["2024-01", "2025-01"]
    assert replaced_by_delete_partition(view, ["2023.01"]) == {"2023.01": ()}
    with pytest.raises(OptionError, match=r"'2023\*', which matches no partition"):
        replaced_by_delete_partition(view, ["2023*"])
    with pytest.raises(OptionError, match="names no partition"):
        replaced_by_delete_partition(view, [])


@pytest.mark.parametrize("version", [9, 6])
@pytest.mark.parametrize("died", ["requested", "inflight", "written"])
def test_a_replacecommit_that_died_replaced_nothing(
    local: Storage, version: int, died: str
) -> None:
    writer = PlainWriter(local, config(version), SMALL)
    writer.upsert([row("a", 1), row("b", 1, "q")])
    if died == "requested":
        timeline = writer.table.timeline()
        instant = timeline.new_instant("replacecommit")
        timeline.create_requested(instant, requested_content("insert_overwrite"))
    else:
        instant = begin(writer, "insert_overwrite")
    stats = new_groups(writer, instant, [row("z", 9)]) if died == "written" else []
    assert without_meta(hudi_rs_rows(local)) == [row("a", 1), row("b", 1, "q")]
    recovered = recover(writer.table)
    assert [(r.action, r.deleted_files) for r in recovered.rolled_back] == [
        ("replacecommit", tuple(stat.path for stat in stats))
    ]
    assert writer.table.timeline().pending() == ()
    check(writer, [row("a", 1), row("b", 1, "q")])
    insert_overwrite(writer, row("c", 3))
    check(writer, [row("b", 1, "q"), row("c", 3)])


def test_cleaning_takes_replaced_files_and_archiving_waits_for_it(local: Storage) -> None:
    writer = PlainWriter(local, config(), SMALL)
    first = writer.upsert([row("a", 1), row("b", 1, "q")])
    done = insert_overwrite(writer, row("c", 2))
    rows = [row("c", 2)]
    for ts in range(3, 6):
        writer.upsert([row("b", ts, "q")])
    rows.append(row("b", 5, "q"))
    archived = archive(writer.table, 1, 2)
    assert archived is not None
    # the replaced file still lies there: without the replacecommit it would be seen again
    assert archived.instants == (first,)
    check(writer, rows)
    cleaned = clean(writer.table, 1)
    assert cleaned is not None
    (gone,) = (writer.table.commit_metadata(done).replaced_file_ids or {})["p"]
    assert any(gone in path for path in cleaned.deleted_files)
    check(writer, rows)
    archived = archive(writer.table, 1, 2)
    assert archived is not None
    assert done in archived.instants
    check(writer, rows)


def test_cleaning_keeps_replaced_files_that_a_kept_commit_saw(local: Storage) -> None:
    writer = PlainWriter(local, config(), SMALL)
    before = writer.upsert([row("a", 1)])
    insert_overwrite(writer, row("c", 2))
    assert clean(writer.table, 2) is None
    assert without_meta(our_rows(writer.table, as_of=before.completion_time)) == [row("a", 1)]
    cleaned = clean(writer.table, 1)
    # no kept commit saw it after all: the replacecommit is the earliest
    assert cleaned is None or len(cleaned.deleted_files) == 1
    check(writer, [row("c", 2)])


def test_a_clean_states_no_later_write_than_one_whose_replaced_files_it_leaves(
    local: Storage,
) -> None:
    """Apache Hudi archives a replacecommit before the stated write, and would show what it replaced."""
    writer = PlainWriter(local, config(), SMALL)
    writer.upsert([row("a", 1), row("b", 1, "q")])
    writer.upsert([row("b", 2, "q")])
    slow = begin(writer, "insert_overwrite")
    gone = replaced_by_insert_overwrite(writer.table.view(), ["p"])
    stats = new_groups(writer, slow, [row("a", 2)])
    writer.upsert([row("b", 3, "q")])
    complete(writer, slow, "insert_overwrite", stats, gone)
    writer.upsert([row("b", 4, "q")])
    cleaned = clean(writer.table, 2)
    assert cleaned is not None
    assert cleaned.earliest_kept == slow.time
    (group,) = gone["p"]
    assert not any(group in path for path in cleaned.deleted_files)


def test_a_replaced_group_that_is_written_again_is_found(local: Storage) -> None:
    writer = PlainWriter(local, config(), SMALL)
    writer.upsert([row("a", 1)])
    (file_id,) = (s.file_id for s in writer.table.view().latest_file_slices("p"))
    delete_partition(writer, "p")
    assert writer.table.view().replaced_file_groups == {("p", file_id)}
    # the plain writer makes the same id of the same partition again
    writer.upsert([row("b", 2)])
    assert our_rows(writer.table) == hudi_rs_rows(local) == []
    found = validate_table(local).findings
    assert [f.name for f in found] == ["replaced-group-written"]
    assert file_id in found[0].where


def test_the_plan_is_hudis_record() -> None:
    (plan,) = fastavro.reader(io.BytesIO(requested_content("insert_overwrite")))
    assert plan == {
        "operationType": "INSERT_OVERWRITE",
        "clusteringPlan": None,
        "extraMetadata": {},
        "version": 1,
    }
