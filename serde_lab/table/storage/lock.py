"""The table's lock, which one writer holds at a time, and the heartbeats of writers that do not hold it.

On a local file system the operating system holds the lock for the process and releases it when the process
ends, however it ends. In an object store the lock is a lease, which its holder renews and which runs out if
the holder dies. A file beside the timeline names the holder.

A writer with optimistic concurrency control holds the lock only while it begins and while it commits. In
between, a heartbeat says that its pending instant is not a dead writer's: a file of the instant's name, where
Apache Hudi has its own (org.apache.hudi.client.heartbeat), which the writer renews.
"""

from __future__ import annotations

import fcntl
import json
import os
import socket
import threading
import time
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Self

import obstore
from obstore.exceptions import BaseError, NotFoundError, PreconditionError

from serde_lab.errors import ConcurrentWrite, StorageError
from serde_lab.table.storage.storage import Storage

LOCK_FOLDER = ".hoodie/.locks"
LOCK_PATH = f"{LOCK_FOLDER}/serde_lab.lock"
LEASE_SECONDS = 60.0
HEARTBEATS = ".hoodie/.heartbeat"
"""The folder of heartbeats, one file for each pending instant."""
_HUDI_BEATS_SECONDS = 180.0
"""Apache Hudi's writers renew every 60 s by default, and may miss two beats."""
_PAUSE_SECONDS = 0.05


@dataclass(frozen=True, slots=True)
class LockSettings:
    """How long a writer waits for the lock, how often it renews its heartbeat, and how often it may fail to.

    The defaults are Hudi's.
    """

    wait_ms: int = 60_000
    heartbeat_ms: int = 60_000
    heartbeat_misses: int = 2

    @property
    def beat_is_valid_s(self) -> float:
        """How long one heartbeat counts."""
        return self.heartbeat_ms / 1000 * (self.heartbeat_misses + 1)


@dataclass(frozen=True, slots=True)
class Holder:
    """Who holds a table. `valid_until_epoch_s` counts only for a lease and a heartbeat. `processes` names the
    kernel's table of processes in which `pid` counts: containers on one host may each have their own.
    """

    host: str
    pid: int
    since: str
    purpose: str
    valid_until_epoch_s: float
    processes: str = ""

    def __str__(self) -> str:
        return f"process {self.pid} on {self.host} ({self.purpose}, since {self.since})"

    @classmethod
    def here(cls, purpose: str) -> Holder:
        """This process, from now on."""
        now = f"{datetime.now(UTC):%Y-%m-%d %H:%M:%S} UTC"
        return cls(socket.gethostname(), os.getpid(), now, purpose, 0.0, _process_table())

    def valid_for(self, seconds: float) -> Holder:
        """The same holder, whose file counts for so long from now on."""
        return replace(self, valid_until_epoch_s=time.time() + seconds)

    @property
    def is_alive(self) -> bool:
        """Whether its time has not run out and, if this process can see it, the process still exists."""
        if self.valid_until_epoch_s <= time.time():
            return False
        here = socket.gethostname(), _process_table()
        if (self.host, self.processes or here[1]) != here:
            return True
        try:
            os.kill(self.pid, 0)
        except ProcessLookupError:
            return False
        except PermissionError:  # it exists, and belongs to another user
            pass
        return True

    def to_bytes(self) -> bytes:
        return json.dumps(asdict(self)).encode()

    @classmethod
    def from_bytes(cls, content: bytes) -> Holder | None:
        """The holder that a lock file names; None if it names none."""
        try:
            found: dict[str, Any] = json.loads(content)
            return cls(
                str(found["host"]),
                int(found["pid"]),
                str(found["since"]),
                str(found["purpose"]),
                float(found["valid_until_epoch_s"]),
                str(found.get("processes", "")),
            )
        except (ValueError, KeyError, TypeError):
            return None


