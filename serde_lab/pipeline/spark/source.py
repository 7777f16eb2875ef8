"""Finds out whether a DataFrame is a plain scan of Parquet files, and lists the files in Spark's order.

Each input partition lists the files that Spark itself would read in it. With a filter, projection, join,
cache, partition column, split file or unknown option it is no plain scan, and Spark reads the rows.
`pipeline.source.files` checks the contents of the files.
"""

from __future__ import annotations

import urllib.parse
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from py4j.protocol import Py4JError
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from serde_lab.pipeline.source.files import SourceFiles, readable

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

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
    columns = _columns(source, schema.names)
    if not readable([path for paths in partitions for path in paths], columns):
        return None
    return SourceFiles(partitions, tuple(columns.names))


def _columns(source: DataFrame, names: list[str]) -> pa.Schema:
    """The source's columns among `names`, in the types in which Spark sends them."""
    fields = [field for field in source.schema if field.name in names]
    return pa.schema(
        [
            f.with_type(pa.timestamp("us", "UTC"))
            if pa.types.is_timestamp(f.type) and f.type.tz
            else f
            for f in to_arrow_schema(StructType(fields))
        ]
    )


def _partitions(source: DataFrame) -> Iterator[list[str]]:
    execution = source._jdf.queryExecution()
    conf = source.sparkSession.conf
    for setting, expected in _SETTINGS.items():
        found = str(conf.get(setting)).upper()
        if found not in ((expected.upper(),) if expected else _CALENDARS):
            raise _NoPlainScan
    hadoop = source.sparkSession._jsc.hadoopConfiguration()
    if hadoop.get("parquet.crypto.factory.class") or hadoop.get("parquet.encryption.key.list"):
        raise _NoPlainScan
    # cached relations already appear in this plan
    relations = list(_relations(execution.withCachedData(), source.columns))
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
