"""Topics of a Kafka broker with rows of the small table, and streams from them."""

from __future__ import annotations

import io
import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import fastavro

from tests.streams.file_stream import COLUMNS, FileStream

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

Form = Literal["json", "avro"]
Sent = tuple[str, str, int, str | None]
"""A row of the small table; its time is the record's timestamp, and without a value it is a tombstone."""
AVRO = {"type": "record", "name": "row", "fields": [{"name": "v", "type": "string"}]}


class Topic:
    """One topic, made and filled by the Kafka client in the session's JVM."""

    def __init__(
        self, spark: SparkSession, servers: str, name: str, partitions: int, form: Form = "json"
    ) -> None:
        self._kafka: Any = spark._jvm.org.apache.kafka.clients  # type: ignore[attr-defined]
        self._client = {"bootstrap.servers": servers}
        self.name, self.form = name, form
        topic = self._kafka.admin.NewTopic(name, partitions, 1)
        self._administer(lambda admin: admin.createTopics([topic]))

    def widen(self, partitions: int) -> None:
        more = self._kafka.admin.NewPartitions.increaseTo(partitions)
        self._administer(lambda admin: admin.createPartitions({self.name: more}))

    def send(self, rows: Iterable[Sent], partition: int | None = None) -> None:
        """Append records, each to the partition of its key or all to one."""
        package = "org.apache.kafka.common.serialization"
        producer = self._kafka.producer.KafkaProducer(
            {
                **self._client,
                "key.serializer": f"{package}.StringSerializer",
                "value.serializer": f"{package}.ByteArraySerializer",
            }
        )
        record = self._kafka.producer.ProducerRecord
        try:
            for p, k, ts, v in rows:
                value = None if v is None else encoded(v, self.form)
                producer.send(record(self.name, partition, ts, f"{p}/{k}", value, None))
            producer.flush()
        finally:
            producer.close()

    def _administer(self, ask: Any) -> None:
        admin = self._kafka.admin.Admin.create(self._client)
        try:
            ask(admin).all().get()
        finally:
            admin.close()


def encoded(v: str, form: Form) -> bytes:
    """The value of a record."""
    if form == "json":
        return json.dumps({"v": v}).encode()
    file = io.BytesIO()
    fastavro.schemaless_writer(file, fastavro.parse_schema(dict(AVRO)), {"v": v})
    return file.getvalue()


def decoded(form: Form) -> Column:
    """The column `value` as a struct."""
    from pyspark.sql.avro.functions import from_avro
    from pyspark.sql.functions import col, from_json

    if form == "avro":
        return from_avro("value", json.dumps(AVRO), {"mode": "FAILFAST"})
    return from_json(col("value").cast("string"), "v string", {"mode": "FAILFAST"})


@dataclass(frozen=True, slots=True)
class KafkaStream(FileStream):
    """The same with a topic as the source; `most` rows a batch."""

    servers: str = ""
    topic: str = ""
    form: Form = "json"
    most: int = 1000

    def frame(self, spark: SparkSession, columns: str = COLUMNS) -> DataFrame:
        from pyspark.sql.functions import col, split, unix_millis

        records = (
            spark.readStream.format("kafka")
            .option("kafka.bootstrap.servers", self.servers)
            .option("subscribe", self.topic)
            .option("startingOffsets", "earliest")
            .option("maxOffsetsPerTrigger", self.most)
            .load()
        )
        key = split(col("key").cast("string"), "/")
        rows = records.select(
            key[0].alias("p"),
            key[1].alias("k"),
            unix_millis("timestamp").alias("ts"),
            decoded(self.form).alias("row"),
            col("value").isNull().alias("_hoodie_is_deleted"),
        )
        return rows.select("p", "k", "ts", "row.*", "_hoodie_is_deleted")
