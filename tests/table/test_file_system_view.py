"""Which files a reader takes: by the timeline, by completion times, by what was replaced."""

from __future__ import annotations

from dataclasses import replace

import pytest

from serde_lab.errors import TableError
from serde_lab.table.config import TableConfig
from serde_lab.table.files.file_system_view import (
    FileSystemView,
    Visibility,
    check_no_gap,
    instants_to_look_up,
    list_table_files,
    visibility_of,
)
from serde_lab.table.storage.storage import Storage
from serde_lab.table.timeline.lsm_timeline import Undone
from serde_lab.table.timeline.timeline import Instant

V9 = TableConfig("t", ("id",), table_type="MERGE_ON_READ")
V6 = TableConfig("t", ("id",), table_type="MERGE_ON_READ", version=6)


def t(second: int) -> str:
    return f"202401010000{second:02}000"


def view(
    storage: Storage,
    names: list[str],
    completed: dict[int, int],
    config: TableConfig = V9,
    as_of: int | None = None,
    replaced: tuple[tuple[str, str, str], ...] = (),
    pending: tuple[int, ...] = (),
) -> FileSystemView:
    """`names` with {1} for t(1); `completed`: seconds of request -> of completion."""
    for name in names:
        storage.put_new(name.format(*map(t, range(60))))
    instants = [
        Instant(t(at), "deltacommit", "completed", t(done)) for at, done in completed.items()
    ]
    instants += [Instant(t(at), "deltacommit", "inflight") for at in pending]
    visibility = visibility_of(instants, None if as_of is None else t(as_of))
    return FileSystemView(config, list_table_files(storage), visibility, replaced)


def found(view: FileSystemView) -> list[tuple[str | None, list[str]]]:
    return [
        (
            None if s.base_file is None else s.base_file.instant[12:14],
            [f"{log.instant[12:14]}.{log.version}" for log in s.log_files],
        )
        for s in view.file_slices()
    ]


BASE, LOG = "f-0_0-1-0_{%d}.parquet", ".f-0_{%d}.log.%d_0-1-0"


def test_a_log_belongs_to_the_newest_base_before_its_completion(local: Storage) -> None:
    names = [BASE % 10, LOG % (15, 1), BASE % 20, LOG % (18, 1), LOG % (25, 2), LOG % (25, 1)]
    seen = view(local, names, {10: 11, 15: 16, 20: 22, 18: 21, 25: 26})
    # the log of 18 completed after the base of 20 was requested
    assert found(seen) == [("10", ["15.1"]), ("20", ["18.1", "25.1", "25.2"])]
    assert len(seen.latest_file_slices()) == 1
    assert [b.instant for b in seen.latest_base_files()] == [t(20)]


def test_logs_are_in_the_order_in_which_their_writes_began(local: Storage) -> None:
    names = [BASE % 10, LOG % (15, 1), LOG % (20, 1)]
    assert found(view(local, names, {10: 11, 15: 40, 20: 30})) == [("10", ["15.1", "20.1"])]


def test_before_version_8_a_log_names_its_base(local: Storage) -> None:
    names = [BASE % 10, LOG % (10, 1), LOG % (10, 2), BASE % 20, LOG % (20, 1)]
    seen = view(local, names, {10: 10, 20: 20}, V6)
    assert found(seen) == [("10", ["10.1", "10.2"]), ("20", ["20.1"])]


def test_uncommitted_files_do_not_count(local: Storage) -> None:
    names = [BASE % 10, BASE % 30, LOG % (31, 1), BASE % 12, LOG % (13, 1)]
    seen = view(local, names, {10: 11, 20: 21}, pending=(30, 31))
    assert found(seen) == [("10", [])]


def test_what_is_older_than_the_timeline_counts(local: Storage) -> None:
    seen = view(local, [BASE % 5, LOG % (6, 1), BASE % 12], {10: 11, 20: 21})
    assert found(seen) == [("05", ["06.1"])]


