"""Spark's shuffle between two stages, in two forms: rows of a DataFrame, or the bytes of an RDD.

The DataFrame is `mapInArrow`, `repartition` by salt, `mapInArrow`: frames are a binary column, and the JVM
turns Arrow batches into rows, and rows into Arrow batches. The RDD takes the steps of pyspark's own
`RDD.partitionBy`: the JVM moves numbered byte arrays and looks into none. Each holds the frames that one
batch sends to one task, and is one of Spark's shuffle records.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from io import BufferedReader, BufferedWriter
from itertools import pairwise
from struct import Struct
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import pyarrow as pa
from py4j.java_gateway import JavaClass
from pyspark import RDD
from pyspark.serializers import Serializer, SpecialLengths
from pyspark.sql import functions as F  # noqa: N812 - the name that every Spark program uses
from pyspark.sql.types import BinaryType, IntegerType, LongType, StructType

from serde_lab.errors import DataError
from serde_lab.pipeline.exchange.routing import Hop, salts
from serde_lab.pipeline.plan import WritePlan
from serde_lab.pipeline.topologies import topology_of
from serde_lab.records.buffers import binary_array, spans_of

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import DataFrame, SparkSession

_SIMPLIFIED = "spark.sql.execution.pyspark.udf.simplifiedTraceback.enabled"
_END = SpecialLengths.END_OF_DATA_SECTION
# types, since Spark asks the JVM to parse a text at each call
SALTED = (
    StructType().add("salt", IntegerType()).add("position", LongType()).add("frame", BinaryType())
)
RESULTS = StructType().add("result", BinaryType())
"""The output of a stage that no hop follows (`worker.results`)."""

Work = Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]
"""What a task does: its input to batches of ROUTED, or of one column of results."""


class StageInput(ABC):
    """What the tasks of a stage receive."""

    @abstractmethod
    def over(
        self, hop: Hop, plan: WritePlan, work: Work, beside: tuple[int, Work] | None = None
    ) -> Self:
        """The input of the next stage: the frames that `work` sends over `hop`.

        `beside`: so many more tasks, which receive their numbers from 0 and send over the same hop. Spark
        numbers them after the others, whose numbers must equal their input partitions.
        """

    @abstractmethod
    def results(self, work: Work) -> list[bytes]:
        """Run everything; returns the results that the last stage's `work` yields."""


class DataFrameInput(StageInput):
    """Input as a DataFrame: columns of the source, task numbers, or (position, frame)."""

    def __init__(self, rows: DataFrame) -> None:
        self.rows = rows

    @classmethod
    def numbers(cls, spark: SparkSession, tasks: int) -> Self:
        """The number of each of `tasks` tasks."""
        return cls(spark.range(0, tasks, 1, tasks))

    def salted(self, hop: Hop, plan: WritePlan, work: Work) -> DataFrame:
        """The frames that `work` sends, with the salts by which `repartition` places them."""
        return self.rows.mapInArrow(_Salted(work, hop.tasks(plan)), SALTED)

    def over(
        self, hop: Hop, plan: WritePlan, work: Work, beside: tuple[int, Work] | None = None
    ) -> Self:
        sent = self.salted(hop, plan, work)
        if beside is not None:
            others = self.numbers(self.rows.sparkSession, beside[0])
            sent = sent.union(others.salted(hop, plan, beside[1]))
        sent = sent.repartition(hop.tasks(plan), F.col("salt"))
        if hop.is_sorted(plan):
            sent = sent.sortWithinPartitions("position")
        return type(self)(sent.select("position", "frame"))

    def results(self, work: Work) -> list[bytes]:
        rows = self.rows.mapInArrow(work, RESULTS).collect()
        return [bytes(row.result) for row in rows]


class _Salted:
    """The frames of `work` with a salt in place of the target task."""

    def __init__(self, work: Work, tasks: int) -> None:
        self.work, self.tasks = work, tasks

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        salt_of = pa.array(salts(self.tasks))
        for routed in self.work(batches):
            salt = salt_of.take(routed.column("target"))
            yield pa.RecordBatch.from_arrays(
                [salt, routed.column("position"), routed.column("frame")],
                names=["salt", "position", "frame"],
            )