class TableLock:
    """Holds one table for one writer: `with TableLock(storage, "upsert") as lock: …`.

    Raises ConcurrentWrite, naming the holder, if another writer has it for longer than `wait_seconds`.
    """

    def __init__(
        self,
        storage: Storage,
        purpose: str,
        lease_seconds: float = LEASE_SECONDS,
        wait_seconds: float = 0.0,
    ) -> None:
        self._storage, self._lease_seconds = storage, lease_seconds
        self._wait_seconds = wait_seconds
        self._holder = Holder.here(purpose)
        self._local: int | None = None
        self._lease: _Lease | None = None

    def __enter__(self) -> Self:
        until = time.monotonic() + self._wait_seconds
        while True:
            try:
                return self._take()
            except ConcurrentWrite:
                if time.monotonic() >= until:
                    raise
                time.sleep(_PAUSE_SECONDS)

    def _take(self) -> Self:
        if self._storage.is_local:
            self._local = self._lock_locally()
        else:
            self._lease = _Lease(self._storage, self._holder, self._lease_seconds)
            self._lease.take()
        return self

    def __exit__(self, *_: object) -> None:
        if self._local is not None:
            held, self._local = self._local, None
            with os.fdopen(held, "r+b", 0) as file:  # its end releases the lock, whatever happens
                file.truncate(0)
                self._remove_without_table()
        if self._lease is not None:
            self._lease.leave()
            self._lease = None

    def check(self) -> None:
        """Raises ConcurrentWrite if the lock was lost; to be called just before an instant completes."""
        if self._lease is not None:
            self._lease.check()

    def _lock_locally(self) -> int:
        while True:
            descriptor = self._opened()
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as exc:
                holder = Holder.from_bytes(os.pread(descriptor, 4096, 0))
                os.close(descriptor)
                raise _held(self._storage, holder) from exc
            if self._is_there(descriptor):
                break
            # its last holder has removed it, and a lock on a removed file locks nothing
            os.close(descriptor)
        try:
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, self._holder.to_bytes(), 0)
        except BaseException as exc:
            os.close(descriptor)  # a lock that nobody releases keeps every writer out
            if isinstance(exc, OSError):
                raise self._cannot_lock(exc) from exc
            raise
        return descriptor

    def _opened(self) -> int:
        try:
            with suppress(FileNotFoundError):  # another writer may be removing the folder
                return _open_new(self._lock_file())
            return _open_new(self._lock_file())
        except OSError as exc:
            raise self._cannot_lock(exc) from exc

    def _cannot_lock(self, exc: OSError) -> StorageError:
        where = self._storage.describe(LOCK_PATH)
        return StorageError(f"{where}: cannot lock the table: {exc.strerror}")

    def _lock_file(self) -> Path:
        path = self._storage.local_path(LOCK_PATH)
        assert path is not None
        return path

    def _is_there(self, descriptor: int) -> bool:
        """Whether the lock's path still names the open file."""
        try:
            return os.path.samestat(os.fstat(descriptor), self._lock_file().stat())
        except OSError:
            return False

    def _remove_without_table(self) -> None:
        """Remove the lock where there is no table, and the folders that are then empty: Apache Hudi takes a
        folder `.hoodie` for a table, and cannot make one there."""
        path = self._lock_file()
        metadata = path.parent.parent
        if (metadata / "hoodie.properties").exists():
            return
        with suppress(OSError):
            path.unlink()
            path.parent.rmdir()
            metadata.rmdir()


