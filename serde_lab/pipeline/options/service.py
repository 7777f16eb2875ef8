"""The options of what goes on around a write: table services after it, other writers beside it.

The services are compaction, cleaning and archiving. Other writers are locked out, or there is optimistic
concurrency control. The defaults are Hudi's own. Values that contradict each other are refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from serde_lab.errors import OptionError
from serde_lab.pipeline.options.reader import OptionReader
from serde_lab.table.config import TableConfig
from serde_lab.table.index.index_kind import CONSISTENT_HASHING
from serde_lab.table.storage.lock import LockSettings
from serde_lab.table.storage.storage import Storage

CONCURRENCY_MODE = "hoodie.write.concurrency.mode"
LOCK_WAIT = "hoodie.write.lock.wait_time_ms"
_PROVIDER = "hoodie.write.lock.provider"
_FAILED, _FAILED_OLDER = "hoodie.clean.failed.writes.policy", "hoodie.cleaner.policy.failed.writes"
_BEAT, _MISSES = (
    "hoodie.client.heartbeat.interval_in_ms",
    "hoodie.client.heartbeat.tolerable.misses",
)
_RETRIES = "hoodie.write.num.retries.on.conflict.failures"
_SINGLE, _OPTIMISTIC = "SINGLE_WRITER", "OPTIMISTIC_CONCURRENCY_CONTROL"
_LOCKS = "org.apache.hudi.client.transaction.lock"
_ON_DISKS = f"{_LOCKS}.FileSystemBasedLockProvider"
_IN_STORES = f"{_LOCKS}.StorageBasedLockProvider"
_IN_PROCESS = f"{_LOCKS}.InProcessLockProvider"
_PROVIDERS = (_ON_DISKS, _IN_STORES, _IN_PROCESS)

_RETAINED, _RETAINED_OLDER = "hoodie.clean.commits.retained", "hoodie.cleaner.commits.retained"

MEANING: Mapping[str, str] = {
    "hoodie.compact.inline": "true: compact after the write if there are enough deltacommits (false)",
    "hoodie.compact.inline.max.delta.commits": "compact after this many deltacommits (5)",
    "hoodie.clean.automatic": "false: do not remove old file slices after the write (true)",
    "hoodie.clean.policy": "KEEP_LATEST_COMMITS, the only one",
    _RETAINED: "number of commits whose file slices are kept (10)",
    _RETAINED_OLDER: f"older name of {_RETAINED}",
    "hoodie.archive.automatic": "false: do not archive instants after the write (true; version 6: false)",
    "hoodie.keep.min.commits": (
        "number of commits that archiving leaves on the active timeline (20, or retained plus 10 if more)"
    ),
    "hoodie.keep.max.commits": (
        "archive when the active timeline has more commits than this (30, or min plus 10 if more)"
    ),
    CONCURRENCY_MODE: (
        "SINGLE_WRITER, or OPTIMISTIC_CONCURRENCY_CONTROL: other writers may write meanwhile (SINGLE_WRITER)"
    ),
    _PROVIDER: (
        f"the lock of optimistic writers: {_ON_DISKS} for a local table, {_IN_STORES} for one in an object"
        f" store, {_IN_PROCESS} for either"
    ),
    LOCK_WAIT: "milliseconds that an optimistic writer waits for the lock (60000)",
    _FAILED: "EAGER for a single writer, LAZY for optimistic ones: instants with a heartbeat stay",
    _FAILED_OLDER: f"older name of {_FAILED}",
    _BEAT: "milliseconds between two heartbeats of an optimistic writer (60000)",
    _MISSES: "heartbeats that may be missing before the writer counts as dead (2)",
    _RETRIES: "how often a write that conflicts with another one is written again (0)",
}


@dataclass(frozen=True, slots=True)
class ServiceOptions:
    """Which services run after a write. Each number counts commits; `compact_after` counts deltacommits."""

    compact: bool = False
    compact_after: int = 5
    clean: bool = True
    commits_retained: int = 10
    archive: bool = True
    keep_min: int = 20
    keep_max: int = 30

    def __post_init__(self) -> None:
        if self.archive and self.keep_max <= self.keep_min:
            raise OptionError(
                f"hoodie.keep.max.commits is {self.keep_max}; it must be greater than"
                f" hoodie.keep.min.commits, which is {self.keep_min}"
            )
        if self.archive and self.clean and self.keep_min <= self.commits_retained:
            raise OptionError(
                f"hoodie.keep.min.commits is {self.keep_min}; it must be greater than {_RETAINED}, which is"
                f" {self.commits_retained}, because instants are cleaned before they are archived"
            )


NO_SERVICES = ServiceOptions(clean=False, archive=False)


@dataclass(frozen=True, slots=True)
class Concurrency:
    """Optimistic concurrency control. `provider`: the class name of Hudi's lock; whichever is named, the lab
    takes its own lock. `retries`: how often a write that conflicts is written again.
    """

    provider: str
    lock: LockSettings
    retries: int = 0

    def check_storage(self, storage: Storage) -> None:
        """Raises OptionError for a provider that does not fit the storage."""
        fits = {_ON_DISKS: storage.is_local, _IN_STORES: not storage.is_local}
        if not fits.get(self.provider, True):
            where = "local" if storage.is_local else "in an object store"
            other = _ON_DISKS if storage.is_local else _IN_STORES
            raise OptionError(
                f"{_PROVIDER} is {self.provider}, and the table {storage.url} is {where}",
                hint=f"use {other}",
            )


def concurrency_options(reader: OptionReader, table: TableConfig) -> Concurrency | None:
    """What `reader` asks for; None for a single writer. Raises OptionError naming what is missing or does
    not fit, and for a table that two writers cannot share.
    """
    mode = reader.choice(CONCURRENCY_MODE, (_SINGLE, _OPTIMISTIC)) or _SINGLE
    failed = reader.of_two_names(_FAILED, _FAILED_OLDER, lambda name: reader.text(name, "").upper())
    if mode == _SINGLE:
        given = reader.given(_PROVIDER, LOCK_WAIT, _BEAT, _MISSES, _RETRIES)
        if given:
            raise OptionError(
                f"{given} is for {_OPTIMISTIC}, but {CONCURRENCY_MODE} is {_SINGLE}",
                hint=f"set {CONCURRENCY_MODE}={_OPTIMISTIC}",
            )
        reader.only(failed, ("EAGER",))
        return None
    reader.only(failed, ("LAZY",))
    provider = reader.text(_PROVIDER, "")
    if provider not in _PROVIDERS:
        raise OptionError(
            f"{_PROVIDER} is {provider!r}, expected one of {', '.join(_PROVIDERS)}, since"
            f" {CONCURRENCY_MODE} is {_OPTIMISTIC}"
        )
    problem = _not_shared(table)
    if problem:
        raise OptionError(
            f"{CONCURRENCY_MODE} is {_OPTIMISTIC}, but the table {table.name} {problem}"
        )
    default = LockSettings()
    lock = LockSettings(
        reader.number(LOCK_WAIT, default.wait_ms),
        reader.number(_BEAT, default.heartbeat_ms, least=1),
        reader.number(_MISSES, default.heartbeat_misses),
    )
    return Concurrency(provider, lock, reader.number(_RETRIES, 0))


def _not_shared(table: TableConfig) -> str:
    """Why optimistic writers cannot share the table; "" if they can."""
    if table.layout_version == 1:
        return f"is of version {table.version}, whose timeline does not say when a commit completed"
    if table.bucket_engine == CONSISTENT_HASHING:
        return "has consistent hashing, and a resizing would have to wait for all writers"
    return ""


def service_options(reader: OptionReader, table: TableConfig) -> ServiceOptions:
    """The services that `reader` asks for. Raises OptionError for numbers that contradict each other, and
    for a service that `table` does not support.
    """
    compact, archive = reader.flag("hoodie.compact.inline"), reader.flag("hoodie.archive.automatic")
    if compact and not table.is_mor:
        raise OptionError(
            f"hoodie.compact.inline is true, but the table {table.name} is {table.table_type}: it has"
            " no log files"
        )
    if archive and table.layout_version == 1:
        raise OptionError(
            f"hoodie.archive.automatic is true, but the table {table.name} has version {table.version},"
            " which the lab does not archive"
        )
    reader.only("hoodie.clean.policy", ("KEEP_LATEST_COMMITS",))
    default = ServiceOptions()
    retained = reader.of_two_names(_RETAINED, _RETAINED_OLDER, lambda name: reader.text(name, ""))
    retain = reader.number(retained, default.commits_retained, least=1)
    # a caller that keeps more file slices than the default timeline covers needs a longer timeline, too
    keep_min = reader.number("hoodie.keep.min.commits", max(default.keep_min, retain + 10), 1)
    keep_max = reader.number("hoodie.keep.max.commits", max(default.keep_max, keep_min + 10), 1)
    return ServiceOptions(
        compact=compact or False,
        compact_after=reader.number(
            "hoodie.compact.inline.max.delta.commits", default.compact_after, least=1
        ),
        clean=reader.flag("hoodie.clean.automatic") is not False,
        commits_retained=retain,
        archive=archive is not False and table.layout_version == 2,
        keep_min=keep_min,
        keep_max=keep_max,
    )
