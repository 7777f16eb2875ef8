"""Writes and reads Apache Hudi's own record classes through Kryo, in the JVM, as Spark's shuffle does.

Hudi's `HoodieCreateRecordUtils` makes the records from Spark's rows, so that they are those of its writer,
and the serialiser is the session's own. Every loop over records runs inside the JVM: Python hands over whole
iterators. Nothing is compiled: `MethodHandleProxies` makes the one function that Hudi does not have.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import pyarrow as pa
import pyarrow.parquet as pq

from serde_lab.peers.apache_hudi import MERGER_CLASSES, RecordType

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True, slots=True)
class RecordClass:
    """One of Hudi's record classes; `options` make its writer choose it.

    `reuses_rows`: its writer makes all records of a partition around one row in memory, so that they exist
    one at a time. `is_avro`: reading ends with an Avro record, which is decoded when it is first asked for.
    """

    name: str
    java_name: str
    about: str
    record_type: RecordType
    options: Mapping[str, str] = field(default_factory=dict)

    @property
    def is_avro(self) -> bool:
        return self.record_type == "AVRO"

    @property
    def reuses_rows(self) -> bool:
        return self.record_type == "SPARK"

    def own_options(self, unique: bool) -> dict[str, str]:
        """The options that only this class is handed, as `HudiArm.own_options`."""
        key = "hoodie.write.record.merge.custom.implementation.classes"
        return {key: MERGER_CLASSES[self.record_type], **self.options}


_RECORD = "org.apache.hudi.common.model.HoodieRecord"
_MERGE_HANDLE = "hoodie.write.merge.handle.class"

RECORD_CLASSES: Mapping[str, RecordClass] = {
    one.name: one
    for one in (
        RecordClass(
            "hudi_avro_record",
            "org.apache.hudi.common.model.HoodieAvroRecord",
            "a payload that holds the row as Avro bytes, with its ordering value",
            "AVRO",
            {_MERGE_HANDLE: "org.apache.hudi.io.HoodieWriteMergeHandle"},
        ),
        RecordClass(
            "hudi_indexed_record",
            "org.apache.hudi.common.model.HoodieAvroIndexedRecord",
            "an Avro record, which is encoded when it is first written and decoded when first asked for",
            "AVRO",
        ),
        RecordClass(
            "hudi_spark_record",
            "org.apache.hudi.common.model.HoodieSparkRecord",
            "one of Spark's binary rows",
            "SPARK",
        ),
    )
}
"""The record classes by name, as used for a scenario's `peer`."""