def test_a_pending_first_instant_is_not_older_than_the_timeline(local: Storage) -> None:
    seen = view(local, [BASE % 5], {10: 11}, pending=(5,))
    assert found(seen) == []


def test_the_past_ends_at_a_completion_time(local: Storage) -> None:
    names = [BASE % 10, BASE % 20, LOG % (25, 1)]
    done = {10: 11, 20: 22, 25: 26}
    assert found(view(local, names, done, as_of=21)) == [("10", [])]
    assert found(view(local, names, done, as_of=22)) == [("10", []), ("20", [])]
    assert found(view(local, names, done, as_of=9)) == []


def test_replaced_groups_are_gone_from_then_on(local: Storage) -> None:
    names = [BASE % 10, "p/" + BASE % 10, "p/g-0_0-1-0_{20}.parquet"]
    replaced = (("p", "f-0", t(21)),)
    done = {10: 11, 20: 21}
    seen = view(local, names, done, replaced=replaced)
    assert [(s.partition_path, s.file_id) for s in seen.latest_file_slices()] == [
        ("", "f-0"),
        ("p", "g-0"),
    ]
    assert seen.partitions == ("", "p")
    assert [s.file_id for s in seen.latest_file_slices("p")] == ["g-0"]
    assert seen.replaced_before(t(21)) == ()
    assert seen.replaced_before(t(22)) == (f"p/f-0_0-1-0_{t(10)}.parquet",)


def test_a_group_of_logs_alone_is_a_slice(local: Storage) -> None:
    seen = view(local, [LOG % (10, 1), LOG % (12, 1)], {10: 11, 12: 13})
    assert found(seen) == [(None, ["10.1", "12.1"])]
    assert seen.latest_base_files() == ()


def test_two_base_files_of_one_instant_are_told(local: Storage) -> None:
    with pytest.raises(TableError, match=rf"two base files of instant {t(10)}: f-0_0-1-0_.* and f"):
        view(local, [BASE % 10, "f-0_0-9-9_{10}.parquet"], {10: 11})


def test_other_files_are_kept_apart(local: Storage) -> None:
    local.put_new("p/_SUCCESS")
    for place in ("p/", "q/", "q/.parquet", "r/.parquet"):
        folder, suffix = place.split("/")
        local.put_new(f"{folder}/.hoodie_partition_metadata{suffix}")
    local.put_new("part-0000.parquet")
    local.put_new(".hoodie/timeline/x.parquet")
    files = list_table_files(local)
    assert files.partitions == ("p", "q", "r")
    assert {f.path for f in files.others} == {"p/_SUCCESS", "part-0000.parquet"}
    assert files.data_files == ()


def test_a_savepointed_write_starts_the_timeline(local: Storage) -> None:
    kept = [
        Instant(t(1), "savepoint", "completed", t(2)),
        Instant(t(1), "commit", "completed", t(1)),
    ]
    later = [Instant(t(9), "commit", "completed", t(9))]
    seen = visibility_of([*kept, *later])
    assert seen.start == t(1)
    # what is older was archived, and is visible
    second = [replace(instant, time=t(3)) for instant in kept]
    assert visibility_of(second).completion_of(t(2)) is not None
    assert Visibility({}, "").completion_of(t(1)) is None
    for name in (BASE % 0, BASE % 1, BASE % 9, BASE % 10):
        local.put_new(name.format(*map(t, range(60))))
    check_no_gap(list_table_files(local), [*kept, *later], seen, Undone())
    local.put_new((BASE % 5).format(*map(t, range(60))))
    assert instants_to_look_up(list_table_files(local), seen) == {t(5), t(10)}
    with pytest.raises(TableError, match=rf"instant {t(5)} lies behind the savepoint {t(1)} and"):
        check_no_gap(list_table_files(local), [*kept, *later], seen, Undone())
