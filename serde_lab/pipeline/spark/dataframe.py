"""Looks at a DataFrame on the driver: the files that it scans, what the JVM can do with its columns, and a
stream's sources.

A plain scan of Parquet files lists the files that Spark itself would read in each input partition. With a
filter, projection, join, cache, partition column, split file or unknown option it is not a plain scan,
and Spark reads the rows. `pipeline.source.files` checks the contents of the files.

Columns that cross as Spark's own are given their form for Python here, and their bucket. Hops without
Python before them need the bucket hash in the JVM. It is Java's own String.hashCode, called through
Catalyst's Invoke, since no SQL function computes it; it must equal `table.index.bucket_index`.
"""

from __future__ import annotations

import functools
import operator
import urllib.parse
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from py4j.protocol import Py4JError
from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812 - the name that every Spark program uses
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import (
    BooleanType,
    ByteType,
    DataType,
    DateType,
    DecimalType,
    IntegerType,
    LongType,
    ShortType,
    StringType,
    StructType,
)

from serde_lab.errors import OptionError
from serde_lab.pipeline.source.files import SourceFiles, readable
from serde_lab.records.keys import DEFAULT_PARTITION, EMPTY_KEY, NULL_KEY
from serde_lab.records.plain_form import LONGEST
from serde_lab.records.schema import leads_into_struct

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from serde_lab.pipeline.plan import WritePlan
    from serde_lab.table.config import TableConfig


_PACKAGE = "org.apache.spark.sql."
_UNION = f"{_PACKAGE}catalyst.plans.logical.Union"
_RELATION = f"{_PACKAGE}execution.datasources.LogicalRelation"
_FILES = f"{_PACKAGE}execution.datasources.HadoopFsRelation"
_PARQUET = f"{_PACKAGE}execution.datasources.parquet.ParquetFileFormat"
_SCAN = f"{_PACKAGE}execution.FileSourceScanExec"
_OPTIONS = frozenset({"path", "paths"})

# each changes what Spark reads, or makes it skip what it cannot read
_SETTINGS = {
    "spark.sql.files.ignoreCorruptFiles": "false",
    "spark.sql.files.ignoreMissingFiles": "false",
    "spark.sql.parquet.fieldId.read.enabled": "false",
    "spark.sql.parquet.binaryAsString": "false",
    "spark.sql.parquet.datetimeRebaseModeInRead": None,
}
_CALENDARS = ("EXCEPTION", "CORRECTED")
# Spark never splits a file smaller than both
_LIMITS = ("maxPartitionBytes", "openCostInBytes")
_NOT_REPLAYED = ("socket",)
"""Spark's sources that cannot send a batch again after a failure."""


class _NoPlainScan(Exception):
    """Not a plain scan: Spark has to read the rows."""


def plain_files(source: DataFrame, schema: pa.Schema) -> SourceFiles | None:
    """The files of `source` by input partition, if Arrow reads its rows as Spark does; otherwise None.

    Only those columns of `schema` that the source has are checked.
    """
    try:
        partitions = tuple(tuple(paths) for paths in _partitions(source))
    except (_NoPlainScan, Py4JError):
        return None
    columns = sent_schema(StructType([f for f in source.schema if f.name in schema.names]))
    if not readable([path for paths in partitions for path in paths], columns):
        return None
    return SourceFiles(partitions, tuple(columns.names))


def sent_schema(schema: StructType) -> pa.Schema:
    """The types in which Spark sends columns to Python; a time with a zone is sent in UTC."""
    return pa.schema(
        [
            f.with_type(pa.timestamp("us", "UTC"))
            if pa.types.is_timestamp(f.type) and f.type.tz
            else f
            for f in to_arrow_schema(schema)
        ]
    )


def _partitions(source: DataFrame) -> Iterator[list[str]]:
    execution = source._jdf.queryExecution()
    # cached relations already appear in this plan; what a stream gives is refused here, by one look
    relations = list(_relations(execution.withCachedData(), source.columns))
    conf = source.sparkSession.conf
    for setting, expected in _SETTINGS.items():
        found = str(conf.get(setting)).upper()
        if found not in ((expected.upper(),) if expected else _CALENDARS):
            raise _NoPlainScan
    hadoop = source.sparkSession._jsc.hadoopConfiguration()
    if hadoop.get("parquet.crypto.factory.class") or hadoop.get("parquet.encryption.key.list"):
        raise _NoPlainScan
    whole = min(_bytes(conf.get(f"spark.sql.files.{s}")) for s in _LIMITS)
    alone = [_one_file(relation, whole) for relation in relations]
    if all(path is not None for path in alone):
        yield from ([path] for path in alone if path is not None)
        return
    yield from _as_split(execution.sparkPlan())


