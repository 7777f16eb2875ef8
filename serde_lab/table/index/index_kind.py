"""The kinds of index that a table can be written with, and the properties that state them.

Hudi stores neither the index nor its number of buckets in `hoodie.properties`: `hoodie.index.type`,
`hoodie.index.bucket.engine` and the number of buckets are options of a write, and a write with other values
silently duplicates keys. So our tables state them under names of their own, which other writers leave alone.
(Hudi does store the hashing metadata of consistent hashing: see `consistent_hashing`.) Source:
org.apache.hudi.index.HoodieIndex.IndexType and BucketIndexEngineType.

Rules for bucket counts that differ by partition have the form `pattern,buckets;pattern,buckets`: the
first pattern found in a partition path decides; if there is none, the table's default. `.hashing_config`
files store them: the first is written when the table is created, with the instant of zeros; an
insert_overwrite that gives partitions other counts adds a file under its own instant, which counts once
that is completed. Source: org.apache.hudi.index.bucket.partition.RegexRuleEngine and
PartitionBucketIndexCalculator, org.apache.hudi.common.model.PartitionBucketIndexHashingConfig.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from functools import lru_cache
from typing import Any, Self

from serde_lab.errors import OptionError, TableError
from serde_lab.records.conversion import java_trim
from serde_lab.table.properties import fields_of
from serde_lab.table.storage.storage import Storage

CONFIG_FOLDER = ".hoodie/.bucket_index/partition_bucket_index_meta/configs"
CONFIG_SUFFIX = ".hashing_config"
INITIAL_INSTANT = "00000000000000"
"""The instant of the rules and rings that a table or partition begins with."""
REGEX = "regex"

_OPTION = "hoodie.bucket.index.partition.expressions"


_ESCAPED = re.compile(r"\\[^Z]")
_DIFFERENT = re.compile(r"&&|\\Z|\[[^\]]*\[")
"""Intersections, Java's `\\Z`, and a set within a set; in a pattern without its escaped characters."""


def is_number(text: str) -> bool:
    """Whether `text` is a whole number as Java writes it; `isdigit` alone takes superscripts, too."""
    return text.isascii() and text.isdigit()


@dataclass(frozen=True, slots=True)
class PartitionBucketRule:
    """The patterns in order of precedence, and the bucket count of partitions that match none."""

    patterns: tuple[tuple[re.Pattern[str], int], ...]
    default_buckets: int

    @classmethod
    def parse(cls, expressions: str, default_buckets: int) -> Self:
        """Read the option. Raises OptionError for a rule without a count, or with an invalid pattern.

        A pattern cannot hold `,` or `;`, in Hudi either. Patterns are Java's; syntax that Python reads
        differently (`\\p{...}`, `\\Z`, possessive classes, sets in sets) is refused, not guessed.
        """
        patterns = []
        for rule in expressions.split(";"):
            parts = [java_trim(part) for part in java_trim(rule).split(",")]
            if len(parts) != 2 or not is_number(parts[1]) or int(parts[1]) < 1:
                raise OptionError(
                    f"{_OPTION} has {rule!r}; each rule is a pattern, a comma and a number of buckets"
                )
            if _DIFFERENT.search(_ESCAPED.sub("", parts[0])):
                raise OptionError(
                    f"{_OPTION} has {parts[0]!r}, which Java reads differently from Python"
                )
            try:
                patterns.append((re.compile(parts[0], re.ASCII), int(parts[1])))
            except (re.error, ValueError) as exc:
                raise OptionError(
                    f"{_OPTION} has {parts[0]!r}, which is not a valid pattern: {exc}"
                ) from exc
        return cls(tuple(patterns), default_buckets)

    def buckets_of(self, partition_path: str) -> int:
        for pattern, buckets in self.patterns:
            if pattern.search(partition_path):
                return buckets
        return self.default_buckets


@dataclass(frozen=True, slots=True)
class HashingConfig:
    """One `.hashing_config` file: the rules in force from `instant` on."""

    expressions: str
    default_buckets: int
    rule: str = REGEX
    instant: str = INITIAL_INSTANT
    version: int = 1

    @property
    def path(self) -> str:
        return f"{CONFIG_FOLDER}/{self.instant}{CONFIG_SUFFIX}"

    def bucket_rule(self) -> PartitionBucketRule:
        """The rules. Raises OptionError for a kind of rule other than regex."""
        if self.rule.lower() != REGEX:
            raise OptionError(
                f"hoodie.bucket.index.partition.rule.type is {self.rule}; known is {REGEX}"
            )
        return PartitionBucketRule.parse(self.expressions, self.default_buckets)

    def to_bytes(self) -> bytes:
        return json.dumps(
            {
                "expressions": self.expressions,
                "defaultBucketNumber": self.default_buckets,
                "rule": self.rule,
                "version": self.version,
                "instant": self.instant,
            },
            indent=2,
        ).encode()

    @classmethod
    def from_bytes(cls, content: bytes, where: str) -> Self:
        """Read a file's content. Raises TableError naming `where` if it is not such JSON."""
        try:
            record = json.loads(content)
            return cls(
                str(record["expressions"]),
                int(record["defaultBucketNumber"]),
                str(record["rule"]),
                str(record["instant"]),
                int(record["version"]),
            )
        except (ValueError, KeyError, TypeError) as exc:
            raise TableError(f"{where}: is not a hashing config: {exc!r}") from exc


def save_hashing_config(storage: Storage, config: HashingConfig) -> None:
    """Write the file, once. Raises TableError if it exists with other content."""
    config.bucket_rule()
    if not storage.put_new(config.path, config.to_bytes()):
        where = storage.describe(config.path)
        if HashingConfig.from_bytes(storage.get(config.path), where) != config:
            raise TableError(f"{where}: states other bucket counts than this write")


