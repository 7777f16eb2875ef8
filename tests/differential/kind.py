"""What histories of one table share: its columns, keys, merge mode, type, and what its commits do.

Owns which kinds are drawn, and which readers may judge one: `kinds` of an exception in
`tests/readers.toml` name those for which Apache Hudi fails, or a reader does.
"""

from __future__ import annotations

import functools
import tomllib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa

from serde_lab.peers.hudi_options import HudiTable, HudiWrite, write_options
from tests.differential.columns import CATALOGUE

READERS_TOML = Path(__file__).parents[1] / "readers.toml"
LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXY"
"""Of histories: neighbours in code, which a bucket index of so many buckets tells apart."""


@dataclass(frozen=True)
class Mode:
    """How records of one key merge. `options` tell both writers; `by_value`: ordering values decide.

    `ordering` names the column that has them; `marker` stands for a value that its writer does not know.
    """

    options: Mapping[str, str]
    by_value: bool = True
    ordering: str = "o"
    marker: str = ""

    @classmethod
    def of_payload(cls, name: str, by_value: bool = True, **more: str) -> Mode:
        """The mode that a payload class of Hudi's stands for."""
        payload = f"org.apache.hudi.common.model.{name}"
        return cls({"hoodie.datasource.write.payload.class": payload, **more}, by_value)


MODES: Mapping[str, Mode] = {
    "event time": Mode({"hoodie.write.record.merge.mode": "EVENT_TIME_ORDERING"}),
    "commit time": Mode({"hoodie.write.record.merge.mode": "COMMIT_TIME_ORDERING"}, by_value=False),
    "latest payload": Mode.of_payload("OverwriteWithLatestAvroPayload", by_value=False),
    "default payload": Mode.of_payload("DefaultHoodieRecordPayload"),
    "event time payload": Mode.of_payload("EventTimeAvroPayload"),
    "non-defaults payload": Mode.of_payload(
        "OverwriteNonDefaultsWithLatestAvroPayload", by_value=False
    ),
    "partial update payload": Mode.of_payload("PartialUpdateAvroPayload"),
    "marked deletes": Mode.of_payload(
        "DefaultHoodieRecordPayload",
        **{"hoodie.payload.delete.field": "mark", "hoodie.payload.delete.marker": "D"},
    ),
    # FILL_UNAVAILABLE, which Apache Hudi gives a table by this class only, with names of its own
    "debezium payload": replace(
        Mode.of_payload("debezium.PostgresDebeziumAvroPayload"),
        ordering="_event_lsn",
        marker="__debezium_unavailable_value",
    ),
}

MARKS = frozenset({"_hoodie_is_deleted", "mark", "_change_operation_type"})
"""Columns that say that their row deletes its key."""

PARTITIONINGS: Mapping[str, dict[str, Any]] = {
    "none": {},
    "plain": {"partition": ("p",)},
    "hive": {"partition": ("p",), "hive_style": True},
    "escaped": {"partition": ("p",), "url_encode": True},
}


