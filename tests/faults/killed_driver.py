"""The driver that is killed: what runs in the child process, and how it comes to its end.

Every put and delete that took effect is a step with a name. The child reports the step after which it
should end, and then SIGKILLs itself: a child that never reports did not reach that point.
"""

from __future__ import annotations

import os
import re
import signal
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Literal

from serde_lab.pipeline.commit.coordinator import Coordinator
from serde_lab.pipeline.commit.table_services import archive_now, clean_now
from serde_lab.table.storage.lock import HEARTBEATS
from serde_lab.table.storage.storage import Storage
from serde_lab.table.table import HoodieTable
from serde_lab.table.timeline.checkpoints import MANIFESTS
from tests.faults.other_writes import OtherWork, other_write
from tests.faults.small_table import DEAD, compact_all, upsert
from tests.forked_reader import CONTEXT

Work = Literal["upsert", "compact", "recover", "clean", "archive"] | OtherWork
NEVER = -1


@dataclass(frozen=True, slots=True)
class KillPoint:
    """After the step `number` of the work; `halfway`: with half of what it puts, under the name that
    a local put has until it is whole."""

    number: int
    halfway: bool = False


def step_of(verb: str, path: str) -> str:
    """`+` or `-` and what the file is; of an instant, what its name says after the time."""
    folder, _, name = path.rpartition("/")
    if path.startswith(f"{MANIFESTS}/"):
        return f"{verb}manifest"
    if path.startswith(f"{HEARTBEATS}/"):
        return f"{verb}heartbeat"
    if path.startswith(".hoodie/.temp/"):
        return f"{verb}marker"
    if folder == ".hoodie/timeline/history":
        if name == "_version_":
            return f"{verb}history version"
        return verb + ("history manifest" if name.startswith("manifest_") else "history file")
    if folder == ".hoodie/timeline":
        return verb + name.partition(".")[2]
    if name in ("hoodie.properties", "serde_lab_first_write"):
        return verb + name
    if name == ".hoodie_partition_metadata":
        return f"{verb}partition metadata"
    return verb + ("log file" if re.search(r"\.log\.\d+_", name) else "base file")


class StepStorage(Storage):
    """Knows the steps that were made."""

    steps: list[str]

    def __init__(self, url: str, options: Any = None) -> None:
        super().__init__(url, options)
        self.steps = []

    def begins(self, step: str, path: str, data: Any) -> None:
        """Just before a step."""

    def made(self, step: str) -> None:
        """Just after one that took effect."""

    def _put(self, path: str, data: Any, mode: Any) -> None:
        step = step_of("+", path)
        self.begins(step, path, data)
        super()._put(path, data, mode)
        self.steps.append(step)
        self.made(step)

    def _delete(self, path: str) -> None:
        step = step_of("-", path)
        self.begins(step, path, None)
        super()._delete(path)
        self.steps.append(step)
        self.made(step)


class DeadlyStorage(StepStorage):
    """Kills its process at a point, after it has said so."""

    point = KillPoint(NEVER)
    mark: Connection

    def begins(self, step: str, path: str, data: Any) -> None:
        if self.point.halfway and len(self.steps) == self.point.number:
            place = self.local_path(f"{path}#1")
            assert place is not None
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(bytes(data)[: memoryview(data).nbytes // 2])
            self._die(step)

    def made(self, step: str) -> None:
        if len(self.steps) - 1 == self.point.number:
            self._die(step)

    def _die(self, step: str) -> None:
        self.mark.send(step)
        os.kill(os.getpid(), signal.SIGKILL)


def do(work: Work, storage: Storage, table_type: str) -> None:
    """One piece of a driver's work, whatever becomes of it."""
    if work == "upsert":
        upsert(storage, DEAD, table_type)
    elif work == "compact":
        compact_all(storage)
    elif work == "clean":
        clean_now(HoodieTable.open(storage), 1)
    elif work == "archive":
        archive_now(HoodieTable.open(storage), 1, 2)
    elif work == "recover":
        with Coordinator(HoodieTable.open(storage)).hold("recover"):
            pass
    else:
        other_write(work, storage, table_type)


def _live(mark: Connection, work: Work, place: Storage, table_type: str, point: KillPoint) -> None:
    storage = DeadlyStorage(place.url, place.options)
    storage.point, storage.mark = point, mark
    do(work, storage, table_type)
    mark.send("survived")


def kill(work: Work, place: Path | Storage, table_type: str, point: KillPoint) -> str:
    """Do `work` in a child that dies at `point`; the step that it reported before it died."""
    storage = place if isinstance(place, Storage) else Storage.open(place)
    ours, theirs = CONTEXT.Pipe(duplex=False)
    child = CONTEXT.Process(target=_live, args=(theirs, work, storage, table_type, point))
    child.start()
    theirs.close()
    try:
        mark = str(ours.recv())
    except EOFError:
        mark = "died without a word"
    child.join()
    assert child.exitcode == -signal.SIGKILL, (mark, child.exitcode)
    return mark
