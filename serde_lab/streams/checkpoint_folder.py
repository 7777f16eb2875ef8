"""Reads the checkpoint folder of a Spark query, wherever Spark can reach it, without changing it.

Spark's own classes read it: StreamMetadata, OffsetSeqLog, CommitLog and FileStreamSourceLog.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_LOG_VERSION = 1
"""FileStreamSourceLog.VERSION of Spark 3.5."""


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
        """Read what all queries have, whatever their sources."""
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


def files_taken(spark: SparkSession, folder: str, source: int = 0) -> set[str]:
    """The files that a query's file source has taken, as Hadoop's paths (`file:/data/changes/1.parquet`).

    The other files of the source's folder are the query's lag, which Spark's progress does not have for
    files. `source`: the source's number in the query.
    """
    jvm, session = spark.sparkContext._jvm, spark._jsparkSession
    assert jvm is not None
    streaming = jvm.org.apache.spark.sql.execution.streaming
    log = streaming.FileStreamSourceLog(_LOG_VERSION, session, f"{folder}/sources/{source}")
    return {str(entry.sparkPath().toPath()) for entry in log.allFiles()}
