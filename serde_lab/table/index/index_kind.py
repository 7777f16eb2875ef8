"""The kinds of index that a table can be written with, and the properties that state them.

Hudi stores none of this in `hoodie.properties`: `hoodie.index.type`, `hoodie.index.bucket.engine` and the
number of buckets are options of a write, and a write with other values silently duplicates keys. So our
tables state them under names of their own, which other writers leave alone. (Hudi does store the hashing
metadata of consistent hashing and the rules of per-partition bucket counts: see `consistent_hashing` and
`partition_buckets`.) Source: org.apache.hudi.index.HoodieIndex.IndexType and BucketIndexEngineType.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from serde_lab.errors import OptionError, TableError
from serde_lab.table.index.partition_buckets import PartitionBucketRule

INDEX_TYPE = "serde_lab.index.type"
INDEX_GLOBAL = "serde_lab.index.global"
BUCKETS = "serde_lab.bucket.index.num.buckets"
BUCKET_FIELDS = "serde_lab.bucket.index.hash.field"
BUCKET_ENGINE = "serde_lab.index.bucket.engine"
BUCKET_EXPRESSIONS = "serde_lab.bucket.index.partition.expressions"

INDEX_KEYS = (INDEX_TYPE, INDEX_GLOBAL, BUCKETS, BUCKET_FIELDS, BUCKET_ENGINE, BUCKET_EXPRESSIONS)

BUCKET = "BUCKET"
INDEX_TYPES = (
    BUCKET,
    "BLOOM",
    "GLOBAL_BLOOM",
    "SIMPLE",
    "GLOBAL_SIMPLE",
    "INMEMORY",
    "FLINK_STATE",
)
"""Index types that can be written. The record indexes need Hudi's metadata table, which is not written."""
_EITHER = ("INMEMORY", "FLINK_STATE")

SIMPLE_ENGINE, CONSISTENT_HASHING = "SIMPLE", "CONSISTENT_HASHING"
BUCKET_ENGINES = (SIMPLE_ENGINE, CONSISTENT_HASHING)


@dataclass(frozen=True, slots=True)
class IndexKind:
    """One index. `type` is "" if the table does not state it: it is another writer's, or has no keys."""

    type: str = ""
    index_global: bool = True
    bucket_count: int | None = None
    bucket_engine: str = SIMPLE_ENGINE
    bucket_expressions: str = ""

    @property
    def is_global(self) -> bool:
        """Whether a key is unique in the whole table, not only in its partition."""
        return self.type.startswith("GLOBAL_") or (self.type in _EITHER and self.index_global)

    def buckets_of(self, partition_path: str) -> int | None:
        """The bucket count of a partition with the simple engine; None if file ids state no bucket."""
        if self.bucket_count is None or self.bucket_engine != SIMPLE_ENGINE:
            return None
        if not self.bucket_expressions:
            return self.bucket_count
        return _rule(self.bucket_expressions, self.bucket_count).buckets_of(partition_path)

    def check(self) -> None:
        """Raises OptionError, with Hudi's name of the option, for settings that do not fit together."""
        if self.type and self.type not in INDEX_TYPES:
            raise OptionError(
                f"hoodie.index.type is {self.type}; known are {', '.join(INDEX_TYPES)}"
            )
        if not self.index_global and self.type not in _EITHER:
            raise OptionError(
                f"only {' and '.join(_EITHER)} are told whether they are global; hoodie.index.type is"
                f" {self.type or 'not stated'}"
            )
        if self.bucket_engine not in BUCKET_ENGINES:
            raise OptionError(
                f"hoodie.index.bucket.engine is {self.bucket_engine}; known are"
                f" {', '.join(BUCKET_ENGINES)}"
            )
        if (self.type == BUCKET) != (self.bucket_count is not None):
            raise OptionError(
                "hoodie.bucket.index.num.buckets and the index BUCKET go together, and this is"
                f" {self.type or 'no index'} with {self.bucket_count or 'no'} buckets"
            )
        if self.bucket_count is not None and not 1 <= self.bucket_count <= 99_999_999:
            raise OptionError(f"the bucket index has {self.bucket_count} buckets; 1 is the least")
        simple = self.type == BUCKET and self.bucket_engine == SIMPLE_ENGINE
        if self.bucket_expressions:
            if not simple:
                raise OptionError(
                    "hoodie.bucket.index.partition.expressions needs the bucket index with the SIMPLE"
                    " engine"
                )
            _rule(self.bucket_expressions, self.bucket_count or 1)
        if self.bucket_engine != SIMPLE_ENGINE and self.type != BUCKET:
            raise OptionError(
                f"hoodie.index.bucket.engine is {self.bucket_engine}, and hoodie.index.type is"
                f" {self.type or 'not stated'}; only the bucket index has engines"
            )

    def to_properties(self, bucket_fields: tuple[str, ...]) -> dict[str, str]:
        """The properties that state the index; defaults are left out."""
        stated: dict[str, str] = {}
        if self.type:
            stated[INDEX_TYPE] = self.type
        if self.bucket_count is not None:
            stated[BUCKETS] = str(self.bucket_count)
            stated[BUCKET_FIELDS] = ",".join(bucket_fields)
        if self.bucket_engine != SIMPLE_ENGINE:
            stated[BUCKET_ENGINE] = self.bucket_engine
        if self.bucket_expressions:
            stated[BUCKET_EXPRESSIONS] = self.bucket_expressions
        if not self.index_global:
            stated[INDEX_GLOBAL] = "false"
        return stated


def index_fields(properties: Mapping[str, str], where: str) -> dict[str, Any]:
    """The fields of TableConfig that the index properties set. Raises TableError naming `where`."""
    buckets = properties.get(BUCKETS, "")
    if buckets and not buckets.isdigit():
        raise TableError(f"{where}: {BUCKETS} is {buckets!r}; it must be a whole number")
    engine = properties.get(BUCKET_ENGINE, SIMPLE_ENGINE)
    kind = IndexKind(
        properties.get(INDEX_TYPE, "") or (BUCKET if buckets else ""),
        properties.get(INDEX_GLOBAL, "true") == "true",
        int(buckets) if buckets else None,
        engine,
        properties.get(BUCKET_EXPRESSIONS, ""),
    )
    try:
        kind.check()
    except OptionError as exc:
        raise TableError(f"{where}: {exc.message}") from exc
    return {
        "index_type": kind.type,
        "index_global": kind.index_global,
        "bucket_count": kind.bucket_count,
        "bucket_engine": kind.bucket_engine,
        "bucket_expressions": kind.bucket_expressions,
    }


@lru_cache(maxsize=64)
def _rule(expressions: str, default_buckets: int) -> PartitionBucketRule:
    return PartitionBucketRule.parse(expressions, default_buckets)