class _Lease:
    """A lock file in an object store: a thread renews it, and only a matching tag lets it be replaced."""

    def __init__(self, storage: Storage, holder: Holder, seconds: float) -> None:
        self._storage, self._holder, self._seconds = storage, holder, seconds
        self._tag: str | None = None
        self._turn = threading.Lock()  # between a put and its tag, nobody compares tags
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._lost = False

    def take(self) -> None:
        """Take the lease. Raises ConcurrentWrite if another holder's lease still runs."""
        ours = self._content()
        new = self._storage.put_new(LOCK_PATH, ours)
        content, tag = self._read()
        if new or content == ours:
            # not new, but ours: the answer to our put was lost, and the put was repeated
            self._tag = tag
        else:
            holder = Holder.from_bytes(content)
            if holder is not None and holder.is_alive:
                raise _held(self._storage, holder)
            if not self._replace(self._content(), tag):
                raise _held(self._storage, Holder.from_bytes(self._read()[0]))
        self._thread = threading.Thread(target=self._renew, name="table-lease", daemon=True)
        self._thread.start()

    def leave(self) -> None:
        """Stop renewing, and give the lease back if it is still ours."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join()
        if not self._lost:
            self._replace(b"", self._tag)

    def check(self) -> None:
        """Raises ConcurrentWrite if the lease is no longer ours."""
        with self._turn:
            lost = self._lost or self._read()[1] != self._tag
        if lost:
            raise ConcurrentWrite(
                f"{self._storage.url}: our lease on the table ran out and another writer took it; "
                "nothing of this write was committed"
            )

    def _content(self) -> bytes:
        return self._holder.valid_for(self._seconds).to_bytes()

    def _renew(self) -> None:
        while not self._stop.wait(self._seconds / 3):
            try:
                with self._turn:
                    self._lost = not self._replace(self._content(), self._tag)
                if self._lost:
                    return
            except StorageError:
                continue  # tried again at a third of the lease; `check` finds out if it was lost

    def _read(self) -> tuple[bytes, str | None]:
        try:
            found = obstore.get(self._storage.connection, LOCK_PATH)
            return bytes(found.bytes()), found.meta["e_tag"]
        except (NotFoundError, FileNotFoundError):
            return b"", None
        except (BaseError, OSError) as exc:
            raise StorageError(f"{self._storage.describe(LOCK_PATH)}: cannot read: {exc}") from exc

    def _replace(self, content: bytes, tag: str | None) -> bool:
        if tag is None:
            return False
        try:
            done = obstore.put(self._storage.connection, LOCK_PATH, content, mode={"e_tag": tag})
        except PreconditionError:
            # unless the answer to our put was lost, and the put was repeated
            found, tag = self._read()
            if found == content:
                self._tag = tag
            return found == content
        except (BaseError, OSError) as exc:
            raise StorageError(f"{self._storage.describe(LOCK_PATH)}: cannot write: {exc}") from exc
        self._tag = done["e_tag"]
        return True


class Heartbeat:
    """The heartbeat of a pending instant: from `start` on, a thread renews it until `stop`."""

    def __init__(self, storage: Storage, instant: str, purpose: str, how: LockSettings) -> None:
        self._storage, self._path, self._how = storage, f"{HEARTBEATS}/{instant}", how
        self._holder = Holder.here(purpose)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._renew, name="heartbeat", daemon=True)

    def start(self) -> None:
        """Beat for the first time; to be called before the instant is on the timeline."""
        self._beat()
        self._thread.start()

    def stop(self) -> None:
        """End it: if the instant is still pending, the next writer of the table rolls it back."""
        self._stop.set()
        self._thread.join()
        with suppress(StorageError):  # a beat that is not renewed runs out
            self._storage.delete(self._path)

    def _beat(self) -> None:
        self._storage.replace(
            self._path, self._holder.valid_for(self._how.beat_is_valid_s).to_bytes()
        )

    def _renew(self) -> None:
        while not self._stop.wait(self._how.heartbeat_ms / 1000):
            with suppress(StorageError):  # the next beat tries again
                self._beat()


def live_writers(storage: Storage, instants: Iterable[str]) -> dict[str, str]:
    """Those of the pending `instants` whose writers live by their heartbeats, and who these are.

    An instant without a heartbeat is of a writer that holds the lock, or of a dead one.
    """
    asked = {f"{HEARTBEATS}/{instant}": instant for instant in instants}
    found: dict[str, str] = {}
    for file in storage.list_files(HEARTBEATS) if asked else ():
        instant = asked.get(file.path)
        if instant is None:
            continue
        content = storage.get_if_present(file.path)
        if content is None:
            continue
        holder = Holder.from_bytes(content)
        if holder is not None and holder.is_alive:
            found[instant] = str(holder)
        elif holder is None:
            # Apache Hudi's files are empty, and the time of their last change counts
            age = time.time() - file.modified_epoch_ms / 1000
            if age < _HUDI_BEATS_SECONDS:
                found[instant] = f"Apache Hudi, whose heartbeat is {age:.0f} s old"
    return found


def remove_heartbeat(storage: Storage, instant: str) -> None:
    """Remove the heartbeat of an instant that is no longer pending; no error if there is none."""
    path = f"{HEARTBEATS}/{instant}"
    if storage.exists(path):
        storage.delete(path)


def _process_table() -> str:
    """The namespace of process ids on Linux; "" elsewhere."""
    with suppress(OSError):
        return str(Path("/proc/self/ns/pid").readlink())
    return ""


def _open_new(path: Path) -> int:
    path.parent.mkdir(parents=True, exist_ok=True)
    return os.open(path, os.O_RDWR | os.O_CREAT, 0o666)


def _held(storage: Storage, holder: Holder | None) -> ConcurrentWrite:
    who = "another writer" if holder is None else str(holder)
    return ConcurrentWrite(
        f"{storage.url}: the table is being written by {who}",
        hint="wait until it is done, and try again",
    )
