"""The lab as the other writer: the steps of a history through the pipeline, without Spark."""

from __future__ import annotations

from pathlib import Path

import pyarrow.parquet as pq

from serde_lab.pipeline.exchange import InProcessExchange, parquet_partitions
from serde_lab.pipeline.options import parse_options
from serde_lab.pipeline.write import PreparedWrite
from serde_lab.table.log_file import BlockFormat
from serde_lab.table.storage import Storage
from serde_lab.table.table import HoodieTable
from tests.peers.peer_tables import PeerTable, Step


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
        stored = HoodieTable.open(self.storage).config if HoodieTable.exists(self.storage) else None
        options = self._options(step.operation) | more
        if stored is not None:
            options["hoodie.write.table.version"] = str(stored.version)
        files = sorted(folder.glob("*.parquet"))
        schema = pq.read_schema(files[0])
        prepared = PreparedWrite.of(self.storage, schema, parse_options(options, stored))
        prepared.commit(InProcessExchange(parquet_partitions(files, schema.names)))

    def _options(self, operation: str) -> dict[str, str]:
        table = self.peer.table
        options = {
            "hoodie.table.name": table.name,
            "hoodie.datasource.write.operation": operation,
            "hoodie.datasource.write.table.type": table.table_type,
            "hoodie.datasource.write.recordkey.field": ",".join(table.record_key),
            "hoodie.datasource.write.partitionpath.field": ",".join(table.partition),
            "hoodie.datasource.write.precombine.field": ",".join(table.ordering),
            "hoodie.datasource.write.hive_style_partitioning": str(table.hive_style).lower(),
            "hoodie.datasource.write.partitionpath.urlencode": str(table.url_encode).lower(),
            "hoodie.write.record.merge.mode": table.merge_mode,
            "hoodie.index.type": table.index,
            "hoodie.write.table.version": str(self.version),
            "serde_lab.strategy": self.strategy,
        }
        if table.index == "BUCKET":
            options["hoodie.bucket.index.num.buckets"] = str(table.buckets)
        if table.table_type == "MERGE_ON_READ":
            options["hoodie.logfile.data.block.format"] = self.blocks
        return options
