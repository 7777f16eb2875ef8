"""Savepoints, restores to them and rollbacks of completed writes, as Apache Hudi makes them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pyarrow as pa

from serde_lab.avro.codec import hudi_schema, write_single
from serde_lab.table.files.file_system_view import list_table_files
from serde_lab.table.files.log_block import LogBlock, parse_blocks
from serde_lab.table.storage.data_files import BaseFileName
from serde_lab.table.table import HoodieTable
from serde_lab.table.timeline.timeline import Instant

_SAVEPOINT = {
    "type": "record",
    "name": "HoodieSavepointMetadata",
    "fields": [
        {
            "name": "partitionMetadata",
            "type": {
                "type": "map",
                "values": {
                    "type": "record",
                    "name": "HoodieSavepointPartitionMetadata",
                    "fields": [
                        {"name": "partitionPath", "type": "string"},
                        {
                            "name": "savepointDataFile",
                            "type": {"type": "array", "items": "string"},
                        },
                    ],
                },
            },
        }
    ],
}
"""Those fields of Hudi's schema that name the files."""

_RESTORE_PLAN = {
    "type": "record",
    "name": "HoodieRestorePlan",
    "fields": [{"name": "savepointToRestoreTimestamp", "type": "string"}],
}


def save(table: HoodieTable, write: Instant, paths: Iterable[str]) -> Instant:
    """Make a savepoint of `write` that lists the files at `paths`."""
    files: dict[str, dict[str, Any]] = {}
    for path in paths:
        folder, _, name = path.rpartition("/")
        one = files.setdefault(folder, {"partitionPath": folder, "savepointDataFile": []})
        one["savepointDataFile"].append(name)
    timeline = table.timeline()
    savepoint = replace(write, action="savepoint", state="requested", completion_time=None)
    content = write_single(_SAVEPOINT, {"partitionMetadata": files})
    return timeline.create_completed(timeline.create_inflight(savepoint), content)


def save_now(table: HoodieTable) -> None:
    """Make a savepoint of the last write, unless it has one."""
    last = table.timeline().completed()[-1]
    if last.time not in savepoints(table):
        save(table, last, [path for one in table.view().latest_file_slices() for path in one.paths])


def savepoints(table: HoodieTable) -> list[str]:
    """The times of the savepoints."""
    return [one.time for one in table.timeline().instants() if one.action == "savepoint"]


def restore(table: HoodieTable, saved: str) -> None:
    """To the savepoint of the write at `saved`: what completed later is undone.

    What was archived stays in the history, and its files stay, too.
    """
    timeline = table.timeline()
    plan = write_single(_RESTORE_PLAN, {"savepointToRestoreTimestamp": saved})
    begun = timeline.create_inflight(
        timeline.create_requested(timeline.new_instant("restore"), plan)
    )
    completion = next(
        one.completion_time or "" for one in timeline.completed() if one.time == saved
    )
    _undo(
        table,
        {one.time for one in timeline.completed() if (one.completion_time or "") > completion},
    )
    timeline.create_completed(begun, b"")


def restore_now(table: HoodieTable) -> None:
    """To the last savepoint, if there is any."""
    if saved := savepoints(table):
        restore(table, saved[-1])


def undo(table: HoodieTable, writes: Iterable[Instant]) -> None:
    """Roll back completed writes, none of which has a later one."""
    timeline = table.timeline()
    for write in sorted(writes, reverse=True):
        begun = timeline.create_requested(timeline.new_instant("rollback"))
        begun = timeline.create_inflight(begun)
        _undo(table, {write.time})
        content = {
            "startRollbackTime": begun.time,
            "timeTakenInMillis": 0,
            "totalFilesDeleted": 0,
            "partitionMetadata": {},
            "commitsRollback": [write.time],
            "instantsRollback": [{"commitTime": write.time, "action": write.action}],
        }
        timeline.create_completed(
            begun, write_single(hudi_schema("HoodieRollbackMetadata"), content)
        )


def _undo(table: HoodieTable, undone: set[str]) -> None:
    timeline = table.timeline()
    for file in list_table_files(table.storage).data_files:
        if _writers(table, file.path, file.instant) <= undone:
            table.storage.delete(file.path)
    for instant in timeline.files():
        if instant.time in undone:
            timeline.delete(instant)


def _writers(table: HoodieTable, path: str, instant: str) -> set[str]:
    """The writes that made a file. Before version 8 only the blocks of a log say so."""
    if table.config.layout_version == 2 or BaseFileName.parse(path.rpartition("/")[2]) is not None:
        return {instant}
    blocks = parse_blocks(pa.py_buffer(table.storage.get(path)))
    return {block.instant for block in blocks if isinstance(block, LogBlock)}