@dataclass(frozen=True)
class Kind:
    """A kind of table. `key`, `partition_type` and `ordering` name types of the catalogue.

    Columns are h (the history), k, p where there are partitions, those of `orderings`, and those of
    `columns`. `program`: what each commit does: upsert, delete, or "upsert, compact".
    """

    mode: str
    table_type: str
    record_type: str
    blocks: str = "avro"
    key: str = "text"
    ordering: str = ""
    partitioning: str = "none"
    partition_type: str = "text"
    null_keys: bool = False
    columns: tuple[str, ...] = ()
    program: tuple[str, ...] = ("upsert", "upsert")
    grown: tuple[tuple[str, int, str], ...] = ()
    """Columns that are of another type, or (by "") not there at all, before the commit of that number."""
    second: str = ""
    """The type of a second ordering column, o2."""
    buckets: int = 1
    """At least one for each letter up to the last in use, so that no two histories share one."""

    @classmethod
    def of(cls, content: Mapping[str, Any]) -> Kind:
        """From what `asdict` gave."""
        lists = {n: tuple(content[n]) for n in ("columns", "program") if n in content}
        grown = tuple(tuple(entry) for entry in content.get("grown", ()))
        return cls(**{**content, **lists, "grown": grown})

    def schema(self, commit: int) -> pa.Schema:
        """The columns of the rows of that commit, and of the table after it."""
        types = {"h": pa.string(), "k": CATALOGUE[self.key].type}
        if self.partitioning != "none":
            name = "text" if self.partition_type == "escaped" else self.partition_type
            types["p"] = CATALOGUE[name].type
        types |= {name: CATALOGUE[of].type for name, of in self.orderings.items()}
        before = self.before(commit)
        there = [name for name in self.columns if before.get(name, name)]
        types |= {name: CATALOGUE[before.get(name, name)].type for name in there}
        return pa.schema(list(types.items()))

    def before(self, commit: int) -> dict[str, str]:
        """Of columns that are not yet what they become: the name of their type at that commit, or ""."""
        return {name: older for name, since, older in self.grown if commit < since}

    @property
    def orderings(self) -> dict[str, str]:
        """The types of the ordering columns, by their names."""
        named = {MODES[self.mode].ordering: self.ordering, "o2": self.second}
        return {name: of for name, of in named.items() if of}

    @property
    def told_by(self) -> tuple[str, ...]:
        """Columns of which two rows of a commit differ in one, or are the same row."""
        return ("k", "p", *(self.orderings if self.by_value else ()))

    @property
    def by_value(self) -> bool:
        """Whether ordering values decide between rows of one key."""
        return MODES[self.mode].by_value

    @property
    def merge_on_read(self) -> bool:
        return self.table_type == "MERGE_ON_READ"

    def table(self) -> HudiTable:
        """The table in the words of both writers."""
        return HudiTable(
            "t",
            ("h", "k"),
            tuple(self.orderings),
            table_type=self.table_type,  # type: ignore[arg-type]
            buckets=self.buckets,
            bucket_fields=("h",),
            **PARTITIONINGS[self.partitioning],
        )

    def hudi_options(self, write: HudiWrite) -> dict[str, str]:
        """Everything that Apache Hudi is told for a write."""
        write = replace(write, record_type=self.record_type, log_block=self.blocks)  # type: ignore[arg-type]
        options = write_options(self.table(), write)
        del options["hoodie.write.record.merge.mode"]
        return options | dict(MODES[self.mode].options)

    def once(self, commit: int) -> bool:
        """Whether a key stands but once in that commit.

        Of two rows of it Apache Hudi takes a marked delete for one without ordering value, and does not
        know yet which marker stands for an unknown value when it makes the table (in `tests/readers.toml`:
        "a marked delete that wins over another row of its batch", "unknown values in the write that
        makes the table").
        """
        if commit == 0 and MODES[self.mode].marker:
            return True
        return self.record_type == "SPARK" and bool(MARKS.intersection(self.columns))

    @property
    def judges(self) -> tuple[str, ...]:
        """The readers that may judge such a table."""
        wrong = {one["who"] for one in self._exceptions() if one["as"] == "reader"}
        return tuple(reader for reader in _readers_toml()["readers"] if reader not in wrong)

    @property
    def exception(self) -> str:
        """The exception that keeps such tables from being compared, "" if none does."""
        found = [
            one["name"]
            for one in self._exceptions()
            if one["as"] == "writer" or one["who"] == "apache-hudi"
        ]
        return found[0] if found else ""

    def _exceptions(self) -> list[dict[str, Any]]:
        """The entries of `tests/readers.toml` that are about such a table."""
        return [
            one
            for one in _readers_toml()["exception"]
            if any(self._is(wanted) for wanted in one.get("kinds", []))
        ]

    def _is(self, wanted: Mapping[str, Any]) -> bool:
        mine = asdict(self)
        return all(
            value in mine[name] if isinstance(mine[name], tuple) else value == mine[name]
            for name, value in wanted.items()
        )

    def __str__(self) -> str:
        facts = [
            self.mode,
            f"{self.table_type}, {self.record_type} records"
            + (f", {self.blocks} blocks" if self.merge_on_read else ""),
            f"key {self.key}{' or null' if self.null_keys else ''}",
            f"ordering {' and '.join(self.orderings.values()) or 'none'}",
            f"partition {self.partitioning} {self.partition_type}"
            if self.partitioning != "none"
            else "no partition",
            " ".join(self.columns)
            + "".join(f", {name} {was or 'not there'} before {n}" for name, n, was in self.grown),
            " > ".join(self.program),
        ]
        return " | ".join(facts)


@functools.cache
def _readers_toml() -> dict[str, Any]:
    return tomllib.loads(READERS_TOML.read_text(encoding="utf-8"))
