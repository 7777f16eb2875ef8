"""Bucket counts that differ by partition: their rules, and the `.hashing_config` files that store them.

Rules have the form `pattern,buckets;pattern,buckets`: the first pattern found in a partition path decides; if
there is none, the table's default. Source: org.apache.hudi.index.bucket.partition.RegexRuleEngine and
PartitionBucketIndexCalculator, org.apache.hudi.common.model.PartitionBucketIndexHashingConfig.

The rules are written once, when the table is created, with the instant of zeros; an insert_overwrite that
gives partitions other counts adds a file under its own instant, which counts once that is completed.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Self

from serde_lab.errors import OptionError, TableError
from serde_lab.records.java_text import java_trim
from serde_lab.table.storage.storage import Storage

CONFIG_FOLDER = ".hoodie/.bucket_index/partition_bucket_index_meta/configs"
SUFFIX = ".hashing_config"
INITIAL_INSTANT = "00000000000000"
REGEX = "regex"

_OPTION = "hoodie.bucket.index.partition.expressions"


@dataclass(frozen=True, slots=True)
class PartitionBucketRule:
    """The patterns in order of precedence, and the bucket count of partitions that match none."""

    patterns: tuple[tuple[re.Pattern[str], int], ...]
    default_buckets: int

    @classmethod
    def parse(cls, expressions: str, default_buckets: int) -> Self:
        """Read the option. Raises OptionError for a rule without a count, or with an invalid pattern.

        A pattern cannot hold `,` or `;`, in Hudi either. Patterns are Java's; syntax that Python reads
        differently (possessive classes, `\\\\p{...}`) is refused, not guessed.
        """
        patterns = []
        for rule in expressions.split(";"):
            parts = [java_trim(part) for part in java_trim(rule).split(",")]
            if len(parts) != 2 or not parts[1].isdigit() or int(parts[1]) < 1:
                raise OptionError(
                    f"{_OPTION} has {rule!r}; each rule is a pattern, a comma and a number of buckets"
                )
            try:
                patterns.append((re.compile(parts[0]), int(parts[1])))
            except re.error as exc:
                raise OptionError(
                    f"{_OPTION} has {parts[0]!r}, which is no pattern: {exc}"
                ) from exc
        return cls(tuple(patterns), default_buckets)

    def buckets_of(self, partition_path: str) -> int:
        """The bucket count of one partition."""
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
        return f"{CONFIG_FOLDER}/{self.instant}{SUFFIX}"

    def bucket_rule(self) -> PartitionBucketRule:
        """The rules. Raises OptionError for a kind of rule other than regex."""
        if self.rule.lower() != REGEX:
            raise OptionError(
                f"hoodie.bucket.index.partition.rule.type is {self.rule}; known is {REGEX}"
            )
        return PartitionBucketRule.parse(self.expressions, self.default_buckets)

    def to_bytes(self) -> bytes:
        """The file's content, as Hudi's JSON."""
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
            raise TableError(f"{where}: is no hashing config: {exc!r}") from exc


def save_hashing_config(storage: Storage, config: HashingConfig) -> None:
    """Write the file, once. Raises TableError if it exists with other content."""
    config.bucket_rule()
    if not storage.put_new(config.path, config.to_bytes()):
        where = storage.describe(config.path)
        if HashingConfig.from_bytes(storage.get(config.path), where) != config:
            raise TableError(f"{where}: states other buckets than this write does")


def load_hashing_config(
    storage: Storage, pending: Iterable[str], as_of: str | None = None
) -> HashingConfig | None:
    """The newest rules, without those of `pending` instants; none later than `as_of`, if given."""
    begun = set(pending)
    found = []
    for file in storage.list_folder(CONFIG_FOLDER)[1]:
        instant = file.name.removesuffix(SUFFIX)
        if file.name.endswith(SUFFIX) and not file.name.startswith(".") and instant not in begun:
            found.append((instant, file.path))
    chosen = [path for instant, path in sorted(found) if as_of is None or instant <= as_of]
    if not chosen:
        return None
    return HashingConfig.from_bytes(storage.get(chosen[-1]), storage.describe(chosen[-1]))
