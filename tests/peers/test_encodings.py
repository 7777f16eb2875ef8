"""The encodings of our files: integers and dates as differences, which every reader takes at any jump."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import TYPE_CHECKING

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import serde_lab
from tests.peers.hudi_reads import HudiSnapshot

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.hudi]

OPTIONS = {
    "hoodie.table.name": "t",
    "hoodie.datasource.write.recordkey.field": "k",
    "hoodie.datasource.write.precombine.field": "ts",
    "hoodie.bucket.index.num.buckets": "1",
    "hoodie.datasource.write.table.type": "MERGE_ON_READ",
    "hoodie.logfile.data.block.format": "parquet",
    "serde_lab.seed": "1",
}


def jumping(ts: int) -> pa.Table:
    """Neighbours as far apart as their type allows, nulls, runs, and more than one page of each."""
    count = 30_000
    ends = np.array([-(2**63), 2**63 - 1, 0, -1, 2**63 - 1, -(2**63)], np.int64)
    short = np.array([-(2**31), 2**31 - 1, 0, -1, 2**31 - 1, -(2**31)], np.int32)
    at = np.arange(count) % 6
    none = np.arange(count) % 7 == 3
    days = pa.array(np.where(at % 2, 2_932_896, -25_567).astype(np.int32)).cast(pa.date32())
    return pa.table(
        {
            "k": pa.array(np.arange(count)),
            "long": pa.array(ends[at], mask=none),
            "short": pa.array(short[at], mask=none),
            "day": pa.array(days.to_pylist(), pa.date32(), mask=none),
            "run": pa.array(np.full(count, 5, np.int32)),
            "ts": pa.array(np.full(count, ts)),
        }
    )


def test_all_readers_read_differences(hudi_session: SparkSession, tmp_path: Path) -> None:
    first, second = jumping(1), jumping(2).slice(5, 20_000)
    for number, rows in enumerate((first, second)):
        pq.write_table(rows, tmp_path / f"{number}.parquet")
        df = hudi_session.read.parquet(str(tmp_path / f"{number}.parquet"))
        serde_lab.write(df, str(tmp_path / "t"), OPTIONS)
    (base,) = (tmp_path / "t").glob("*.parquet")
    group = pq.read_metadata(base).row_group(0)
    encoded = {
        group.column(i).path_in_schema
        for i in range(group.num_columns)
        if "DELTA_BINARY_PACKED" in group.column(i).encodings
    }
    assert encoded == {"k", "long", "short", "day", "run", "ts"}
    expected = pa.concat_tables([first.slice(0, 5), second, first.slice(20_005)])
    names = expected.column_names
    columns = ", ".join(f'"{name}"' for name in names)
    by_duckdb = duckdb.sql(f"select {columns} from '{base}' order by k").to_arrow_table()
    assert by_duckdb.cast(first.schema).equals(first)
    assert dt.date(9999, 12, 31) in set(first["day"].to_pylist())
    for vectorised in ("true", "false"):
        hudi_session.conf.set("spark.sql.parquet.enableVectorizedReader", vectorised)
        try:
            by_spark = hudi_session.read.parquet(str(base)).select(names).orderBy("k")
            found = pa.Table.from_batches(by_spark._collect_as_arrow())
            assert found.cast(first.schema).equals(first)
            frame = HudiSnapshot(hudi_session, str(tmp_path / "t")).frame()
            by_hudi = frame.select(names).orderBy("k")._collect_as_arrow()
            found = pa.Table.from_batches(by_hudi)
            assert found.cast(expected.schema).equals(expected)
        finally:
            hudi_session.conf.unset("spark.sql.parquet.enableVectorizedReader")
    assert serde_lab.read(hudi_session, str(tmp_path / "t")).count() == len(expected)
