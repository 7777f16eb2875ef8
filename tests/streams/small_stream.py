"""A stream of a few rows without Spark: batches go straight to the writer, with ids as Spark gives them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa

from serde_lab.pipeline.commit.coordinator import Commit
from serde_lab.pipeline.exchange.in_process import InProcessExchange
from serde_lab.streams.options import IDENTIFIER, OPERATION, parse_stream_options
from serde_lab.streams.stream_writer import MicroBatch, StreamWriter
from serde_lab.table.storage.storage import Storage
from serde_lab.table.table import HoodieTable
from serde_lab.table.timeline.checkpoints import SINK_KEY, Checkpoint, newest_checkpoint
from serde_lab.table.timeline.commit_metadata import CommitMetadata
from tests.faults.small_table import COW, OPTIONS, SCHEMA, Row, batches

NO_SERVICES = {"hoodie.clean.automatic": "false", "hoodie.archive.automatic": "false"}
SHORT_TIMELINE = {
    "hoodie.clean.commits.retained": "1",
    "hoodie.keep.min.commits": "2",
    "hoodie.keep.max.commits": "3",
}


@dataclass
class SmallStream:
    """One query that writes to the table in `storage`; `options` come after those of the small table."""

    storage: Storage
    query: str = "one"
    identifier: str = ""
    operation: str = "upsert"
    options: dict[str, Any] = field(default_factory=dict)
    table_type: str = COW
    living: StreamWriter | None = None
    """The writer that takes all batches; without one, each batch comes after a restart."""

    @classmethod
    def of(cls, folder: Path, **given: Any) -> SmallStream:
        return cls(Storage.open(folder), **given)

    def writer(self, **injected: Any) -> StreamWriter:
        given = {
            **OPTIONS,
            "hoodie.datasource.write.table.type": self.table_type,
            OPERATION: self.operation,
            **({IDENTIFIER: self.identifier} if self.identifier else {}),
            **self.options,
        }
        options = {name: value for name, value in given.items() if value is not None}
        return StreamWriter(self.storage, parse_stream_options(options), **injected)

    def start(self, **injected: Any) -> StreamWriter:
        """From now on one process takes the batches, until it is started again."""
        self.living = self.writer(**injected)
        return self.living

    def send(self, number: int, rows: Sequence[Row] | pa.Table) -> Commit | None:
        """What Spark does with one batch; None if the table held it already, or if its commit comes later."""
        if isinstance(rows, pa.Table):
            schema, parts = rows.schema, rows.to_batches()
        else:
            schema, parts = SCHEMA, batches(rows) if rows else []
        with (self.living or self.writer()).begin(
            MicroBatch(self.query, number), schema
        ) as prepared:
            if prepared is None:
                return None
            commit = prepared.commit(InProcessExchange([parts]))
            prepared.serve()
            return commit

    @property
    def last(self) -> Checkpoint | None:
        """What the table holds of this stream."""
        options = self.writer().options
        return newest_checkpoint(HoodieTable.open(self.storage), options.identifier)


def metadata_of_commits(storage: Storage) -> list[CommitMetadata]:
    """By completion time."""
    table = HoodieTable.open(storage)
    return [table.commit_metadata(instant) for instant in table.timeline().completed()]


def stated_batches(storage: Storage) -> list[str | None]:
    """The value of Hudi's key in each commit."""
    return [one.extra_metadata.get(SINK_KEY) for one in metadata_of_commits(storage)]