class RddInput(StageInput):
    """Input as an RDD of batches: task numbers, or (position, frame). No hop of it sorts."""

    def __init__(self, spark: SparkSession, batches: RDD[pa.RecordBatch]) -> None:
        self.spark, self.batches = spark, batches

    @classmethod
    def numbers(cls, spark: SparkSession, tasks: int) -> Self:
        numbers = spark.sparkContext.parallelize(range(tasks), tasks)
        return cls(spark, numbers.mapPartitions(_as_batch))

    def over(
        self, hop: Hop, plan: WritePlan, work: Work, beside: tuple[int, Work] | None = None
    ) -> Self:
        context = self.spark.sparkContext
        jvm: Any = context._jvm
        pairs = self._pairs(work)
        if beside is not None:
            pairs = pairs.union(self.numbers(self.spark, beside[0])._pairs(beside[1]))
        # Spark skips the shuffle between equal partitioners, and compares this second number
        partitioner = jvm.PythonPartitioner(hop.tasks(plan), id(work))
        arrived = jvm.PythonRDD.valueOfPair(pairs.partitionBy(partitioner))
        return type(self)(self.spark, RDD(arrived, context, FrameSerializer()))

    def _pairs(self, work: Work) -> Any:
        """Java's RDD of target tasks and frames, each behind its position."""
        sent = self.batches.mapPartitions(work)
        sent._jrdd_deserializer = FrameSerializer()
        jvm: Any = self.spark.sparkContext._jvm
        return jvm.PairwiseRDD(self._java(sent).rdd()).asJavaPairRDD()

    def results(self, work: Work) -> list[bytes]:
        done = self.batches.mapPartitions(work)
        found = done.flatMap(lambda batch: batch.column(0).to_pylist())
        self._java(found)
        return found.collect()

    def _java(self, rdd: RDD[Any]) -> Any:
        """Java's form of `rdd`, whose tasks run in the workers that `mapInArrow` started.

        Spark keeps workers by their environment, and that of SQL's has one variable more.
        """
        context = self.spark.sparkContext
        before = context.environment
        if self.spark.conf.get(_SIMPLIFIED) == "true":
            context.environment = {**before, "SPARK_SIMPLIFIED_TRACEBACK": "1"}
        try:
            return rdd._jrdd
        finally:
            context.environment = before


def _as_batch(numbers: Iterable[int]) -> Iterator[pa.RecordBatch]:
    yield pa.record_batch({"id": pa.array(numbers, pa.int64())})


def obstacle_to_bytes(context: SparkContext, plan: WritePlan, reads_files: bool) -> str:
    """Why the frames of a write cannot cross as the bytes of an RDD; "" if they can.

    `reads_files`: tasks read the source's files themselves.
    """
    if not reads_files:
        return "Spark reads the source, whose rows Python receives from a DataFrame only"
    if any(hop.is_sorted(plan) for hop in topology_of(plan).hops):
        return "a hop sorts its frames, which only a DataFrame does in bounded memory"
    classes = (getattr(context._jvm, name, None) for name in ("PairwiseRDD", "PythonPartitioner"))
    if not all(isinstance(found, JavaClass) for found in classes):
        return "this Spark does not give access to the classes of its RDD shuffle"
    return ""


_SIZE, _COUNT = Struct("!i"), Struct("=q")
# what PairwiseRDD reads: the size of a number, the number, the size of a value, and the value
_PAIR = Struct("!iqi")
_MOST_BYTES = (1 << 31) - 64
"""A value is an array of the JVM, which holds no more."""


class FrameSerializer(Serializer):
    """Writes batches of ROUTED as pairs of target and value; reads values as batches of (position, frame).

    A value holds the frames that one batch sends to one target, so that the JVM does little for each frame:
    their number and positions (int64), where they end (int32), and then their bytes.
    """

    def dump_stream(self, iterator: Iterable[pa.RecordBatch], stream: BufferedWriter) -> None:
        for routed in iterator:
            targets = routed.column("target").to_numpy()
            if (np.diff(targets) < 0).any():
                order = np.argsort(targets, kind="stable")
                routed, targets = routed.take(pa.array(order)), targets[order]
            bounds = [0, *(np.flatnonzero(np.diff(targets)) + 1).tolist(), len(targets)]
            for start, stop in pairwise(bounds):
                if start < stop:
                    _write(routed.slice(start, stop - start), int(targets[start]), stream)

    def load_stream(self, stream: BufferedReader) -> Iterator[pa.RecordBatch]:
        while (size := _SIZE.unpack(stream.read(_SIZE.size))[0]) != _END:
            value = np.empty(size, np.uint8)
            stream.readinto(value.data)
            (count,) = _COUNT.unpack_from(value.data)
            positions, ends, data = np.split(value[_COUNT.size :], [8 * count, 12 * count])
            frames = binary_array(np.concatenate([[0], ends.view(np.int32)]), data)
            yield pa.RecordBatch.from_arrays(
                [pa.array(positions.view(np.int64)), frames], names=["position", "frame"]
            )


def _write(routed: pa.RecordBatch, target: int, stream: BufferedWriter) -> None:
    """Write one pair; raises DataError if the JVM cannot hold its value."""
    data, ends = spans_of(routed.column("frame"))
    head = [
        _COUNT.pack(len(routed)),
        routed.column("position").to_numpy().tobytes(),
        ends[1:].astype(np.int32).tobytes(),
    ]
    value_bytes = sum(map(len, head)) + data.size
    if value_bytes > _MOST_BYTES:
        raise DataError(
            f"a frame has {data.size:,} bytes, and Spark's shuffle moves at most {_MOST_BYTES:,} at once"
        )
    stream.write(_PAIR.pack(8, target, value_bytes))
    for part in head:
        stream.write(part)
    stream.write(memoryview(data))
