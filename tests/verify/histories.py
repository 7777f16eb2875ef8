"""Histories of commits for tests, and what they must leave behind, worked out row by row in Python.

The model here follows each write in turn, as a table does, and so shares nothing with the oracle but
the rules: the oracle asks which input row survives, the model keeps a base and a log per key.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from serde_lab.verify.oracle import HistoryCommit
from serde_lab.verify.table_rules import TableRules

Row = dict[str, Any]
DELETED = object()


@dataclass(frozen=True)
class Write:
    """One commit: its operation and the rows of each of its files."""

    operation: str
    files: tuple[tuple[Row, ...], ...] = ()


def write_inputs(writes: Sequence[Write], schema: pa.Schema, folder: Path) -> list[HistoryCommit]:
    """The input folders of `writes`, as the oracle takes them."""
    commits = []
    for number, write in enumerate(writes):
        if write.operation == "compact":
            commits.append(HistoryCommit("compact"))
            continue
        place = folder / f"commit-{number}"
        place.mkdir(parents=True)
        for index, rows in enumerate(write.files):
            table = pa.Table.from_pylist(list(rows), schema=schema)
            pq.write_table(table, place / f"part-{index:05}.parquet", row_group_size=3)
        commits.append(HistoryCommit(write.operation, place))
    return commits


def expected_rows(
    writes: Sequence[Write], rules: TableRules, group_of: Callable[[Row], object] = lambda row: None
) -> list[Row]:
    """What a reader must see after `writes`; `group_of` names the file group of a row."""
    base: dict[object, Row] = {}
    log: dict[object, object] = {}
    groups: set[object] = set()
    merge_on_read = rules.table_type == "MERGE_ON_READ"

    def key_of(row: Row) -> object:
        return tuple(_text(row[name]) for name in rules.key_columns)

    def newer_wins(old: Row, new: Row) -> bool:
        if not rules.by_event_time:
            return True
        names = rules.schema.ordering
        return [_java(new[name]) for name in names] >= [_java(old[name]) for name in names]

    def seen() -> dict[object, Row]:
        rows = dict(base)
        for key, entry in log.items():
            if entry is DELETED:
                rows.pop(key, None)
            elif key not in base or newer_wins(base[key], entry):
                rows[key] = entry
        return rows

    for write in writes:
        if write.operation == "compact":
            base, log = seen(), {}
            continue
        batch: dict[object, Row] = {}
        for row in (row for file in write.files for row in file):
            key = key_of(row)
            if write.operation == "delete" or key not in batch or newer_wins(batch[key], row):
                batch[key] = row
        born = set() if write.operation == "delete" else {group_of(row) for row in batch.values()}
        for key, row in batch.items():
            if not merge_on_read:
                if write.operation == "delete":
                    base.pop(key, None)
                elif key not in base or newer_wins(base[key], row):
                    base[key] = row
            elif group_of(row) not in groups:
                if write.operation != "delete":
                    base[key] = row
            elif write.operation == "delete":
                log[key] = DELETED
            elif log.get(key, DELETED) is DELETED or newer_wins(log[key], row):
                log[key] = row
        groups |= born
    return list(seen().values())


def _text(value: object) -> str:
    return "__null__" if value is None else str(value)


def _java(value: object) -> object:
    """`value` as something that Python compares as Apache Hudi does."""
    if isinstance(value, float):
        if math.isnan(value):
            return (1, math.inf, 1)
        return (1, value, -1 if struct.pack(">d", value)[0] & 0x80 and value == 0 else 0)
    return (0, 0) if value is None else (1, value)
