"""Checks of the timeline: every instant is readable, in order, and correctly named."""

from __future__ import annotations

import re
from collections.abc import Iterator

from serde_lab.table.storage.markers import list_markers
from serde_lab.table.timeline.commit_metadata import SCHEMA_KEY
from serde_lab.table.timeline.timeline import WRITE_ACTIONS
from serde_lab.table.validation import finding as kinds
from serde_lab.table.validation.finding import Finding
from serde_lab.table.validation.inspection import Inspection

_OLD_NAME = re.compile(r"^\d{14,17}\.(commit|deltacommit|replacecommit)$")


def check(table: Inspection) -> Iterator[Finding]:
    """All findings in the timeline."""
    commits = table.commits
    for path, why in table.unreadable.items():
        yield Finding(kinds.COMMIT_UNREADABLE, path, why)
    yield from _misnamed(table)
    yield from _disorder(table)
    yield from _pending(table)
    written = [m for m in commits.values() if m.write_stats]
    if written and not any(m.extra_metadata.get(SCHEMA_KEY) for m in written):
        yield Finding(
            kinds.SCHEMA_MISSING,
            table.timeline.folder,
            f"none of {len(written)} commits on the timeline states the table's schema",
        )
    yield from _metadata_table(table)


def _misnamed(table: Inspection) -> Iterator[Finding]:
    if table.layout_version == 1:
        return
    for file in table.storage.list_folder(table.timeline.folder)[1]:
        if _OLD_NAME.match(file.name):
            yield Finding(
                kinds.COMMIT_MISNAMED, file.path, "it is completed and names no completion time"
            )


def _disorder(table: Inspection) -> Iterator[Finding]:
    for instant in table.writes:
        if instant.completion_time and instant.completion_time < instant.time:
            yield Finding(
                kinds.INSTANT_DISORDER,
                table.timeline.path(instant),
                f"it completed at {instant.completion_time}, before it was requested",
            )
    times = [instant.time for instant in table.writes]
    for time in sorted({time for time in times if times.count(time) > 1}):
        yield Finding(
            kinds.INSTANT_DISORDER,
            f"{table.timeline.folder}/{time}",
            "more than one completed instant has this time",
        )


def _pending(table: Inspection) -> Iterator[Finding]:
    for instant in table.instants:
        if instant.is_completed:
            continue
        path = table.timeline.path(instant)
        yield Finding(kinds.PENDING_INSTANT, path, f"{instant.action} is {instant.state}")
        if instant.completed_action not in WRITE_ACTIONS:
            continue
        marked = {marker.path for marker in list_markers(table.storage, instant.time)}
        for file in table.files.data_files:
            if file.instant != instant.time or file.path in marked:
                continue
            if table.layout_version == 1 and file in table.files.log_files:
                continue  # there, a log's name has the base file's instant
            yield Finding(
                kinds.PENDING_WITHOUT_MARKERS,
                file.path,
                f"instant {instant.time} is {instant.state} and has no marker for it",
            )


def _metadata_table(table: Inspection) -> Iterator[Finding]:
    """Find commits for which the metadata table lacks a deltacommit of the same time."""
    if table.config is None or not table.config.metadata_partitions:
        return
    layout = ".hoodie/timeline" if table.layout_version == 2 else ".hoodie"
    folder = f".hoodie/metadata/{layout}"
    names = [f.name for f in table.storage.list_folder(folder)[1]]
    done = {
        name[:17]
        for name in names
        if "." in name and not name.endswith((".requested", ".inflight", ".crc"))
    }
    if not done:
        yield Finding(
            kinds.METADATA_TABLE_STALE,
            ".hoodie/metadata",
            f"hoodie.table.metadata.partitions is {', '.join(table.config.metadata_partitions)}, and "
            "there is no such table",
        )
        return
    first = min((time for time in done if time.strip("0")[:1] == "2"), default="")
    for instant in table.writes:
        if instant.time >= first and instant.time not in done:
            yield Finding(
                kinds.METADATA_TABLE_STALE,
                table.timeline.path(instant),
                "the metadata table does not know this commit",
            )
