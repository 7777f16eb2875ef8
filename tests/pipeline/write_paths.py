"""The cover of write paths: which tables are written by which chain, and a history for each of them.

A cell is one table: how records find their file groups, the strategy, the table's type and version, and
whether it has partitions. On it every operation that it takes follows, in an order of the cell's own.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pyarrow as pa

from serde_lab.table.read_plan import plan_snapshot
from serde_lab.verify import oracle
from serde_lab.verify.table_rules import TableRules
from tests.pipeline.lab_table import MOR, PARTITIONED, STRATEGIES, LabTable, Row, Rows, table_of
from tests.pipeline.test_topologies import options_of

BUCKETS = "BUCKET"
COUNTS = "BUCKET, counts by partition"
RING = "BUCKET, CONSISTENT_HASHING"
PATHS = (
    ("bucket", BUCKETS),
    ("bucket", COUNTS),
    ("consistent", RING),
    ("state", "FLINK_STATE"),
    ("state", "SIMPLE"),
    ("state", "GLOBAL_SIMPLE"),
    ("bloom", "BLOOM"),
    ("bloom", "GLOBAL_BLOOM"),
    ("legacy", "SIMPLE"),
    ("step1", "BLOOM"),
    ("step2", "INMEMORY"),
    ("step3", "FLINK_STATE"),
    ("step3", "SIMPLE"),
    ("compatible", "GLOBAL_SIMPLE"),
)
"""Topology of upserts, and index."""
TYPES = ("COPY_ON_WRITE", "MERGE_ON_READ")
VERSIONS = (9, 6)
PARTITIONS = (False, True)
DIMENSIONS = (PATHS, STRATEGIES, TYPES, VERSIONS, PARTITIONS)

_BUCKETED: dict[str, dict[str, str | None]] = {
    BUCKETS: {},
    COUNTS: {"hoodie.bucket.index.partition.expressions": "p 0,3;p 1,2"},
    RING: {"hoodie.index.bucket.engine": "CONSISTENT_HASHING"},
}
OVERWRITES = ("insert_overwrite", "insert_overwrite_table")


@dataclass(frozen=True)
class Cell:
    """One table of the cover."""

    path: tuple[str, str]
    strategy: str
    table_type: str
    version: int
    partitioned: bool

    @property
    def name(self) -> str:
        """What identifies the cell."""
        kind = "cow" if self.table_type == TYPES[0] else "mor"
        where = "partitioned" if self.partitioned else "whole"
        return f"{' '.join(self.path)} | {self.strategy} | {kind} {self.version} | {where}"

    @property
    def topology(self) -> str:
        return self.path[0]

    @property
    def is_possible(self) -> bool:
        """Whether there is such a table; `test_what_does_not_go_together_is_refused` has the others."""
        topology, index = self.path
        leaves = index.startswith("GLOBAL") and self.partitioned
        if index == COUNTS and not self.partitioned:
            return False
        if topology in ("legacy", "step1"):
            return not leaves
        return not (topology == "bloom" and leaves and self.table_type == TYPES[1])

    @property
    def options(self) -> dict[str, str | None]:
        """Of every write."""
        topology, index = self.path
        own = _BUCKETED.get(index)
        given = options_of(topology, index) if own is None else own
        return {
            **given,
            **(PARTITIONED if self.partitioned else {}),
            **(MOR if self.table_type == TYPES[1] else {}),
            "hoodie.write.table.version": str(self.version),
            "serde_lab.strategy": self.strategy,
        }

    @property
    def operations(self) -> tuple[str, ...]:
        """All that such a table takes after its first write."""
        found = ["upsert", "upsert", "delete", "upsert_prepped"]
        if self.path[1] == RING:
            return (*found, "insert")
        found += OVERWRITES
        if self.partitioned:
            found.append("delete_partition")
        found.append("insert")
        if self.path[1] not in _BUCKETED and self.topology != "step3":
            # where a bucket is a file group, nothing else would find the key's place; and the sizes of
            # step3's buffers are refused by other chains
            found += ["append", "bulk_insert"]
        return tuple(found)

    @property
    def first_operations(self) -> tuple[str, ...]:
        """Of which one makes the table."""
        found = ("upsert", "insert")
        if self.path[1] == RING or self.topology == "step3":
            return found
        return (*found, "bulk_insert")


def all_cells() -> list[Cell]:
    """Every table that there can be."""
    cells = [Cell(*point) for point in itertools.product(*DIMENSIONS)]
    return [cell for cell in cells if cell.is_possible]


def pairwise_cells() -> list[Cell]:
    """Cells in which every pair of values of two dimensions meets, but path and strategy, which do in
    `test_upserts_and_deletes_give_the_oracles_table`."""
    cells = all_cells()
    missing = {pair for cell in cells for pair in pairs(cell)}
    chosen: list[Cell] = []
    while missing:
        best = max(cells, key=lambda cell: len(missing.intersection(pairs(cell))))
        chosen.append(best)
        missing.difference_update(pairs(best))
    return chosen


def pairs(cell: Cell) -> Iterator[tuple[tuple[int, object], tuple[int, object]]]:
    """The values of each two dimensions, without path and strategy."""
    point = (cell.path, cell.strategy, cell.table_type, cell.version, cell.partitioned)
    both = itertools.combinations(enumerate(point), 2)
    return (pair for pair in both if (pair[0][0], pair[1][0]) != (0, 1))


class UnmovedTable(LabTable):
    """No record of it leaves its partition, so that a global index is no matter of what is right."""

    @property
    def rules(self) -> TableRules:
        return replace(super().rules, key_is_global=False)


@dataclass
class Course:
    """The history of a cell, one operation after the other; equal seeds give equal histories."""

    cell: Cell
    folder: Path
    seed: int = 0
    order: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.table = UnmovedTable(self.folder, self.cell.options)
        self._random = random.Random(f"{self.seed}/{self.cell.name}")
        self._clock = 0
        self._fresh = 0
        first = self._random.choice(self.cell.first_operations)
        rest = list(self.cell.operations)
        self._random.shuffle(rest)
        self.order = [first, *rest, "upsert"]

    def operations(self) -> Iterator[str]:
        """Carry the history out; the name of each operation after it was made."""
        for operation in self.order:
            self._make(operation)
            yield operation

    def _make(self, operation: str) -> None:
        self._clock += 100
        table = self.table
        if operation in ("insert", "append", "bulk_insert"):
            given: dict[str, Any] = {}
            if operation != "insert" and self.cell.path[1] not in _BUCKETED:
                given = {"serde_lab__topology": "append" if operation == "append" else "bulk"}
            # these look nothing up: keys that never were
            made = "insert" if operation == "append" else operation
            table.write(made, table_of(self._new(7)), **given)
        elif operation == "upsert":
            table.upsert(self._upserted())
        elif operation == "delete":
            gone = [*self._stored(4), ("absent", 1, 0, None), ("", 2, 0, None)]
            table.delete([*gone, gone[0]])
        elif operation == "delete_partition":
            asked = self._random.choice(["p 1", "p 0,p 2", "*1", "never"])
            table.delete_partitions(*asked.split(","))
            if "*" in asked:
                # the oracle knows no wildcards
                table.commits[-1] = oracle.HistoryCommit("delete_partition", partitions=("p 1",))
        elif operation == "upsert_prepped":
            self._prepped()
        else:
            # of one partition of three; a key twice
            kept = [row for row in self._upserted() if row[1] % 3 == 1] or self._new(1, 1)
            doubled = table_of([*kept, kept[0]])
            table.write(operation, doubled, hoodie__combine__before__insert="true")

    def _new(self, count: int, remainder: int | None = None) -> Rows:
        self._fresh += 1
        numbers = range(count) if remainder is None else [remainder + 3 * n for n in range(count)]
        return [(f"ü{self._fresh}\0", n, self._clock + n % 5, 1.5) for n in numbers]

    def _stored(self, count: int) -> Rows:
        """Some of the rows that are there."""
        if not self.table.commits:
            return []
        read = plan_snapshot(self.table.table).read().select(["k", "n", "ts", "x"])
        found: list[Row] = sorted(tuple(row.values()) for row in read.to_pylist())
        return self._random.sample(found, min(count, len(found)))

    def _upserted(self) -> Rows:
        """Newer, late and tied rows of stored keys, and new ones; a key may come several times."""
        known = self._stored(8)
        newer = [(k, n, self._clock + 9, 2.5) for k, n, _, _ in known[:3]]
        late = [(k, n, ts - 1, 3.5) for k, n, ts, _ in known[2:5]]
        tied = [(k, n, ts, 4.5) for k, n, ts, _ in known[5:7]]
        return [*newer, *late, *self._new(4), *tied, *[(k, n, ts, -0.0) for k, n, ts, _ in tied]]

    def _prepped(self) -> None:
        read = plan_snapshot(self.table.table).read()
        some = read.slice(self._random.randrange(max(1, len(read) - 3)), 4)
        if not len(some):
            return
        newer = pa.array([self._clock + 50 + n for n in range(len(some))], pa.int64())
        at = some.schema.get_field_index("ts")
        self.table.write("upsert_prepped", some.set_column(at, "ts", newer))
