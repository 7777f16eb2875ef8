"""The lab as the other writer: tables of Apache Hudi's in the lab's words, and writes without Spark."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pyarrow.parquet as pq

from serde_lab.pipeline.exchange.in_process import InProcessExchange, parquet_partitions
from serde_lab.pipeline.options.write import parse_options
from serde_lab.pipeline.write import PreparedWrite
from serde_lab.table.files.log_file import BlockFormat
from serde_lab.table.storage.storage import Storage
from serde_lab.table.table import HoodieTable
from tests.peers.hudi_options import HudiTable
from tests.peers.peer_tables import PeerTable, Step


def lab_options(table: HudiTable, operation: str, strategy: str, blocks: str) -> dict[str, str]:
    """The options of the lab for a write of `table`; `blocks` are those of its logs, if it has any."""
    options = {
        "hoodie.table.name": table.name,
        "hoodie.datasource.write.operation": operation,
        "hoodie.datasource.write.table.type": table.table_type,
        "hoodie.datasource.write.recordkey.field": ",".join(table.record_key),
        "hoodie.datasource.write.partitionpath.field": ",".join(table.partition),
        "hoodie.table.ordering.fields": ",".join(table.ordering),
        "hoodie.datasource.write.hive_style_partitioning": str(table.hive_style).lower(),
        "hoodie.datasource.write.partitionpath.urlencode": str(table.url_encode).lower(),
        "serde_lab.strategy": strategy,
    }
    if operation.startswith("insert_overwrite"):
        options["hoodie.combine.before.insert"] = "true"
    if table.index == "BUCKET":
        options["hoodie.bucket.index.num.buckets"] = str(table.buckets)
    if table.time or any(":" in name for name in table.partition):
        options["hoodie.datasource.write.keygenerator.class"] = table.key_generator
        options |= table.time
    if table.bucket_fields:
        options["hoodie.bucket.index.hash.field"] = ",".join(table.bucket_fields)
    if table.table_type == "MERGE_ON_READ":
        options["hoodie.logfile.data.block.format"] = blocks
    return options


def write_in_process(path: str, rows: Path, options: Mapping[str, str]) -> None:
    """Write the Parquet files of the folder `rows` to the table at `path`; it may be new."""
    storage = Storage.open(Path(path))
    stored = HoodieTable.open(storage).config if HoodieTable.exists(storage) else None
    if stored is not None and "hoodie.write.table.version" in options:
        # a table that is there keeps its own
        options = {**options, "hoodie.write.table.version": str(stored.version)}
    files = sorted(rows.glob("*.parquet"))
    schema = pq.read_schema(files[0])
    prepared = PreparedWrite.of(storage, schema, parse_options(options, stored))
    prepared.commit(InProcessExchange(parquet_partitions(files, schema.names)))


class LabWriter:
    """Writes steps to the table of a PeerTable, as the lab does.

    `version` is what the table is made as; a table that is there already keeps its own.
    """

    def __init__(
        self,
        peer: PeerTable,
        blocks: BlockFormat = "avro",
        version: int = 9,
        strategy: str = "internal_row",
    ) -> None:
        self.peer, self.blocks, self.version, self.strategy = peer, blocks, version, strategy

    @property
    def storage(self) -> Storage:
        return Storage.open(Path(self.peer.path))

    def step(self, step: Step, **more: str) -> None:
        """Do the next write of the history, with `more` options."""
        folder = self.peer.step(step).folder
        assert folder is not None
        table = self.peer.table
        options = lab_options(table, step.operation, self.strategy, self.blocks) | {
            "hoodie.write.record.merge.mode": table.merge_mode,
            "hoodie.index.type": table.index,
            "hoodie.write.table.version": str(self.version),
        }
        write_in_process(self.peer.path, folder, options | more)
