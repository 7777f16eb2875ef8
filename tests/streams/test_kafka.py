"""Streams from topics of a real Kafka broker: values, tombstones, new partitions, lag, killed drivers."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from multiprocessing import get_context
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import serde_lab
from serde_lab.errors import OptionError, SetupError
from serde_lab.lab.jars.manifest import KAFKA_BROKER, fetch_jars
from tests.faults.small_table import MOR, check_file_groups, check_readers, seen_by_us
from tests.streams.file_stream import Moment, run_and_die
from tests.streams.kafka_broker import KafkaBroker
from tests.streams.kafka_stream import Form, KafkaStream, Sent, Topic
from tests.streams.small_stream import stated_batches

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming import StreamingQuery

pytestmark = [pytest.mark.spark, pytest.mark.kafka]

NOON = 1_700_000_000_000
_PATIENCE_S = 300


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaBroker]:
    with KafkaBroker(fetch_jars(KAFKA_BROKER), tmp_path_factory.mktemp("kafka")) as one:
        yield one


@pytest.fixture(scope="module")
def connector(found_connector: list[Path] | SetupError) -> tuple[str, ...]:
    if isinstance(found_connector, SetupError):
        pytest.fail(str(found_connector))
    return tuple(map(str, found_connector))


def until(query: StreamingQuery, done: Any) -> None:
    for _ in range(_PATIENCE_S * 2):
        if query.exception() is not None:
            raise AssertionError(str(query.exception()))
        if done():
            return
        query.awaitTermination(0.5)
    raise AssertionError("the query did not get there")


def sent(number: int, key: str, v: str | None) -> Sent:
    return ("pq"[number % 2], key, NOON + number, v)


@pytest.mark.parametrize("form", ["json", "avro"])
def test_values_become_rows_and_tombstones_delete(
    form: Form, spark: SparkSession, broker: KafkaBroker, connector: tuple[str, ...], tmp_path: Path
) -> None:
    topic = Topic(spark, broker.servers, f"values-{form}", 2, form)
    stream = KafkaStream(
        tmp_path, MOR, jars=connector, servers=broker.servers, topic=topic.name, form=form
    )
    topic.send([("p", key, NOON, "first") for key in "abc"])
    stream.run(spark)
    check_readers(stream.storage, {("p", key): (NOON, "first") for key in "abc"})
    # a key that is deleted and comes back in one batch, and one that is deleted without ever being there
    topic.send([("p", "a", NOON + 1, None), ("p", "b", NOON + 1, None), ("p", "z", NOON + 1, None)])
    # at the same time: the order in the topic decides
    topic.send([("p", "b", NOON + 1, "back"), ("p", "c", NOON + 1, "x"), ("p", "c", NOON + 1, "y")])
    stream.run(spark)
    assert len(stated_batches(stream.storage)) == 2
    expected = {("p", "b"): (NOON + 1, "back"), ("p", "c"): (NOON + 1, "y")}
    check_readers(stream.storage, expected)


def test_a_value_that_cannot_be_parsed_ends_the_query(
    spark: SparkSession, broker: KafkaBroker, connector: tuple[str, ...], tmp_path: Path
) -> None:
    from pyspark.errors import StreamingQueryException

    topic = Topic(spark, broker.servers, "torn", 1, "avro")
    topic.send([("p", "a", NOON, "in Avro")])
    stream = KafkaStream(tmp_path, MOR, jars=connector, servers=broker.servers, topic=topic.name)
    with pytest.raises(StreamingQueryException, match="Malformed records"):
        stream.run(spark)


def test_a_topic_whose_lost_records_are_left_out_is_refused(
    spark: SparkSession, connector: tuple[str, ...], tmp_path: Path
) -> None:
    reader = spark.readStream.format("kafka").option("subscribe", "t")
    records = reader.option("kafka.bootstrap.servers", "127.0.0.1:9").option(
        "failondataloss", "FALSE"
    )
    stream = KafkaStream(tmp_path, jars=connector)
    with pytest.raises(OptionError, match="kafka has failOnDataLoss=false"):
        serde_lab.write_stream(
            records.load(), stream.storage.url, stream.options(), str(stream.checkpoint)
        )


def test_a_writer_that_lags_catches_up_and_takes_up_new_partitions(
    spark: SparkSession, broker: KafkaBroker, connector: tuple[str, ...], tmp_path: Path
) -> None:
    topic = Topic(spark, broker.servers, "lag", 2)
    stream = KafkaStream(
        tmp_path, MOR, jars=connector, servers=broker.servers, topic=topic.name, most=20
    )
    rows = [sent(number, f"{number % 9}", f"{number}") for number in range(50)]
    for partition in (0, 1):
        topic.send([row for row in rows if "pq".index(row[0]) == partition], partition)
    expected = {(p, k): (ts, v) for p, k, ts, v in rows}
    query = serde_lab.write_stream(
        stream.frame(spark), stream.storage.url, stream.options(), str(stream.checkpoint)
    )
    try:
        until(query, lambda: len(query.recentProgress) > 0 and _lag(query.lastProgress) == 0)
        taken = [one for one in query.recentProgress if one["numInputRows"]]
        assert [one["numInputRows"] for one in taken] == [20, 20, 10]
        assert [_lag(one) for one in taken] == [15, 5, 0]
        check_readers(stream.storage, expected)
        topic.widen(4)
        for partition in (2, 3):
            more = ("new", f"{partition}", NOON + 99, "in a new partition")
            topic.send([more], partition)
            expected["new", more[1]] = more[2:]
        until(query, lambda: seen_by_us(stream.storage) == expected)
    finally:
        query.stop()
    check_readers(stream.storage, expected)
    check_file_groups(stream.storage)


def _lag(progress: Any) -> int:
    """Records of the partition with most of them that the query has not taken yet."""
    return int(progress["sources"][0]["metrics"]["maxOffsetsBehindLatest"])


@pytest.mark.parametrize("moment", ["before the commit", "after the commit"])
def test_a_driver_is_killed_and_each_record_is_stored_once(
    moment: Moment,
    spark: SparkSession,
    broker: KafkaBroker,
    connector: tuple[str, ...],
    tmp_path: Path,
) -> None:
    topic = Topic(spark, broker.servers, f"killed-{moment[0]}", 1)
    stream = KafkaStream(
        tmp_path, MOR, jars=connector, servers=broker.servers, topic=topic.name, most=2
    )
    rows = [sent(number, f"{number}", f"{number}") for number in range(5)]
    topic.send([*rows, (*rows[0][:2], NOON + 9, None)])
    driver = get_context("spawn").Process(target=run_and_die, args=(stream, 1, moment))
    driver.start()
    driver.join(_PATIENCE_S)
    assert driver.exitcode == -signal.SIGKILL
    stored = rows[:2] if moment == "before the commit" else rows[:4]
    check_readers(stream.storage, {(p, k): (ts, v) for p, k, ts, v in stored})
    # what comes now belongs to a later batch: the killed one keeps its offsets
    topic.send([("p", "late", NOON, "late")])
    stream.run(spark)
    expected = {(p, k): (ts, v) for p, k, ts, v in (*rows[1:], ("p", "late", NOON, "late"))}
    check_readers(stream.storage, expected)
    assert len(stated_batches(stream.storage)) == 4
    check_file_groups(stream.storage)
