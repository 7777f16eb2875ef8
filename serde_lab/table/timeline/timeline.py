"""The timeline: instants, their states, and their steps to the next state.

It defines instant times and the names of instant files in both layouts; files are only created, never
overwritten. Source: org.apache.hudi.common.table.timeline (InstantFileNameGeneratorV1 and V2).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Literal, cast

from serde_lab.errors import ConcurrentWrite, TableError
from serde_lab.table.config import TIMELINE_ZONE, TableConfig
from serde_lab.table.storage.storage import Bytes, Storage

State = Literal["requested", "inflight", "completed"]

WRITE_ACTIONS = frozenset({"commit", "deltacommit", "replacecommit"})
"""Actions whose completed instants make data visible."""

_NUMBERED_SCHEMAS = ".hoodie/.schema"

# action of a pending instant -> action once it completes, if they differ
_PENDING_ACTIONS = {"compaction": "commit", "logcompaction": "deltacommit"}
_COMPLETED_AS = {**_PENDING_ACTIONS, "clustering": "replacecommit"}

_LAYOUT_1 = re.compile(r"^(\d{14,17})(?:\.([a-z]+))?(?:\.(requested|inflight))?$")
_LAYOUT_2 = re.compile(r"^(\d{14,17})(?:_(\d{14,17}))?(?:\.([a-z]+))?(?:\.(requested|inflight))?$")


@dataclass(frozen=True, slots=True, order=True)
class Instant:
    """One action at one time. `action` is the one in its files' names: `compaction` completes as `commit`."""

    time: str
    action: str
    state: State
    completion_time: str | None = None
    """Set on completed instants; in layout 1, which does not store it, it is the instant's own time."""

    @property
    def is_completed(self) -> bool:
        return self.state == "completed"

    @property
    def completed_action(self) -> str:
        """The action under which it completes."""
        return _COMPLETED_AS.get(self.action, self.action)

    @property
    def is_write(self) -> bool:
        """Whether its completion makes data visible."""
        return self.completed_action in WRITE_ACTIONS


