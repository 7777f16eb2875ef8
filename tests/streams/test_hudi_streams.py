"""Apache Hudi's streaming sink and the lab take over from each other, with one checkpoint folder."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from serde_lab.errors import OptionError
from serde_lab.table.table import HoodieTable
from serde_lab.table.timeline.checkpoints import keep_checkpoints
from tests.faults.looks import look
from tests.faults.small_table import COW, SCHEMA, Seen, check_readers, seen_after
from tests.peers.conftest import hudi_session as hudi_session
from tests.peers.hudi_options import HudiTable, HudiWrite, write_options
from tests.peers.hudi_reads import HudiSnapshot
from tests.streams.file_stream import COLUMNS, FileStream
from tests.streams.small_stream import stated_batches

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.hudi]


def run_hudi(spark: SparkSession, stream: FileStream) -> None:
    """Hudi's sink over the files that are there."""
    table = HudiTable("t", ("k",), ("ts",), ("p",), COW, buckets=2)
    started = stream.frame(spark).writeStream.format("hudi")
    started = started.options(**write_options(table, HudiWrite())).outputMode("append")
    started = started.option("checkpointLocation", str(stream.checkpoint))
    started.trigger(availableNow=True).start(stream.storage.url).awaitTermination()


def test_each_goes_on_where_the_other_stopped(hudi_session: SparkSession, tmp_path: Path) -> None:
    spark, stream, now = hudi_session, FileStream(tmp_path), Seen()
    stated: list[int] = []

    def add(value: str) -> None:
        nonlocal now
        rows = [("p", "a", len(stated), value), ("q", value, 0, value)]
        stream.add(rows)
        now = seen_after(now, rows)

    def check(*numbers: int) -> None:
        """These batches are the new ones that commits name."""
        stated.extend(numbers)
        found = [json.loads(str(one)) for one in stated_batches(stream.storage)]
        assert found == [{"default_single_writer": str(number)} for number in stated]
        check_readers(stream.storage, now)
        with HudiSnapshot(spark, stream.storage.url) as snapshot:
            look("Apache Hudi", snapshot.table(), SCHEMA.names, now)

    add("hudi")
    run_hudi(spark, stream)
    check(0)
    add("ours")
    stream.run(spark)
    check(1)

    # ours stored the batch, but Spark does not know: Hudi skips it, and goes on
    stream.forget(1)
    add("hudi again")
    run_hudi(spark, stream)
    check(2)

    # the other way round, it has to be said whose folder it is
    stream.forget(2)
    add("ours again")
    with pytest.raises(OptionError, match=r"Apache Hudi's sink stored batch 2 .*does not say"):
        stream.start(spark)
    stream.run(spark, serde_lab__stream__takes_over="true")
    check(3)

    # from a commit without files, too, Hudi knows the batch; and from one that archiving made
    stream.add([])
    stream.run(spark)
    check(4)
    table = HoodieTable.open(stream.storage)
    assert keep_checkpoints(table, table.timeline().completed()) is not None
    stream.forget(4)
    add("hudi at last")
    run_hudi(spark, stream)
    check(4, 5)


@pytest.mark.parametrize("version", [6, 9])
def test_a_batch_that_hudi_archived_is_not_stored_again(
    version: int, hudi_session: SparkSession, tmp_path: Path
) -> None:
    """Its archiving restates no batch, so the active timeline does not know the query any more."""
    spark, stream = hudi_session, FileStream(tmp_path)
    stream.add([("p", "a", 1, "batch")])
    stream.run(spark, hoodie__write__table__version=version)
    table = HudiTable("t", ("k",), ("ts",), ("p",), COW, buckets=2, version=version)
    options = write_options(table, HudiWrite(retain_commits=1, archive_after=2))
    for number in range(4):
        rows = spark.createDataFrame([("p", "a", 2 + number, "Hudi")], COLUMNS)
        rows.write.format("hudi").options(**options).mode("append").save(stream.storage.url)
    assert set(stated_batches(stream.storage)) == {None}
    before = HoodieTable.open(stream.storage).timeline().instants()
    stream.forget(0)
    stream.run(spark)
    assert HoodieTable.open(stream.storage).timeline().instants() == before
    stream.add([("p", "a", 9, "next batch")])
    stream.run(spark)
    check_readers(stream.storage, {("p", "a"): (9, "next batch")})
