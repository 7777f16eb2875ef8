"""The checkpoints of streams: the newest micro-batch of each identifier that the timeline holds.

A stream's commit names its batch in the extra metadata, in the form of Apache Hudi's own streaming sink, so
that the lab and Hudi can take over from each other. A second key, which Hudi ignores, names the query:

    _hudi_streaming_sink_checkpoint    {"<identifier>": "<batch id>"}
    _serde_lab_streaming_query         {"<identifier>": {"query": "<id>", "operation": "<operation>"}}

A commit may name several identifiers. Sources: HoodieStreamingSink and
CommitUtils#getValidCheckpointForCurrentWriter of Apache Hudi 1.2.0.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from serde_lab.errors import TableError
from serde_lab.table.table import HoodieTable
from serde_lab.table.timeline.shared_instant import shared_instant
from serde_lab.table.timeline.timeline import SCHEMA_KEY, CommitMetadata, Instant

SINK_KEY = "_hudi_streaming_sink_checkpoint"
"""Key of the extra metadata that Apache Hudi's streaming sink also writes and reads."""
QUERY_KEY = "_serde_lab_streaming_query"
"""Key of the extra metadata that names the query of each identifier; only the lab writes it."""


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """The last stored micro-batch of an identifier.

    `query`: Spark's id of the query that wrote it, "" for a batch written outside of a query, None if
    Apache Hudi's sink wrote it, which names no query. `operation`: what the query does with its rows.
    """

    batch: int
    query: str | None = None
    operation: str | None = None


def extra_metadata(checkpoints: Mapping[str, Checkpoint]) -> dict[str, str]:
    """The extra metadata of a commit that stores `checkpoints`, by identifier."""
    batches = {identifier: str(one.batch) for identifier, one in checkpoints.items()}
    queries = {
        identifier: {"query": one.query, "operation": one.operation}
        for identifier, one in checkpoints.items()
        if one.query is not None
    }
    stated = {SINK_KEY: json.dumps(batches)}
    return {**stated, QUERY_KEY: json.dumps(queries)} if queries else stated


def checkpoints_in(metadata: CommitMetadata, where: str) -> dict[str, Checkpoint]:
    """The checkpoints of a commit by identifier; empty for a commit of no stream.

    Raises TableError naming `where` if a value is not in the form that Apache Hudi 1.x writes.
    """
    batches = _object(metadata, SINK_KEY, where)
    queries = _object(metadata, QUERY_KEY, where)
    found = {}
    for identifier, batch in batches.items():
        if not str(batch).isdecimal():
            raise TableError(f"{where}: {SINK_KEY} names batch {batch!r}, expected a number")
        found[identifier] = _checkpoint(int(batch), queries.get(identifier))
    return found


def newest_checkpoint(table: HoodieTable, identifier: str) -> Checkpoint | None:
    """The identifier's last stored batch, in a pending instant or on the active timeline; None if neither
    has one.
    """
    # the pending instant comes first: if it completes meanwhile, the timeline has its batches
    shared = shared_instant(table)
    if shared is not None:
        where = f"{table.storage.url}: the pending instant {shared.instant.time}"
        found = checkpoints_in(shared.metadata, where).get(identifier)
        if found is not None:
            return found
    for instant in reversed(table.timeline().completed()):
        found = _stored_in(table, instant).get(identifier)
        if found is not None:
            return found
    return None


def keep_checkpoints(table: HoodieTable, leaving: Collection[Instant]) -> Instant | None:
    """Restate the checkpoints that would leave the active timeline with `leaving`, in a new commit.

    The commit has no files. None if the remaining commits name newer batches of every identifier. The
    caller holds the table's lock. Without this, a query that paused would find its batches forgotten.
    """
    completed = table.timeline().completed()
    if not any(_stored_in(table, instant) for instant in completed if instant in leaving):
        return None
    newest: dict[str, tuple[Instant, Checkpoint]] = {}
    for instant in completed:
        stored = _stored_in(table, instant)
        newest.update({identifier: (instant, one) for identifier, one in stored.items()})
    lost = {name: one for name, (instant, one) in newest.items() if instant in leaving}
    return _empty_commit(table, extra_metadata(lost)) if lost else None


def _empty_commit(table: HoodieTable, stated: Mapping[str, str]) -> Instant:
    """A commit without files; it states the table's schema, since readers take the newest one."""
    timeline, layout = table.timeline(), table.config.layout_version
    texts = (
        table.commit_metadata(instant).extra_metadata.get(SCHEMA_KEY)
        for instant in reversed(timeline.completed())
    )
    schema = next(filter(None, texts), None)
    given = {**stated, SCHEMA_KEY: schema} if schema else dict(stated)
    requested = timeline.create_requested(timeline.new_instant(table.config.write_action))
    inflight = timeline.create_inflight(requested, CommitMetadata("UPSERT").to_bytes(layout))
    content = CommitMetadata("UPSERT", (), given).to_bytes(layout)
    return timeline.create_completed(inflight, content)


def _stored_in(table: HoodieTable, instant: Instant) -> dict[str, Checkpoint]:
    where = table.storage.describe(table.timeline().path(instant))
    return checkpoints_in(table.commit_metadata(instant), where)


def _checkpoint(batch: int, query: object) -> Checkpoint:
    if not isinstance(query, dict):
        return Checkpoint(batch)
    operation = query.get("operation")
    return Checkpoint(
        batch, str(query.get("query", "")), None if operation is None else str(operation)
    )


def _object(metadata: CommitMetadata, key: str, where: str) -> dict[str, Any]:
    text = metadata.extra_metadata.get(key)
    if not text:
        return {}
    try:
        found = json.loads(text)
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise TableError(f"{where}: {key} is {text!r}, expected a JSON object by identifier")
    return found