class RecordLoops:
    """The loops over the records of one class, for one batch of rows; each call is one loop in the JVM.

    `rows` are data columns, `options` those of a write. Records and streams stay in the JVM: what the methods
    take and return are references to them.
    """

    def __init__(
        self,
        spark: SparkSession,
        kind: RecordClass,
        rows: pa.RecordBatch,
        options: Mapping[str, str],
        work: Path,
    ) -> None:
        self.kind, self.rows = kind, rows
        self._spark, self._work = spark, work
        self._jvm = cast(Any, spark.sparkContext._jvm)
        self._clock = self._jvm.java.lang.management.ManagementFactory.getThreadMXBean()
        self._kryo = self._jvm.org.apache.spark.SparkEnv.get().serializer().newInstance()
        self._any = self._static("scala.reflect.ClassTag").AnyRef()
        frame = self._in_memory(rows)
        self._types = frame.schema()
        self._schema, self._made = self._writer(frame, options)
        self._forced = self._function(self._decoding(True)) if kind.is_avro else None
        self._sent_bytes = 1024 * len(rows)

    def cpu_ns(self) -> int:
        """CPU time of the JVM's thread that runs the loops, in nanoseconds."""
        return int(self._clock.getCurrentThreadCpuTime())

    def collect_garbage(self) -> None:
        """Let the JVM collect its garbage now, so that loops need not."""
        self._jvm.System.gc()

    def converted(self) -> Any:
        """New records of the rows, with their keys: Spark's rows to Hudi's records."""
        return self._iterator().toBuffer()

    def fresh(self) -> Any:
        """New records that nothing was read from or written to; not for timing."""
        if not self.kind.reuses_rows:
            return self.converted()
        stream = self.sink()
        stream.writeAll(self._iterator(), self._any)
        stream.close()
        return self.read(self.source())

    def sink(self) -> Any:
        """A new stream that serialises records into memory."""
        streams = self._jvm.org.apache.commons.io.output
        self._sent = streams.ByteArrayOutputStream(self._sent_bytes)
        return self._kryo.serializeStream(self._sent)

    def write(self, stream: Any, records: Any) -> None:
        """Serialise all records into the stream, and close it."""
        stream.writeAll(records.iterator(), self._any)
        stream.close()

    @property
    def sent_bytes(self) -> int:
        """The bytes of the last stream."""
        return int(self._sent.size())

    def source(self) -> Any:
        """A new stream over the bytes of the last sink."""
        self._sent_bytes = max(self.sent_bytes, 1024)
        return self._kryo.deserializeStream(self._sent.toInputStream())

    def read(self, stream: Any) -> Any:
        """All records of the stream."""
        return stream.asIterator().toBuffer()

    def forced(self, records: Any) -> Any:
        """Bring each record into the form that Hudi's file writer takes.

        An Avro record is decoded when its first value is read; one of Spark's rows is ready.
        """
        if self._forced is None:
            return records
        return records.iterator().map(self._forced).toBuffer()

    def keys(self, records: Any) -> list[str]:
        handle = self._method(_RECORD, "getRecordKey")
        found = records.iterator().map(self._function(handle)).mkString("\n")
        return str(found).split("\n") if found else []

    def rows_of(self, records: Any) -> pa.Table:
        """The data columns of records, as Spark reads them."""
        context, session = self._spark.sparkContext._jsc.sc(), self._spark._jsparkSession
        if self.kind.is_avro:
            functions = self._jvm.org.apache.hudi.HoodieSchemaConversionUtils
            to_row = functions.createGenericRecordToInternalRowConverter(self._schema, self._types)
            found = records.iterator().map(self._function(self._decoding(False))).map(to_row)
            # Spark's reader of Avro records fills one row again and again
            copy = self._method("org.apache.spark.sql.catalyst.InternalRow", "copy")
            found = found.map(self._function(self._method("scala.Option", "get")))
            rows = found.map(self._function(copy)).toBuffer()
        else:
            rows = records.iterator().map(self._function(self._method(_RECORD, "getData")))
            rows = rows.toBuffer()
        rdd = context.parallelize(rows, 1, self._any)
        frame = session.internalCreateDataFrame(rdd, self._types, False)
        with tempfile.TemporaryDirectory(dir=self._work) as folder:
            place = f"{folder}/rows"
            frame.write().parquet(place)
            return pq.read_table(place).cast(self.rows.schema)

    def _in_memory(self, rows: pa.RecordBatch) -> Any:
        """The rows as a DataFrame of Java that holds them in memory, in one partition."""
        with tempfile.TemporaryDirectory(dir=self._work) as folder:
            place = f"{folder}/rows.parquet"
            pq.write_table(pa.Table.from_batches([rows]), place)
            frame = self._spark.read.parquet(place)._jdf
            rows_of_java, session = frame.collectAsList(), self._spark._jsparkSession
        held = session.createDataFrame(rows_of_java, frame.schema())
        # a session with several slots cuts it
        return held if held.rdd().getNumPartitions() == 1 else held.coalesce(1)

    def _writer(self, frame: Any, options: Mapping[str, str]) -> tuple[Any, Any]:
        """The schema of Hudi's records, and the RDD of records that Hudi's writer makes of the rows."""
        hudi, name = self._jvm.org.apache.hudi, options["hoodie.table.name"]
        named = (f"{name}_record", f"hoodie.{name}")
        schema = hudi.HoodieSchemaConversionUtils.convertStructTypeToHoodieSchema(
            frame.schema(), *named
        )
        config = hudi.config.HoodieWriteConfig.newBuilder().withPath(str(self._work))
        config = config.withProps(self._map(options)).build()
        table = hudi.common.table.HoodieTableConfig()
        ordering = "hoodie.table.ordering.fields"
        if options.get(ordering):
            table.setValue(ordering, options[ordering])
        parameters = self._jvm.org.apache.spark.api.python.PythonUtils.toScalaMap(
            self._map(options)
        )
        upsert = hudi.common.model.WriteOperationType.UPSERT
        asked = getattr(hudi, "HoodieCreateRecordUtils$createHoodieRecordRddArgs")(
            *(frame, config, parameters, *named, schema, schema, upsert, "0" * 17),
            *(False, False, False, table),
        )
        return schema, hudi.HoodieCreateRecordUtils.createHoodieRecordRdd(asked).rdd()

    def _map(self, values: Mapping[str, str]) -> Any:
        found = self._jvm.java.util.HashMap()
        for key, value in values.items():
            found.put(key, value)
        return found

    def _decoding(self, first_value: bool) -> Any:
        """The method handle from a record to its Avro record, or to the first value of it.

        Reading a value makes the Avro record decode itself, which it has not done before.
        """
        model = "org.apache.hudi.common.model"
        schema = self._class("org.apache.hudi.common.schema.HoodieSchema")
        properties = self._class("java.util.Properties")
        handles = self._jvm.java.lang.invoke.MethodHandles
        bound = self._array(self._schema, self._jvm.java.util.Properties())
        steps = (
            ("org.apache.hudi.common.util.Option", "get"),
            (f"{model}.HoodieRecord", "getData"),
            (f"{model}.SerializableIndexedRecord", "getData"),
        )
        handle = self._method(self.kind.java_name, "toIndexedRecord", schema, properties)
        handle = self._generic(handles.insertArguments(handle, 1, bound))
        for owner, name in steps:
            handle = handles.filterReturnValue(handle, self._generic(self._method(owner, name)))
        if not first_value:
            return handle
        number = self._jvm.java.lang.Integer.TYPE
        value = self._method("org.apache.avro.generic.IndexedRecord", "get", number)
        value = self._generic(handles.insertArguments(value, 1, self._array(0)))
        return handles.filterReturnValue(handle, value)

    def _method(self, owner: str, name: str, *arguments: Any) -> Any:
        """The method handle of a public method of a class."""
        of_class = self._class(owner)
        (found,) = (
            method
            for method in of_class.getMethods()
            if method.getName() == name
            and not method.isBridge()
            and [one.getName() for one in method.getParameterTypes()]
            == [one.getName() for one in arguments]
        )
        return self._jvm.java.lang.invoke.MethodHandles.publicLookup().unreflect(found)

    def _generic(self, handle: Any) -> Any:
        """The handle of one argument as one from Object to Object."""
        kind = self._jvm.java.lang.invoke.MethodType.genericMethodType(1)
        return handle.asType(kind)

    def _function(self, handle: Any) -> Any:
        """The handle of one argument as a function of Scala."""
        proxies = self._jvm.java.lang.invoke.MethodHandleProxies
        return proxies.asInterfaceInstance(self._class("scala.Function1"), self._generic(handle))

    def _class(self, name: str) -> Any:
        loader = self._jvm.org.apache.spark.util.Utils.getContextOrSparkClassLoader()
        return self._jvm.java.lang.Class.forName(name, True, loader)

    def _static(self, name: str) -> Any:
        """The companion object of a class of Scala."""
        return self._class(f"{name}$").getField("MODULE$").get(None)

    def _array(self, *values: Any) -> Any:
        gateway = cast(Any, self._spark.sparkContext._gateway)
        found = gateway.new_array(self._jvm.java.lang.Object, len(values))
        for place, value in enumerate(values):
            found[place] = value
        return found

    def _iterator(self) -> Any:
        partition = self._made.partitions()[0]
        return self._made.iterator(partition, self._static("org.apache.spark.TaskContext").empty())
