"""Reads the checkpoint folder of a Spark query, wherever Spark can reach it, without changing it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True, slots=True)
class CheckpointFolder:
    """What the folder knows. `planned`: the last batch whose rows are fixed, `committed`: the last one that
    succeeded; -1 if there is none. `query`: the query's id, "" if no query has used the folder.
    """

    query: str = ""
    planned: int = -1
    committed: int = -1

    @property
    def next_batch(self) -> int:
        """The batch that Spark sends first when the query starts."""
        return max(self.planned, self.committed + 1, 0)

    @classmethod
    def read(cls, spark: SparkSession, folder: str) -> CheckpointFolder:
        """Read it by Spark's own classes (StreamMetadata, OffsetSeqLog, CommitLog)."""
        jvm, session = spark.sparkContext._jvm, spark._jsparkSession
        assert jvm is not None
        streaming = jvm.org.apache.spark.sql.execution.streaming
        path = jvm.org.apache.hadoop.fs.Path(folder, "metadata")
        metadata = streaming.StreamMetadata.read(path, session.sessionState().newHadoopConf())
        if not metadata.isDefined():
            return cls()
        logs = (
            streaming.OffsetSeqLog(session, f"{folder}/offsets"),
            streaming.CommitLog(session, f"{folder}/commits"),
        )
        latest = [log.getLatestBatchId() for log in logs]
        planned, committed = (int(found.get()) if found.isDefined() else -1 for found in latest)
        return cls(str(metadata.get().id()), planned, committed)
