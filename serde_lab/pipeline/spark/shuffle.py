"""Spark's shuffle between two stages, in two forms: rows of a DataFrame, or the bytes of an RDD.

The DataFrame is `mapInArrow`, `repartition` by salt, `mapInArrow`: frames are a binary column, and the JVM
turns Arrow batches into rows, and rows into Arrow batches. The RDD takes the steps of pyspark's own
`RDD.partitionBy`: the JVM moves numbered byte arrays and looks into none.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from io import BufferedReader, BufferedWriter
from itertools import pairwise
from struct import Struct
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from py4j.java_gateway import JavaClass
from pyspark import RDD
from pyspark.serializers import Serializer, SpecialLengths
from pyspark.sql import functions as F  # noqa: N812 - the name that every Spark program uses

from serde_lab.errors import DataError
from serde_lab.pipeline.exchange.routing import Hop, salts
from serde_lab.pipeline.plan import WritePlan
from serde_lab.pipeline.topologies import topology_of
from serde_lab.records.buffers import binary_array, data_of, lengths_of, offsets_of

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import DataFrame, SparkSession

_SIMPLIFIED = "spark.sql.execution.pyspark.udf.simplifiedTraceback.enabled"
SALTED = "salt int, position long, frame binary"

Work = Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]
"""What a task does: its input to batches of ROUTED, or of one column of statuses."""


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
    def statuses(self, work: Work) -> list[bytes]:
        """Run everything; returns the statuses that the last stage's `work` yields."""


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

    def statuses(self, work: Work) -> list[bytes]:
        rows = self.rows.mapInArrow(work, "status binary").collect()
        return [bytes(row.status) for row in rows]


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
        """The number of each of `tasks` tasks."""
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

    def statuses(self, work: Work) -> list[bytes]:
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


_SIZE, _POSITION = Struct("!i"), Struct("!q")
# what PairwiseRDD reads: the size of a number, the target, the size of a value, and the value
_HEADER = np.dtype(
    [("number_bytes", ">i4"), ("target", ">i8"), ("value_bytes", ">i4"), ("position", ">i8")]
)
# what PythonRDD writes before a frame
_BEFORE = np.dtype([("value_bytes", ">i4"), ("position", ">i8")])
_ARRIVED = pa.schema(
    [
        pa.field("position", pa.int64(), nullable=False),
        pa.field("frame", pa.binary(), nullable=False),
    ]
)
_MOST_BYTES = (1 << 31) - 64
"""A frame with its position is an array of the JVM, which holds no more."""
_SMALL_BYTES = 4096
"""Frames that are smaller are joined before they are written; one by one, each costs two calls."""
_GATHERED_BYTES = 1 << 20


class FrameSerializer(Serializer):
    """Writes batches of ROUTED as pairs of target and value, and reads values as (position, frame).

    A value is the position in eight bytes, and then the frame. Sizes are big-endian, as the JVM reads them.
    """

    def dump_stream(self, iterator: Iterable[pa.RecordBatch], stream: BufferedWriter) -> None:
        for routed in iterator:
            frames = routed.column("frame")
            sizes = lengths_of(frames)
            most = int(sizes.max(initial=0))
            if most > _MOST_BYTES:
                raise DataError(f"a frame has {most:,} bytes, expected at most {_MOST_BYTES:,}")
            headers = np.empty(len(frames), _HEADER)
            headers["number_bytes"] = 8
            headers["target"] = routed.column("target").to_numpy()
            headers["value_bytes"] = sizes + _POSITION.size
            headers["position"] = routed.column("position").to_numpy()
            _write(headers, frames, stream)

    def load_stream(self, stream: BufferedReader) -> Iterator[pa.RecordBatch]:
        small: list[pa.RecordBatch] = []
        held = 0
        while True:
            if batch := _buffered(stream):
                small.append(batch)
                held += batch.nbytes
            large = _next(stream)
            if small and (large is None or held + large.nbytes > _GATHERED_BYTES):
                yield pa.concat_batches(small)
                small, held = [], 0
            if large is None:
                return
            if large.nbytes > _GATHERED_BYTES:
                yield large
            else:
                small.append(large)
                held += large.nbytes


def _buffered(stream: BufferedReader) -> pa.RecordBatch | None:
    """The values that are whole in the buffer of `stream`; None if there are none."""
    buffered = stream.peek()
    begins, at, size = [], 0, len(buffered)
    while at + _SIZE.size <= size:
        (value_bytes,) = _SIZE.unpack_from(buffered, at)
        end = at + _SIZE.size + value_bytes
        # a negative size is a mark, such as the end's
        if value_bytes < 0 or end > size:
            break
        begins.append(at)
        at = end
    if not begins:
        return None
    ends = np.empty(2 * len(begins) + 1, np.int32)
    ends[:-1:2] = begins
    ends[1::2] = ends[:-1:2] + _BEFORE.itemsize
    ends[-1] = at
    values = binary_array(ends, stream.read(at))
    before = values.take(pa.array(np.arange(0, len(values), 2)))
    frames = values.take(pa.array(np.arange(1, len(values), 2)))
    positions = np.frombuffer(data_of(before), _BEFORE)["position"].astype(np.int64)
    return pa.RecordBatch.from_arrays([pa.array(positions), frames], schema=_ARRIVED)


def _next(stream: BufferedReader) -> pa.RecordBatch | None:
    """The next value, of any size; None at the end."""
    (size,) = _SIZE.unpack(stream.read(_SIZE.size))
    if size == SpecialLengths.END_OF_DATA_SECTION:
        return None
    (position,) = _POSITION.unpack(stream.read(_POSITION.size))
    data = np.empty(size - _POSITION.size, np.uint8)
    stream.readinto(data.data)
    frame = binary_array(np.array([0, len(data)]), data)
    return pa.RecordBatch.from_arrays([pa.array([position]), frame], schema=_ARRIVED)


def _write(headers: npt.NDArray[np.void], frames: pa.BinaryArray, stream: BufferedWriter) -> None:
    width, ends = _HEADER.itemsize, offsets_of(frames)
    if len(frames) and int(ends[-1] - ends[0]) < _SMALL_BYTES * len(frames):
        before = binary_array(np.arange(0, headers.nbytes + 1, width), headers)
        stream.write(data_of(pc.binary_join_element_wise(before, frames, b"")))
        return
    written, data = memoryview(headers.tobytes()), memoryview(data_of(frames))
    for n, (begin, end) in enumerate(pairwise((ends - ends[0]).tolist())):
        stream.write(written[n * width : (n + 1) * width])
        stream.write(data[begin:end])
