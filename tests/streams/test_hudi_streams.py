"""Apache Hudi's streaming sink and the lab take over from each other, with one checkpoint folder."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from serde_lab.errors import OptionError
from serde_lab.peers.apache_hudi import HudiSnapshot
from tests.faults.looks import look
from tests.faults.small_table import COW, SCHEMA, Seen, check_readers, seen_after
from tests.peers.conftest import hudi_session as hudi_session
from tests.peers.hudi_options import HudiTable, HudiWrite, write_options
from tests.streams.file_stream import FileStream
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
    numbers: list[int] = []

    def check(*values: str, added: int) -> None:
        nonlocal now
        for value in values:
            now = seen_after(now, [("p", "a", len(numbers), value), ("q", value, 0, value)])
        numbers.extend(range(len(numbers), len(numbers) + added))
        found = stated_batches(stream.storage)
        assert [str(one).replace(" ", "") for one in found] == [
            f'{{"default_single_writer":"{number}"}}' for number in numbers
        ]
        check_readers(stream.storage, now)
        with HudiSnapshot(spark, stream.storage.url) as snapshot:
            look("Apache Hudi", snapshot.table(), SCHEMA.names, now)

    def add(value: str) -> None:
        stream.add([("p", "a", len(numbers), value), ("q", value, 0, value)])

    add("hudi")
    run_hudi(spark, stream)
    check("hudi", added=1)
    add("ours")
    stream.run(spark)
    check("ours", added=1)

    # ours stored the batch, but Spark does not know: Hudi skips it, and goes on
    stream.forget(1)
    add("hudi again")
    run_hudi(spark, stream)
    check("hudi again", added=1)

    # the other way round, it has to be said whose folder it is
    stream.forget(2)
    add("ours again")
    with pytest.raises(OptionError, match=r"Apache Hudi's sink stored batch 2 .*does not say"):
        stream.start(spark)
    stream.run(spark, serde_lab__stream__takes_over="true")
    check("ours again", added=1)