class Timeline:
    """The active timeline of a table. Nothing is cached: every call lists the storage."""

    def __init__(
        self,
        storage: Storage,
        config: TableConfig,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._storage = storage
        self._now = now
        # None: this machine's, as in Apache Hudi
        self._zone = None if config.extra.get(TIMELINE_ZONE) == "LOCAL" else UTC
        self.folder = config.timeline_folder
        self.history_folder = config.history_folder
        self.layout_version = config.layout_version

    def instants(self) -> tuple[Instant, ...]:
        """All instants of the active timeline by time, each in its latest state."""
        return latest(self.files())

    def files(self) -> tuple[Instant, ...]:
        """All files of the active timeline, each as the instant in the state that it stands for."""
        names = self._storage.list_names(self.folder)
        found = (parse_instant_name(name, self.layout_version) for name in names)
        return tuple(one for one in found if one is not None)

    def completed(self) -> tuple[Instant, ...]:
        """Completed instants whose data is visible, by completion time."""
        done = [i for i in self.instants() if i.is_completed and i.is_write]
        return tuple(sorted(done, key=lambda i: (i.completion_time or "", i.time)))

    def pending(self) -> tuple[Instant, ...]:
        """Instants that were begun and not completed, by time."""
        return tuple(i for i in self.instants() if not i.is_completed)

    def numbered_schemas(self, writes: Sequence[Instant], requested_by: str = "") -> list[str]:
        """The times of those `writes`, and of archived ones, that know columns by numbers: they may have been
        renamed (hoodie.schema.on.read.enable). With `requested_by`, those up to that time.

        Later writes without that option do not say so. Source: FileBasedInternalSchemaStorageManager, which
        also ignores writes that were undone.
        """
        known = {one.time for one in writes}
        first = min(known, default="")
        names = self._storage.list_names(_NUMBERED_SCHEMAS)
        found = (parse_instant_name(name, self.layout_version) for name in names)
        times = [one.time for one in found if one is not None and one.is_completed]
        until = requested_by or max(times, default="")
        return [time for time in times if (time in known or time < first) and time <= until]

    def new_time(self) -> str:
        """A time later than all on the timeline: 17 digits, to the millisecond, in the table's zone."""
        now = format_instant_time(self._now().astimezone(self._zone))
        newest = max((max(i.time, i.completion_time or "") for i in self.instants()), default="")
        return now if now > newest else following_time(newest)

    def new_instant(self, action: str) -> Instant:
        """A new instant, of which nothing is stored yet."""
        return Instant(self.new_time(), action, "requested")

    def create_requested(self, instant: Instant, content: Bytes = b"") -> Instant:
        """Write the requested file. Raises ConcurrentWrite if another writer took the time."""
        requested = replace(instant, state="requested", completion_time=None)
        if not self._storage.put_new(self.path(requested), content):
            raise ConcurrentWrite(
                f"{self._storage.url}: instant {instant.time} was taken by another writer"
            )
        return requested

    def create_inflight(self, instant: Instant, content: Bytes = b"") -> Instant:
        """Write the inflight file, after the requested one."""
        inflight = replace(instant, state="inflight")
        if not self._storage.put_new(self.path(inflight), content):
            raise ConcurrentWrite(
                f"{self._storage.url}: instant {instant.time} is already inflight by another writer"
            )
        return inflight

    def check_inflight(self, instant: Instant) -> None:
        """Raises ConcurrentWrite if the instant's inflight file is gone, because someone rolled it back."""
        inflight = replace(instant, state="inflight", completion_time=None)
        if not self._storage.exists(self.path(inflight)):
            raise ConcurrentWrite(
                f"{self._storage.url}: another writer rolled back our instant {instant.time}; "
                "nothing of it was committed"
            )

    def completion_time(self, instant: Instant) -> str:
        """When the instant completes, if it does so now; its own time in layout 1, which stores no other."""
        return self.new_time() if self.layout_version == 2 else instant.time

    def create_completed(self, instant: Instant, content: Bytes) -> Instant:
        """Complete the instant, which makes it visible to readers: at its completion time if it has one, else
        now. It must still be inflight.

        Raises ConcurrentWrite if it is not, or if someone else completed it. A file that lands after another
        writer has rolled the instant back is taken back.
        """
        self.check_inflight(instant)
        completion = instant.completion_time or self.completion_time(instant)
        done = Instant(instant.time, instant.completed_action, "completed", completion)
        if not self._storage.put_new(self.path(done), content):
            raise ConcurrentWrite(
                f"{self._storage.url}: instant {instant.time} was completed by another writer"
            )
        try:
            self.check_inflight(instant)
        except ConcurrentWrite:
            self.delete(done)
            raise
        return done

    def read(self, instant: Instant) -> bytes:
        """The content of the instant's file for its state."""
        return self._storage.get(self.path(instant))

    def read_if_present(self, instant: Instant) -> bytes | None:
        """Like `read`, or None if there is no such file."""
        return self._storage.get_if_present(self.path(instant))

    def delete(self, instant: Instant) -> None:
        """Remove the instant's file for its state; no error if it is gone."""
        self._storage.delete(self.path(instant))

    def delete_pending(self, instant: Instant) -> None:
        """Remove the instant's inflight file, and then its requested one."""
        self.delete(replace(instant, state="inflight"))
        self.delete(replace(instant, state="requested"))

    def path(self, instant: Instant) -> str:
        return f"{self.folder}/{instant_name(instant, self.layout_version)}"


def latest(files: Iterable[Instant]) -> tuple[Instant, ...]:
    """The instants that these files are of, by time, each in its latest state. Of two completed files the
    later one counts: the put of the other had been given up.
    """
    states = ("requested", "inflight", "completed")
    by_state = sorted(files, key=lambda one: (states.index(one.state), one.completion_time or ""))
    found = {(one.time, one.completed_action): one for one in by_state}
    return tuple(sorted(found.values(), key=lambda instant: (instant.time, instant.action)))


def were_removed(before: Sequence[Instant], now: Sequence[Instant]) -> bool:
    """Whether files or instants of the timeline `before` may be gone: there was a clean, an archiving, a
    rollback or a restore meanwhile. A listing beside an archiving may lack an instant and have an older one.
    Apache Hudi rolls a completed write back by making it inflight again, before its files go.
    """
    left = {(one.time, one.completed_action) for one in now}
    done = {(one.time, one.completed_action) for one in now if one.is_completed}
    gone = any(
        (one.time, one.completed_action) not in (done if one.is_completed else left)
        for one in before
    )
    cleans = [[one for one in listed if one.action == "clean"] for listed in (before, now)]
    return gone or cleans[0] != cleans[1]


def instant_name(instant: Instant, layout_version: int) -> str:
    """The file name of an instant for its state."""
    if instant.state == "completed":
        if layout_version == 1:
            return f"{instant.time}.{instant.completed_action}"
        if instant.completion_time is None:
            raise TableError(f"completed instant {instant.time} has no completion time")
        return f"{instant.time}_{instant.completion_time}.{instant.completed_action}"
    if instant.action == "commit" and instant.state == "inflight":
        # the oldest name, from when there was no other action
        return f"{instant.time}.inflight"
    return f"{instant.time}.{instant.action}.{instant.state}"


def parse_instant_name(name: str, layout_version: int) -> Instant | None:
    """The instant that a file name denotes, or None for any other file of the folder."""
    match = (_LAYOUT_1 if layout_version == 1 else _LAYOUT_2).match(name)
    if match is None:
        return None
    # names in layout 1 state no completion time
    time, *stated, action, state = match.groups()
    completion = stated[0] if stated else time
    if action in ("inflight", "requested") and state is None:
        action, state = "commit", action
    if action is None:
        return None
    if state is not None:
        return Instant(time, action, cast(State, state))
    if completion is None:
        return None
    return Instant(time, action, "completed", completion)


def format_instant_time(moment: datetime) -> str:
    """`yyyyMMddHHmmssSSS` of a moment in UTC."""
    return f"{moment:%Y%m%d%H%M%S}{moment.microsecond // 1000:03d}"


def parse_instant_time(time: str) -> datetime:
    """The moment of an instant time of 14 or 17 digits."""
    moment = datetime.strptime(time[:14], "%Y%m%d%H%M%S").replace(tzinfo=UTC)
    return moment + timedelta(milliseconds=int(time[14:17] or 0))


def epoch_ns(time: str) -> int:
    """The moment of an instant or completion time, which are in UTC and whole milliseconds."""
    return round(parse_instant_time(time).timestamp() * 1000) * 1_000_000


def following_time(time: str) -> str:
    """The instant time one millisecond after `time`."""
    return format_instant_time(parse_instant_time(time) + timedelta(milliseconds=1))
