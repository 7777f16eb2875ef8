"""The lock: one writer at a time; the error names the holder; the lock of an ended process is free."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import obstore
import pytest

from serde_lab.errors import ConcurrentWrite
from serde_lab.table.storage.lock import LOCK_PATH, Holder, TableLock
from serde_lab.table.storage.storage import Storage

LONG_AGO, NOT_SOON = 1e9, 1e11
"""Ends of leases, in seconds since 1970: in 2001, and in the year 5138."""
_names = itertools.count()


def test_the_second_writer_is_told_who_the_first_is(storage: Storage) -> None:
    with TableLock(storage, "upsert") as lock:
        lock.check()
        with (
            pytest.raises(
                ConcurrentWrite, match=rf"written by process {os.getpid()} on \S+ \(upsert, since 2"
            ),
            TableLock(storage, "compact"),
        ):
            pass
        lock.check()
    with TableLock(storage, "compact") as lock:
        lock.check()


def test_the_lock_is_let_go_when_a_write_fails(storage: Storage) -> None:
    with pytest.raises(ZeroDivisionError), TableLock(storage, "upsert"):
        _ = 1 / 0
    with TableLock(storage, "upsert"):
        pass


def test_the_lock_is_let_go_at_a_second_ctrl_c(
    local: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While the first one ends the write: otherwise this process would be its own other writer."""

    def interrupted(_: TableLock) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(TableLock, "_remove_without_table", interrupted)
        with pytest.raises(KeyboardInterrupt), TableLock(local, "upsert"):
            pass
    with TableLock(local, "upsert"):
        pass


def test_a_killed_process_holds_nothing(local: Storage) -> None:
    script = (
        "import sys\n"
        "from serde_lab.table.storage.storage import Storage\n"
        "from serde_lab.table.storage.lock import TableLock\n"
        f"TableLock(Storage.open({local.url!r}), 'upsert').__enter__()\n"
        "print('held', flush=True)\n"
        "sys.stdin.read()\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == b"held\n"
        with pytest.raises(ConcurrentWrite, match=f"process {child.pid} "), TableLock(local, "x"):
            pass
        child.kill()
        child.wait()
        with TableLock(local, "x"):
            pass


def test_without_a_table_nothing_is_left_of_it(local: Storage) -> None:
    """Apache Hudi takes a folder `.hoodie` for a table: its first write would fail."""
    for _ in range(2):
        with TableLock(local, "upsert"):
            assert local.exists(LOCK_PATH)
        assert not any(local.list_folder())
    local.put_new(".hoodie/hoodie.properties", b"hoodie.table.name=t")
    with TableLock(local, "upsert"):
        pass
    assert local.exists(LOCK_PATH)


def test_a_lock_that_is_removed_keeps_others_out(local: Storage, tmp_path: Path) -> None:
    counter = tmp_path / "counter"
    counter.write_text("0")
    script = (
        "from pathlib import Path\n"
        "from serde_lab.table.storage.storage import Storage\n"
        "from serde_lab.table.storage.lock import TableLock\n"
        f"storage, counter = Storage.open({local.url!r}), Path({str(counter)!r})\n"
        "for _ in range(40):\n"
        "    with TableLock(storage, 'upsert', wait_seconds=60):\n"
        "        counter.write_text(str(int(counter.read_text()) + 1))\n"
    )
    children = [subprocess.Popen([sys.executable, "-c", script]) for _ in range(3)]
    assert [child.wait() for child in children] == [0, 0, 0]
    assert counter.read_text() == "120"


@pytest.fixture
def s3(s3_options: dict[str, str]) -> Storage:
    return Storage.open(f"s3://lake/lock{next(_names)}", **s3_options)


def test_a_lease_that_ran_out_is_taken_over(s3: Storage) -> None:
    gone = Holder("another-host", 1, "2024-01-01", "upsert", LONG_AGO)
    s3.put_new(LOCK_PATH, gone.to_bytes())
    with TableLock(s3, "compact") as lock:
        lock.check()


def test_a_lease_of_another_host_is_waited_out(s3: Storage) -> None:
    alive = Holder("another-host", 1, "2024-01-01", "upsert", NOT_SOON)
    s3.put_new(LOCK_PATH, alive.to_bytes())
    with pytest.raises(ConcurrentWrite, match="process 1 on another-host"), TableLock(s3, "x"):
        pass


def test_a_lost_lease_is_noticed(s3: Storage) -> None:
    with TableLock(s3, "upsert") as lock:
        s3.replace(LOCK_PATH, Holder("thief", 1, "now", "x", NOT_SOON).to_bytes())
        with pytest.raises(ConcurrentWrite, match="our lease on the table ran out"):
            lock.check()
    left = Holder.from_bytes(s3.get(LOCK_PATH))
    assert left is not None
    assert left.host == "thief"


def test_a_lost_answer_does_not_lose_the_lease(
    s3: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The client puts again, and finds its own file."""
    put = obstore.put

    def twice(*args: Any, **named: Any) -> Any:
        put(*args, **named)
        return put(*args, **named)

    monkeypatch.setattr(obstore, "put", twice)
    for _ in range(2):
        with TableLock(s3, "upsert", lease_seconds=0.3) as lock:
            lock.check()
            time.sleep(0.5)
            lock.check()
            with pytest.raises(ConcurrentWrite, match="upsert"), TableLock(s3, "compact"):
                pass
