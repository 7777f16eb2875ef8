"""What a table of a history is: its keys, index, merge mode and form, in the words of both writers.

`kinds` of an exception in `tests/readers.toml` name what keeps a reader from judging a history.
"""

from __future__ import annotations

import functools
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa

from tests.differential.columns import CATALOGUE, TEXTS
from tests.peers.hudi_options import HudiTable

READERS_TOML = Path(__file__).parents[1] / "readers.toml"


@dataclass(frozen=True)
class Mode:
    """How records of one key merge. `options` are those of both writers.

    `by_value`: ordering values decide. `fill`: which values are gaps that the other version fills:
    "null", "marker" or "". `ordering` names the column of the ordering values.
    """

    options: Mapping[str, str]
    by_value: bool = True
    fill: str = ""
    ordering: str = "o"
    marker: str = ""
    deletes: Mapping[str, tuple[Any, ...]] | None = None
    """Columns by which a row deletes its key, with the values that say so."""

    @classmethod
    def of_payload(cls, name: str, by_value: bool = True, **more: str) -> Mode:
        """The mode that a payload class of Hudi's stands for."""
        payload = f"org.apache.hudi.common.model.{name}"
        return cls({"hoodie.datasource.write.payload.class": payload, **more}, by_value)


MODES: Mapping[str, Mode] = {
    "event time": Mode({"hoodie.write.record.merge.mode": "EVENT_TIME_ORDERING"}),
    "commit time": Mode({"hoodie.write.record.merge.mode": "COMMIT_TIME_ORDERING"}, by_value=False),
    "latest payload": Mode.of_payload("OverwriteWithLatestAvroPayload", by_value=False),
    "dms payload": replace(
        Mode.of_payload("AWSDmsAvroPayload", by_value=False), deletes={"Op": ("D",)}
    ),
    "default payload": Mode.of_payload("DefaultHoodieRecordPayload"),
    "event time payload": Mode.of_payload("EventTimeAvroPayload"),
    "non-defaults payload": replace(
        Mode.of_payload("OverwriteNonDefaultsWithLatestAvroPayload", by_value=False), fill="null"
    ),
    "partial update payload": replace(Mode.of_payload("PartialUpdateAvroPayload"), fill="null"),
    "marked deletes": replace(
        Mode.of_payload(
            "DefaultHoodieRecordPayload",
            **{"hoodie.payload.delete.field": "mark", "hoodie.payload.delete.marker": "D"},
        ),
        deletes={"mark": ("D",)},
    ),
    # FILL_UNAVAILABLE, which Apache Hudi gives a table by this class only, with names of its own
    "debezium payload": replace(
        Mode.of_payload("debezium.PostgresDebeziumAvroPayload"),
        fill="marker",
        ordering="_event_lsn",
        marker="__debezium_unavailable_value",
        deletes={"_change_operation_type": ("d",)},
    ),
}

PARTITIONINGS: Mapping[str, dict[str, Any]] = {
    "none": {},
    "plain": {"partition": ("p",)},
    "hive": {"partition": ("p",), "hive_style": True},
    "escaped": {"partition": ("p",), "url_encode": True},
    "hive escaped": {"partition": ("p",), "hive_style": True, "url_encode": True},
}

_INTS = {"tiny", "short", "int", "day"}
"""Types whose values are ints to Hudi."""

TOPOLOGIES: Mapping[str, tuple[str, ...]] = {
    "BUCKET": ("bucket",),
    "CONSISTENT_HASHING": ("consistent",),
    "FLINK_STATE": ("state", "step3"),
    "INMEMORY": ("state", "step2"),
    "SIMPLE": ("state", "legacy", "step2", "step3", "bloom"),
    "GLOBAL_SIMPLE": ("state", "compatible"),
    "BLOOM": ("bloom", "step1", "state"),
    "GLOBAL_BLOOM": ("bloom", "state"),
}
"""By index, the ways that its upserts may take, from write to write another."""

GLOBAL = ("GLOBAL_SIMPLE", "GLOBAL_BLOOM", "FLINK_STATE", "INMEMORY")
"""The indexes under which a key stands once in the whole table."""