def load_hashing_config(
    storage: Storage, pending: Iterable[str], as_of: str | None = None
) -> HashingConfig | None:
    """The newest rules, without those of `pending` instants; none later than `as_of`, if given."""
    found = [
        (file.name.removesuffix(CONFIG_SUFFIX), file.path)
        for file in storage.list_folder(CONFIG_FOLDER)[1]
        if file.name.endswith(CONFIG_SUFFIX) and not file.name.startswith(".")
    ]
    if not found:
        return None
    begun = set(pending)
    chosen = [
        path
        for instant, path in sorted(found)
        if instant not in begun and (as_of is None or instant <= as_of)
    ]
    if not chosen:
        return None
    return HashingConfig.from_bytes(storage.get(chosen[-1]), storage.describe(chosen[-1]))


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
COVERS_LOGS = frozenset({"INMEMORY", "FLINK_STATE"})
"""Indexes that cover the keys in logs, so inserts may join a file group through its log."""


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexKind:
    """The part of a table's configuration that says which index it has; a TableConfig adds the rest."""

    index_type: str = ""
    """One of INDEX_TYPES; "" in a table without keys, and if the table does not state it: it is another
    writer's. A bucket count implies BUCKET."""
    index_global: bool = True
    """For INMEMORY and FLINK_STATE: whether keys are unique in the whole table; other types imply it."""
    bucket_count: int | None = None
    """Buckets per partition of the bucket index (with consistent hashing, at first); None without one."""
    bucket_engine: str = SIMPLE_ENGINE
    """SIMPLE or CONSISTENT_HASHING."""
    bucket_expressions: str = ""
    """`pattern,buckets;...`: partitions with another number of buckets; only for the simple engine."""
    bucket_fields: tuple[str, ...] = ()
    """The record key fields that the bucket hash uses; () means all of them."""

    @property
    def index_is_global(self) -> bool:
        """Whether a record key is unique in the whole table, not only in its partition."""
        return self.index_type.startswith("GLOBAL_") or (
            self.index_type in _EITHER and self.index_global
        )

    def buckets_of(self, partition_path: str) -> int | None:
        """The bucket count of a partition with the simple engine; None if file ids state no bucket."""
        if self.bucket_count is None or self.bucket_engine != SIMPLE_ENGINE:
            return None
        if not self.bucket_expressions:
            return self.bucket_count
        return _rule(self.bucket_expressions, self.bucket_count).buckets_of(partition_path)

    def check_index(self) -> None:
        """Raises OptionError, with Hudi's name of the option, for settings that do not fit together."""
        if self.index_type and self.index_type not in INDEX_TYPES:
            raise OptionError(
                f"hoodie.index.type is {self.index_type}; known are {', '.join(INDEX_TYPES)}"
            )
        if not self.index_global and self.index_type not in _EITHER:
            raise OptionError(
                f"index.global.enabled is only for {' and '.join(_EITHER)}; hoodie.index.type is"
                f" {self.index_type or 'not set'}"
            )
        if self.bucket_engine not in BUCKET_ENGINES:
            raise OptionError(
                f"hoodie.index.bucket.engine is {self.bucket_engine}; known are"
                f" {', '.join(BUCKET_ENGINES)}"
            )
        if (self.index_type == BUCKET) != (self.bucket_count is not None):
            raise OptionError(
                "hoodie.bucket.index.num.buckets and hoodie.index.type=BUCKET need each other; found"
                f" {self.index_type or 'no index'} with {self.bucket_count or 'no'} buckets"
            )
        if self.bucket_count is not None and not 1 <= self.bucket_count <= 99_999_999:
            raise OptionError(
                f"hoodie.bucket.index.num.buckets is {self.bucket_count}, expected at least 1"
            )
        simple = self.index_type == BUCKET and self.bucket_engine == SIMPLE_ENGINE
        if self.bucket_expressions:
            if not simple:
                raise OptionError(
                    "hoodie.bucket.index.partition.expressions needs the bucket index with the SIMPLE"
                    " engine"
                )
            _rule(self.bucket_expressions, self.bucket_count or 1)
        if self.bucket_engine != SIMPLE_ENGINE and self.index_type != BUCKET:
            raise OptionError(
                f"hoodie.index.bucket.engine is {self.bucket_engine}, but hoodie.index.type is"
                f" {self.index_type or 'not set'}; only BUCKET has engines"
            )

    def index_properties(self) -> dict[str, str]:
        """The properties that state the index; defaults are left out."""
        stated: dict[str, str] = {}
        if self.index_type:
            stated[INDEX_TYPE] = self.index_type
        if self.bucket_count is not None:
            stated[BUCKETS] = str(self.bucket_count)
            stated[BUCKET_FIELDS] = ",".join(self.bucket_fields)
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
    if buckets and not is_number(buckets):
        raise TableError(f"{where}: {BUCKETS} is {buckets!r}; it must be a whole number")
    kind = IndexKind(
        index_type=properties.get(INDEX_TYPE, "") or (BUCKET if buckets else ""),
        index_global=properties.get(INDEX_GLOBAL, "true") == "true",
        bucket_count=int(buckets) if buckets else None,
        bucket_engine=properties.get(BUCKET_ENGINE, SIMPLE_ENGINE),
        bucket_expressions=properties.get(BUCKET_EXPRESSIONS, ""),
        bucket_fields=fields_of(properties.get(BUCKET_FIELDS, "")),
    )
    try:
        kind.check_index()
    except OptionError as exc:
        raise TableError(f"{where}: {exc.message}") from exc
    return asdict(kind)


@lru_cache(maxsize=64)
def _rule(expressions: str, default_buckets: int) -> PartitionBucketRule:
    return PartitionBucketRule.parse(expressions, default_buckets)
