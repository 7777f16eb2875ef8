"""The cells of the cover, all of them and a pairwise choice, and what `readers.toml` says of each.

A cell is one table: its kind, partitioning, author with version, columns, and the record type by which
Apache Hudi then writes to it. In a cell the operations follow each other on that table.
"""

from __future__ import annotations

import itertools
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

READERS_TOML = Path(__file__).parents[2] / "readers.toml"

KINDS = ("copy on write", "merge on read, avro blocks", "merge on read, parquet blocks")
PARTITIONS = ("no partition", "one field, hive style", "two fields, escaped")
AUTHORS = (
    "serde_lab, version 9",
    "serde_lab, version 6",
    "Apache Hudi, version 9",
    "Apache Hudi, version 8",
    "Apache Hudi, version 6",
)
TYPES = (
    "numbers",
    "text, bytes, times",
    "nested",
    "narrow, large and view types",
    "lists with nulls",
    "timestamps without zone",
)
RECORD_TYPES = ("AVRO", "SPARK")
OPERATIONS = ("read", "upsert", "delete", "compact", "clean", "write again", "metadata table")
"""In the order in which they follow each other. `read` is of the table as its author left it; Apache
Hudi upserts, deletes, compacts and cleans; the lab writes again; last, Hudi builds its metadata table,
by which the lab is refused until it is dropped, and both write once more."""

DIMENSIONS = (KINDS, PARTITIONS, AUTHORS, TYPES, RECORD_TYPES, OPERATIONS)


@dataclass(frozen=True)
class Cell:
    """One table of the cover; `operations` that are not in it are not carried out."""

    kind: str
    partition: str
    author: str
    types: str
    record_type: str
    operations: tuple[str, ...] = OPERATIONS

    @property
    def name(self) -> str:
        """What identifies the cell, except for its operations."""
        return " | ".join((self.kind, self.partition, self.author, self.types, self.record_type))

    @property
    def by_lab(self) -> bool:
        return self.author.startswith("serde_lab")

    @property
    def version(self) -> int:
        """The table version that the author makes."""
        return int(self.author[-1])

    @property
    def merge_on_read(self) -> bool:
        return self.kind != KINDS[0]

    @property
    def blocks(self) -> str:
        return "parquet" if self.kind == KINDS[2] else "avro"


def all_cells() -> list[Cell]:
    """The whole cover, in an order in which any first part is a fair sample of it."""
    cells = [Cell(*point) for point in itertools.product(*DIMENSIONS[:-1])]
    step = 389  # prime to the number of cells: neighbours differ in every dimension
    return [cells[n * step % len(cells)] for n in range(len(cells))]


def pairwise_cells() -> list[Cell]:
    """Cells of one operation each in which every pair of values of two dimensions meets."""
    points = [point for point in itertools.product(*DIMENSIONS) if _possible(point)]
    missing = {pair for point in points for pair in _pairs(point)}
    chosen: list[tuple[str, ...]] = []
    while missing:
        best = max(points, key=lambda point: len(missing.intersection(_pairs(point))))
        chosen.append(best)
        missing.difference_update(_pairs(best))
    return [Cell(*point[:-1], operations=(point[-1],)) for point in chosen]


def _pairs(point: tuple[str, ...]) -> Iterator[tuple[tuple[int, str], tuple[int, str]]]:
    return itertools.combinations(enumerate(point), 2)


def _possible(point: tuple[str, ...]) -> bool:
    return point[0] != KINDS[0] or point[-1] != "compact"


@dataclass(frozen=True)
class Ruling:
    """What `readers.toml` says of a cell: who may judge it, and which write of Hudi's must fail."""

    judges: tuple[str, ...]
    fails: str = ""
    """The exception by which Hudi's writes fail, "" where they do not."""


def ruling_of(cell: Cell) -> Ruling:
    """The features and exceptions of `readers.toml` whose `cells` fit `cell`."""
    content: dict[str, Any] = tomllib.loads(READERS_TOML.read_text(encoding="utf-8"))
    judges = tuple(content["readers"])
    for feature in content["feature"]:
        if _fits(cell, feature.get("cells", [])):
            judges = tuple(judge for judge in judges if judge in feature["judges"])
    fails = [e["name"] for e in content["exception"] if _fits(cell, e.get("cells", []))]
    return Ruling(judges, fails[0] if fails else "")


def _fits(cell: Cell, wanted: list[dict[str, str]]) -> bool:
    """Whether `cell` is one of `wanted`, whose values say how those of the cell begin."""
    return any(
        all(getattr(cell, key).startswith(value) for key, value in one.items()) for one in wanted
    )