@dataclass(frozen=True)
class Kind:
    """A kind of table. `key`, `ordering` and `second` name types of the catalogue.

    Columns are h and k (the record key), p where there are partitions, those of `orderings`, and those
    that each step brings. `second`: the type of a second ordering column, o2.
    """

    mode: str
    table_type: str
    record_type: str = "AVRO"
    """Which records Apache Hudi merges, where it writes."""
    key: str = "text"
    ordering: str = ""
    second: str = ""
    nulls: bool = False
    """Whether ordering values may be null, which lose to any other."""
    partitioning: str = "none"
    partition_type: str = "text"
    null_keys: bool = False
    index: str = "BUCKET"
    buckets: int = 1
    version: int = 9

    @classmethod
    def of(cls, content: Mapping[str, Any]) -> Kind:
        """From what `asdict` gave."""
        return cls(**content)

    @property
    def rules(self) -> Mode:
        return MODES[self.mode]

    @property
    def orderings(self) -> dict[str, str]:
        """The types of the ordering columns, by their names."""
        named = {self.rules.ordering: self.ordering, "o2": self.second}
        return {name: of for name, of in named.items() if of}

    @property
    def by_value(self) -> bool:
        """Whether ordering values decide between rows of one key that two commits wrote."""
        return self.rules.by_value and bool(self.orderings)

    @property
    def by_class(self) -> bool:
        """Whether a payload class merges: before version 9, one whose rules the table cannot state."""
        return self.version < 9 and self.rules.fill == "null"

    @property
    def ordered(self) -> bool:
        """Whether ordering values decide at all: in one commit, and between a row and a marked delete."""
        return (self.rules.by_value or self.by_class) and bool(self.orderings)

    @property
    def deletes_late(self) -> bool:
        """Whether a marked delete deletes a stored row at any ordering value, and a later row replaces it."""
        return self.by_class

    @property
    def merge_on_read(self) -> bool:
        return self.table_type == "MERGE_ON_READ"

    @property
    def is_global(self) -> bool:
        """Whether a key stands once in the whole table."""
        return self.index in GLOBAL

    @property
    def identified_by(self) -> dict[str, pa.DataType]:
        """The columns that say which record a row is: what a delete needs."""
        types = {"h": pa.string(), "k": CATALOGUE[self.key].type}
        if self.partitioning != "none":
            of = "text" if self.partition_type in TEXTS else self.partition_type
            types["p"] = CATALOGUE[of].type
        return types

    def deletes(self, row: Mapping[str, Any]) -> bool:
        """Whether a row says that it deletes its key."""
        marks = {"_hoodie_is_deleted": (True,), **(self.rules.deletes or {})}
        return any(name in row and row[name] in values for name, values in marks.items())

    def deletes_anyway(self, row: Mapping[str, Any], orderings: Mapping[str, str]) -> bool:
        """Whether a row deletes its key and its ordering value is the int 0, Hudi's word for none.

        `orderings`: the types of the ordering columns then.
        """
        if not (self.ordered and len(orderings) == 1 and self.deletes(row)):
            return False
        ((name, of),) = orderings.items()
        return of in _INTS and row.get(name) in (0, "1970-01-01")

    def lacks_order(self, row: Mapping[str, Any]) -> bool:
        """Whether an ordering value of a row is null."""
        return any(row.get(name) is None for name in self.orderings)

    def schema(self, columns: Mapping[str, str]) -> pa.Schema:
        """The columns of rows that have `columns`, types of the catalogue by name, besides."""
        types = self.identified_by
        types |= {name: CATALOGUE[of].type for name, of in self.orderings.items()}
        types |= {name: CATALOGUE[of].type for name, of in columns.items()}
        return pa.schema(list(types.items()))

    def table(self) -> HudiTable:
        """The table in the words of both writers."""
        bucketed = self.index in ("BUCKET", "CONSISTENT_HASHING")
        return HudiTable(
            "t",
            ("h", "k"),
            tuple(self.orderings),
            table_type=self.table_type,  # type: ignore[arg-type]
            index="BUCKET" if bucketed else self.index,
            buckets=self.buckets,
            bucket_fields=("h",) if bucketed else (),
            version=self.version,
            **PARTITIONINGS[self.partitioning],
        )

    def __str__(self) -> str:
        index = f"{self.index} {self.buckets}" if "BUCKET" in self.index else self.index
        facts = [
            self.mode,
            f"{self.table_type} {self.version}, {index}",
            f"key {self.key}{' or null' if self.null_keys else ''}",
            f"ordering {' and '.join(self.orderings.values()) or 'none'}"
            + (" or null" if self.nulls else ""),
            f"partition {self.partitioning} {self.partition_type}"
            if self.partitioning != "none"
            else "no partition",
        ]
        return " | ".join(facts)


@functools.cache
def readers_toml() -> dict[str, Any]:
    """The content of `tests/readers.toml`."""
    return tomllib.loads(READERS_TOML.read_text(encoding="utf-8"))
