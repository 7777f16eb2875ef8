"""The lab as the other writer: the steps of a history on tables made by `serde_lab.table`.

Upserts on COPY_ON_WRITE go through the pipeline. Log files and deletes are written by the table's own
calls, one file group after the other.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from peer_tables import PeerTable, Step

from serde_lab.peers.hudi_options import HudiTable
from serde_lab.pipeline.exchange import InProcessExchange, parquet_partitions
from serde_lab.pipeline.options import parse_options
from serde_lab.pipeline.write import PreparedWrite
from serde_lab.records.avro_schema import arrow_to_avro
from serde_lab.records.keys import KeyGenerator
from serde_lab.records.merging import precombine
from serde_lab.records.schema import RecordSchema
from serde_lab.records.types import storage_schema
from serde_lab.table.base_file import BaseFileReader, BaseFileWriter
from serde_lab.table.bucket_index import bucket_file_id, bucket_ids, bucket_of_file_id
from serde_lab.table.commit_metadata import CommitMetadata, WriteStat
from serde_lab.table.config import TableConfig
from serde_lab.table.log_file import BlockFormat, LogFormat, LogTarget, LogWriter
from serde_lab.table.markers import delete_markers
from serde_lab.table.storage import Storage
from serde_lab.table.table import HoodieTable
from serde_lab.table.timeline import Instant


@dataclass(frozen=True)
class Rows:
    """The rows of one file group in one write, with their record keys."""

    path: str
    bucket: int
    keys: pa.Array
    batch: pa.RecordBatch


class LabWriter:
    """Writes steps to the table of a PeerTable, as the lab does."""

    def __init__(self, peer: PeerTable, blocks: BlockFormat = "avro", version: int = 9) -> None:
        self.peer, self.blocks, self.version = peer, blocks, version

    @property
    def storage(self) -> Storage:
        return Storage.open(Path(self.peer.path))

    def step(self, step: Step) -> None:
        """Do the next write of the history."""
        folder = self.peer.step(step).folder
        assert folder is not None
        if self.peer.table.table_type == "COPY_ON_WRITE" and step.operation == "upsert":
            self._by_pipeline(folder)
            return
        table = HoodieTable.open_or_create(self.storage, self._config())
        table.config.check_writable()
        timeline = table.timeline()
        instant = timeline.create_inflight(
            timeline.create_requested(timeline.new_instant(table.config.write_action))
        )
        stats = list(self._write(table, instant, folder, step.operation))
        avro = arrow_to_avro(self._schema.data, "t_record", "hoodie.t")
        metadata = CommitMetadata(
            step.operation.upper(), tuple(stats), {"schema": json.dumps(avro)}
        )
        content = metadata.to_bytes(table.config.layout_version)
        table.timeline().create_completed(instant, content)
        delete_markers(self.storage, instant.time)

    @property
    def _schema(self) -> RecordSchema:
        table = self.peer.table
        columns = [field.with_nullable(True) for field in storage_schema(self.peer.schema)]
        return RecordSchema(pa.schema(columns), table.record_key, table.partition, table.ordering)

    def _config(self) -> TableConfig:
        table: HudiTable = self.peer.table
        return TableConfig(
            name=table.name,
            record_key_fields=table.record_key,
            table_type=table.table_type,
            version=self.version,
            partition_fields=table.partition,
            ordering_fields=table.ordering,
            merge_mode=table.merge_mode,
            hive_style=table.hive_style,
            url_encode=table.url_encode,
            bucket_count=table.buckets,
        )

    def _by_pipeline(self, folder: Path) -> None:
        table = self.peer.table
        options = parse_options(
            {
                "hoodie.table.name": table.name,
                "hoodie.datasource.write.recordkey.field": ",".join(table.record_key),
                "hoodie.datasource.write.partitionpath.field": ",".join(table.partition),
                "hoodie.datasource.write.precombine.field": ",".join(table.ordering),
                "hoodie.datasource.write.hive_style_partitioning": str(table.hive_style).lower(),
                "hoodie.datasource.write.partitionpath.urlencode": str(table.url_encode).lower(),
                "hoodie.write.record.merge.mode": table.merge_mode,
                "hoodie.bucket.index.num.buckets": str(table.buckets),
                "hoodie.write.table.version": str(self.version),
            }
        )
        files = sorted(folder.glob("*.parquet"))
        schema = pq.read_schema(files[0])
        prepared = PreparedWrite.of(self.storage, schema, options)
        prepared.commit(InProcessExchange(parquet_partitions(files, schema.names)))

    def _write(
        self, table: HoodieTable, instant: Instant, folder: Path, operation: str
    ) -> Iterator[WriteStat]:
        slices = {
            (found.partition_path, bucket_of_file_id(found.file_id)): found
            for found in table.view().latest_file_slices()
        }
        for number, rows in enumerate(self._groups(folder, operation)):
            stored = slices.get((rows.path, rows.bucket))
            token = f"{number}-1-0"
            inflight = table.timeline().path(instant)
            if operation == "delete" and stored is None:
                continue
            if stored is not None and table.config.is_mor:
                log = LogWriter(
                    self.storage,
                    table_name=table.config.name,
                    table_version=self.version,
                    data_schema=self._schema.data,
                    target=LogTarget(
                        rows.path,
                        stored.file_id,
                        stored.base_instant,
                        stored.base_file.path.rpartition("/")[2] if stored.base_file else "",
                        max((file.version for file in stored.log_files), default=0),
                    ),
                    write_token=token,
                    instant=instant.time,
                    format=LogFormat(blocks=self.blocks),
                    inflight_path=inflight,
                )
                if operation == "delete":
                    log.delete(rows.keys)
                else:
                    log.append(rows.keys, rows.batch)
                yield from log.close()
                continue
            previous = stored.base_file.path if stored is not None and stored.base_file else None
            base = BaseFileWriter(
                self.storage,
                data_schema=self._schema.data,
                partition_path=rows.path,
                file_id=stored.file_id if stored else bucket_file_id(rows.bucket, rows.path, 1),
                write_token=token,
                instant=instant.time,
                previous=previous,
                inflight_path=inflight,
            )
            if previous is None:
                base.append(rows.keys, rows.batch)
                yield base.close()
                continue
            before = BaseFileReader(self.storage, previous).read()
            gone = set(rows.keys.to_pylist())
            keep = pa.array([key not in gone for key in before["_hoodie_record_key"].to_pylist()])
            for batch in before.filter(keep).to_batches():
                base.append_carried(batch)
            yield base.close(deletes=before.num_rows - sum(keep.to_pylist()))

    def _groups(self, folder: Path, operation: str) -> Iterator[Rows]:
        """The rows of a folder, one of a key, by file group."""
        schema = self._schema
        files = sorted(folder.glob("*.parquet"))
        data = pa.concat_tables([pq.read_table(file) for file in files]).cast(schema.data)
        (batch,) = data.combine_chunks().to_batches()
        table = self.peer.table
        maker = KeyGenerator(schema, table.hive_style, table.url_encode)
        keys, paths = maker.record_keys(batch), maker.partition_paths(batch)
        places = pa.array(
            [f"{p}\n{k}" for p, k in zip(paths.to_pylist(), keys.to_pylist(), strict=True)]
        )
        by_value = [batch.column(name) for name in table.ordering]
        event_time = table.merge_mode == "EVENT_TIME_ORDERING" and operation != "delete"
        kept = precombine(places, by_value if event_time else [])
        order = np.arange(len(keys)) if kept is None else kept
        buckets = bucket_ids(keys, table.record_key, table.record_key, table.buckets)
        groups: dict[tuple[str, int], list[int]] = {}
        for index in order.tolist():
            groups.setdefault((paths[index].as_py(), int(buckets[index])), []).append(index)
        for (path, bucket), indices in sorted(groups.items()):
            taken = pa.array(indices)
            yield Rows(path, bucket, keys.take(taken), batch.take(taken))
