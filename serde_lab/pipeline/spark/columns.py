"""Prepares Spark's own columns inside the JVM: their form for Python, and the bucket hash.

Hops without Python before them need the bucket hash in the JVM. It is Java's own String.hashCode, called
through Catalyst's Invoke, since no SQL function computes it; it must equal `table.index.bucket_index`.
"""

from __future__ import annotations

import functools
import operator
from typing import TYPE_CHECKING

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812 - the name that every Spark program uses
from pyspark.sql.types import (
    BooleanType,
    ByteType,
    DateType,
    DecimalType,
    IntegerType,
    LongType,
    ShortType,
    StringType,
)

from serde_lab.pipeline.stages import SEPARATORS
from serde_lab.records.keys import DEFAULT_PARTITION
from serde_lab.records.plain_form import LONGEST
from serde_lab.records.schema import is_nested

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

    from serde_lab.pipeline.plan import WritePlan
    from serde_lab.table.config import TableConfig

_INT_MAX = 0x7FFFFFFF


def handed_over(source: DataFrame, schema: pa.Schema) -> list[Column]:
    """The columns of `schema` that the source has, as Python gets them: short decimals as unscaled longs.

    Spark's ArrowWriter makes a BigDecimal of each decimal, but copies longs. `stages.stored_form`
    restores the decimals. Same values, same frames.
    """
    unscaled = source.sparkSession._jvm.org.apache.spark.sql  # type: ignore[union-attr]
    columns = []
    for name in (name for name in schema.names if name in source.columns):
        column, kind = source[name], source.schema[name].dataType
        if isinstance(kind, DecimalType) and kind.precision <= LONGEST:
            value = unscaled.catalyst.expressions.UnscaledValue(column._jc.expr())
            column = Column(unscaled.Column(value)).alias(name)
        columns.append(column)
    return columns


def java_bucket(source: DataFrame, plan: WritePlan) -> Column:
    """The reduce partition of each row, an int column: pmod of the bucket, as in `routing.targets_of`."""
    spark = source.sparkSession
    # List.hashCode: 31 * h + element, from 1, in wrapping 32-bit arithmetic
    wrapped = F.lit(1).cast("long")
    table = plan.table
    # a key without a `,` is hashed whole, including the name of its field if the key contains it
    named = len(table.record_key_fields) == 1 and plan.keygen.complex
    for name in table.bucket_fields:
        text = F.col(name).cast("string")
        if named:
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
    plain = StringType | ByteType | ShortType | IntegerType | LongType | BooleanType | DateType
    told_by = (*table.record_key_fields, *table.partition_fields)
    if any(map(is_nested, told_by)):
        return False
    return all(
        isinstance(source.schema[name].dataType, plain | DecimalType)
        for name in told_by
        if name in source.columns
    )


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
    held = [text.rlike(SEPARATORS) for text in texts]
    return not source.where(functools.reduce(operator.or_, held)).isEmpty()


def _partition_path(plan: WritePlan) -> Column:
    segments = []
    for name in plan.schema.partition:
        text = F.col(name).cast("string")
        value = F.when(text.isNull() | (text == ""), F.lit(DEFAULT_PARTITION)).otherwise(text)
        segments.append(F.concat(F.lit(f"{name}="), value) if plan.keygen.hive_style else value)
    return F.concat_ws("/", *segments)