def _bytes(text: str | None) -> int:
    """A size in Spark's notation: a plain number, or one ending in B; 0 for any other unit."""
    digits = (text or "0").lower().removesuffix("b")
    return int(digits) if digits.isdecimal() else 0


def _relations(plan: Any, columns: list[str]) -> Iterator[Any]:
    """The relations under unions, in order. Raises _NoPlainScan for anything else."""
    kind = plan.getClass().getName()
    if kind == _UNION:
        children = plan.children()
        for number in range(children.size()):
            yield from _relations(children.apply(number), columns)
        return
    if kind != _RELATION or plan.isStreaming() or plan.catalogTable().isDefined():
        raise _NoPlainScan
    relation = plan.relation()
    if relation.getClass().getName() != _FILES:
        raise _NoPlainScan
    # a union matches columns by position
    output = plan.output()
    if [output.apply(i).name() for i in range(output.size())] != columns:
        raise _NoPlainScan
    if relation.fileFormat().getClass().getName() != _PARQUET or relation.bucketSpec().isDefined():
        raise _NoPlainScan
    options = relation.options().keySet().toList()
    if relation.partitionSchema().size() or not {
        options.apply(i) for i in range(options.size())
    } <= set(_OPTIONS):
        raise _NoPlainScan
    yield relation


def _one_file(relation: Any, whole_bytes: int) -> str | None:
    """The path of a relation that is one file too small to be split; None for any other."""
    location = relation.location()
    if int(location.sizeInBytes()) > whole_bytes:
        return None
    files = list(location.inputFiles())
    return _local(files[0]) if len(files) == 1 else None


def _as_split(plan: Any) -> Iterator[list[str]]:
    """The files of each partition, as Spark's own scan distributes them."""
    if plan.getClass().getSimpleName() == "UnionExec":
        children = plan.children()
        for number in range(children.size()):
            yield from _as_split(children.apply(number))
        return
    if plan.getClass().getName() != _SCAN:
        raise _NoPlainScan
    partitions = plan.inputRDD().filePartitions()
    for number in range(partitions.size()):
        paths = []
        for file in partitions.apply(number).files():
            if file.start() or file.length() != file.fileSize():
                raise _NoPlainScan
            paths.append(_local(file.urlEncodedPath()))
        yield paths


def _local(url: str) -> str:
    parts = urllib.parse.urlsplit(url)
    if parts.scheme != "file" or parts.netloc:
        raise _NoPlainScan
    return urllib.parse.unquote(parts.path)


_INT_MAX = 0x7FFFFFFF
_NO_EXPONENT = 6


def handed_over(source: DataFrame, schema: pa.Schema) -> DataFrame:
    """The rows as Python gets them: the columns of `columns_handed_over`, in any order.

    If the source has no others, only those that change are named: each name costs calls to the JVM.
    """
    if set(source.columns) <= set(schema.names):
        return source.withColumns(_unscaled(source)) if _short_decimals(source) else source
    return source.select(*columns_handed_over(source, schema).values())


def columns_handed_over(source: DataFrame, schema: pa.Schema) -> dict[str, Column]:
    """The columns of `schema` that the source has, by name, with short decimals as unscaled longs.

    Spark's ArrowWriter makes a BigDecimal of each decimal, but copies longs. `stages.stored_form`
    restores the decimals. Same values, same frames.
    """
    unscaled, there = _unscaled(source), frozenset(source.columns)
    return {
        name: unscaled[name] if name in unscaled else source[name]
        for name in schema.names
        if name in there
    }


def _short_decimals(source: DataFrame) -> list[str]:
    return [
        field.name
        for field in source.schema
        if isinstance(field.dataType, DecimalType) and field.dataType.precision <= LONGEST
    ]


def _unscaled(source: DataFrame) -> dict[str, Column]:
    """The short decimals as unscaled longs, by name."""
    sql = source.sparkSession._jvm.org.apache.spark.sql  # type: ignore[union-attr]
    made = {}
    for name in _short_decimals(source):
        value = sql.catalyst.expressions.UnscaledValue(source[name]._jc.expr())
        made[name] = Column(sql.Column(value)).alias(name)
    return made


def java_bucket(source: DataFrame, plan: WritePlan) -> Column:
    """The reduce partition of each row, an int column: pmod of the bucket, as in `routing.targets_of`."""
    spark = source.sparkSession
    # List.hashCode: 31 * h + element, from 1, in wrapping 32-bit arithmetic
    wrapped = F.lit(1).cast("long")
    table = plan.table
    several = len(table.record_key_fields) > 1
    hashed = [name for name in table.record_key_fields if name in table.bucket_fields]
    for name in hashed:  # in the order of the key
        text = F.col(name).cast("string")
        if several:
            # what stands for null or an empty text in a key counts as these
            text = F.when(~text.isin(NULL_KEY, EMPTY_KEY), text)
        elif plan.keygen.complex:
            # a key without a `,` is hashed whole, including the name of its field if the key contains it
            text = F.concat(F.lit(f"{name}:"), text)
        element = F.coalesce(_string_hash(spark, text), F.lit(0)).cast("long")
        wrapped = _to_int(wrapped * 31 + element)
    bucket = wrapped.bitwiseAND(_INT_MAX) % plan.buckets
    if not plan.schema.partition:
        return F.pmod(bucket, F.lit(plan.targets)).cast("int")
    path = _partition_path(plan)
    folder = _string_hash(spark, path).cast("long").bitwiseAND(_INT_MAX)
    return (((folder % plan.targets) * plan.buckets + bucket) % plan.targets).cast("int")


