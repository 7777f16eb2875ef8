"""What Spark adds to the topologies, which is nothing: the same table through every kind of chain."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow.parquet as pq
import pytest

import serde_lab
from serde_lab.table.read_plan import plan_snapshot
from tests.pipeline.lab_table import FIRST, PARTITIONED, SECOND, LabTable, Rows, table_of
from tests.pipeline.test_spark import source
from tests.pipeline.test_topologies import NO_BUCKETS, options_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from serde_lab.pipeline.commit.coordinator import Commit

pytestmark = pytest.mark.spark


class SparkTable(LabTable):
    """A table that Spark writes; what it must hold is noted alike."""

    def over_spark(self, spark: SparkSession, operation: str, rows: Rows, **options: str) -> Commit:
        """The next write, through Spark."""
        folder = self.noted(operation, table_of(rows))
        given = {**self.given(options), "hoodie.datasource.write.operation": operation}
        return serde_lab.write(source(spark, folder), str(self.path), given)


@pytest.mark.parametrize(
    ("topology", "index", "strategy", "partition"),
    [
        ("state", "FLINK_STATE", "internal_row", PARTITIONED),
        ("step3", "SIMPLE", "arrow", {}),
        ("compatible", "SIMPLE", "avro", PARTITIONED),
        ("bloom", "BLOOM", "pickle", {}),
        ("legacy", "BLOOM", "arrow", PARTITIONED),
    ],
)
def test_topologies_over_spark_give_the_oracles_table(
    topology: str,
    index: str,
    strategy: str,
    partition: dict[str, str],
    spark: SparkSession,
    tmp_path: Path,
) -> None:
    options = options_of(topology, index, **{"serde_lab.strategy": strategy})
    table = SparkTable(tmp_path, {**options, **partition})
    table.over_spark(spark, "upsert", FIRST)
    commit = table.over_spark(spark, "upsert", SECOND)
    assert (commit.rows_updated, commit.rows_inserted) == (3, 2)
    table.check()


@pytest.mark.parametrize("sort", ["NONE", "GLOBAL_SORT"])
def test_rows_become_files_where_they_are(sort: str, spark: SparkSession, tmp_path: Path) -> None:
    given = {**NO_BUCKETS, **PARTITIONED, "hoodie.index.type": "BLOOM"}
    table = SparkTable(tmp_path, {**given, "hoodie.bulkinsert.shuffle.parallelism": "3"})
    options = {"hoodie__bulkinsert__sort__mode": sort}
    commit = table.over_spark(spark, "bulk_insert", FIRST[::-1], **options)
    table.check()
    keys = [
        pq.read_table(table.path / s.path, columns=["_hoodie_record_key"]).column(0).to_pylist()
        for s in commit.stats
    ]
    assert all(one == sorted(one) for one in keys) == (sort == "GLOBAL_SORT")
    table.over_spark(spark, "insert", [("new", 1, 1, 1.0)], serde_lab__topology="append")
    table.check()


def test_partitions_are_overwritten_and_deleted(spark: SparkSession, tmp_path: Path) -> None:
    table = SparkTable(tmp_path, {**options_of("state", "SIMPLE"), **PARTITIONED})
    table.over_spark(spark, "upsert", FIRST)
    table.over_spark(spark, "insert_overwrite", [("a", 4, 1, 9.0), ("w", 1, 1, 9.0)])
    table.check()
    df = spark.createDataFrame([], "k string")
    given = table.given(
        {
            "hoodie__datasource__write__operation": "delete_partition",
            "hoodie__datasource__write__partitions__to__delete": "p 1",
        }
    )
    serde_lab.write(df, str(table.path), given)
    left = plan_snapshot(table.table).read()
    assert left.num_rows == len([row for row in FIRST if row[1] % 3 != 1])