def _string_hash(spark: object, text: Column) -> Column:
    """String.hashCode of a string column, as an int column; null for null."""
    jvm = spark._jvm  # type: ignore[attr-defined]
    types = jvm.org.apache.spark.sql.types
    invoke = jvm.org.apache.spark.sql.catalyst.expressions.objects.Invoke
    nothing = jvm.PythonUtils.toSeq([])
    string = types.ObjectType(jvm.java.lang.Class.forName("java.lang.String"))
    as_string = invoke(text._jc.expr(), "toString", string, nothing, nothing, True, True, True)
    integer = types.DataType.fromDDL("int")
    hashed = invoke(as_string, "hashCode", integer, nothing, nothing, True, True, True)
    return Column(jvm.org.apache.spark.sql.Column(hashed))


def _to_int(value: Column) -> Column:
    """A long column wrapped to signed 32 bits, whatever the ANSI mode."""
    low = value.bitwiseAND(0xFFFFFFFF)
    return F.when(low > _INT_MAX, low - (1 << 32)).otherwise(low)


def computes_keys(source: DataFrame, table: TableConfig) -> bool:
    """Whether the JVM's text of key and partition columns equals the text in keys and paths."""
    if table.is_keyless or table.url_encode or table.time_rule is not None:
        return False
    if table.bucket_expressions:
        return False
    identifying = (*table.record_key_fields, *table.partition_fields)
    if any(map(leads_into_struct, identifying)):
        return False
    return all(
        _is_plain(source.schema[name].dataType) for name in identifying if name in source.columns
    )


def _is_plain(kind: DataType) -> bool:
    """Whether Spark's text of a value is that in keys and paths, whatever its settings."""
    if isinstance(kind, DecimalType):
        # with more digits, a small value has an exponent in a key, and in Spark only without ANSI mode
        return kind.scale <= _NO_EXPONENT
    whole = StringType | ByteType | ShortType | IntegerType | LongType | BooleanType | DateType
    return isinstance(kind, whole)


def path_and_key(source: DataFrame, plan: WritePlan) -> list[Column]:
    """The sort columns: partition and key columns as text."""
    names = (*plan.schema.partition, *plan.schema.record_key)
    return [source[name].cast("string") for name in names] or [F.monotonically_increasing_id()]


def holds_separators(source: DataFrame, table: TableConfig) -> bool:
    """Whether a text key field contains `,` or `:`, at which Hudi's bucket hash splits keys.

    `java_bucket` hashes the texts as they are. Runs a Spark job, but only if there are text fields.
    """
    texts = [
        F.col(name)
        for name in table.record_key_fields
        if name in source.columns and isinstance(source.schema[name].dataType, StringType)
    ]
    if not texts:
        return False
    held = [text.rlike("[,:]") for text in texts]
    return not source.where(functools.reduce(operator.or_, held)).isEmpty()


def _partition_path(plan: WritePlan) -> Column:
    segments = []
    for name in plan.schema.partition:
        text = F.col(name).cast("string")
        value = F.when(text.isNull() | (text == ""), F.lit(DEFAULT_PARTITION)).otherwise(text)
        segments.append(F.concat(F.lit(f"{name}="), value) if plan.keygen.hive_style else value)
    return F.concat_ws("/", *segments)


def check_replayed(df: DataFrame) -> None:
    """Raises OptionError if a source of the streaming DataFrame cannot send the same rows again."""
    leaves = df._jdf.queryExecution().analyzed().collectLeaves()
    for number in range(leaves.size()):
        leaf = leaves.apply(number)
        if not leaf.getClass().getSimpleName().startswith("StreamingRelation"):
            continue
        name = str(leaf.sourceName())
        if name in _NOT_REPLAYED:
            raise OptionError(
                f"the source {name} cannot send rows again after a failure, so none of its batches could be"
                " stored exactly once"
            )
        if name == "kafka" and str(leaf.extraOptions().get("failOnDataLoss")).lower() == "false":
            raise OptionError(
                "the source kafka has failOnDataLoss=false, so it would leave out records that the broker has"
                " deleted before they were stored",
                hint="leave the option out; to begin behind such records, start another query",
            )
