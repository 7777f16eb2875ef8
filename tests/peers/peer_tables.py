"""One history of writes for every table of the peer tests, and the two writers that carry it out.

The rows have a column of every type that Hudi takes; the input lies in folders, so that the oracle and
both writers read the same files.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from serde_lab.errors import OptionError
from serde_lab.lab.lab_reader import LabReader
from serde_lab.records.schema import RecordSchema
from serde_lab.runs.model import Check
from serde_lab.table.config_properties import split_kinds
from serde_lab.verify import oracle
from serde_lab.verify.oracle import HistoryCommit
from serde_lab.verify.readers import HudiRs
from serde_lab.verify.table_checks import Expected, check_table
from serde_lab.verify.table_rules import TableRules
from tests.peers.hudi_options import HudiTable, HudiWrite, write_options
from tests.peers.hudi_reads import HudiSnapshot

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ALL_READERS = ("hudi-rs", "apache-hudi", "serde_lab")

SCHEMA = pa.schema(
    [
        ("k", pa.string()),
        ("n", pa.int64()),
        ("o", pa.int64()),
        ("p", pa.string()),
        ("q", pa.date32()),
        ("flag", pa.bool_()),
        ("tiny", pa.int8()),
        ("short", pa.int16()),
        ("int", pa.int32()),
        ("single", pa.float32()),
        ("double", pa.float64()),
        ("price", pa.decimal128(15, 2)),
        ("huge", pa.decimal128(38, 10)),
        ("blob", pa.binary()),
        ("day", pa.date32()),
        ("moment", pa.timestamp("us", "UTC")),
        ("numbers", pa.list_(pa.int32())),
        ("counts", pa.map_(pa.string(), pa.int64())),
        ("nested", pa.struct([("a", pa.string()), ("b", pa.struct([("c", pa.decimal128(9, 3))]))])),
        (
            "deep",
            # two fields: Apache Hudi cannot read back a list of structs of one (readers.toml)
            pa.list_(pa.struct([("m", pa.map_(pa.string(), pa.float64())), ("x", pa.int32())])),
        ),
    ]
)


def row(number: int, ordering: int, note: str) -> dict[str, Any]:
    """A row of every type; every fourth is null wherever it may be."""
    shared = {
        "k": f"ü😀 {number % 7}",
        "n": number,
        "o": ordering,
        "p": f"part {number % 3}",
        "q": dt.date(2024, 2, 28 + number % 2),
    }
    if number % 4 == 3:
        return shared
    return shared | {
        "flag": number % 2 == 0,
        "tiny": number % 256 - 128,
        "short": -number,
        "int": 2**31 - 1 - number,
        "single": number / 8,
        "double": -0.0 if number % 5 == 0 else number / 3,
        "price": Decimal(f"-{number}.{ordering % 100:02d}"),
        "huge": Decimal("1234567890123456789012345678.0123456789"),
        "blob": bytes([number % 256, 0, 255]),
        "day": dt.date(1969, 12, 1 + number % 28),
        "moment": dt.datetime(1969, 12, 31, 23, 59, 59, number, tzinfo=dt.UTC),
        "numbers": list(range(number % 3)),
        "counts": [(f"n{n}", n + ordering if n else None) for n in range(number % 3)],
        "nested": {"a": f"{note} {number}", "b": {"c": Decimal("-1.250")} if number % 2 else None},
        "deep": [{"m": [("x", float(number)), ("y", None)], "x": None}, {"m": [], "x": number}],
    }


def rows(numbers: Iterable[int], ordering: int, note: str) -> list[dict[str, Any]]:
    """Rows of one ordering value."""
    return [row(number, ordering, note) for number in numbers]


@dataclass(frozen=True)
class Step:
    """A write of the history: rows of each input file, and what it does with them."""

    operation: str
    files: tuple[list[dict[str, Any]], ...]
    schema: pa.Schema = SCHEMA

    def folder(self, place: Path) -> Path:
        """The rows as Parquet files in `place`."""
        place.mkdir(parents=True, exist_ok=True)
        for number, content in enumerate(self.files):
            table = pa.Table.from_pylist(content, schema=self.schema)
            pq.write_table(table, place / f"part-{number:05}.parquet")
        return place


# equal ordering values of one key never stand in one batch: Hudi's choice among them is its shuffle's
FIRST = Step("upsert", (rows(range(60), 5, "first"), rows(range(40, 90), 4, "lower twin")))
SECOND = Step(
    "upsert",
    (
        rows(range(20, 30), 5, "tie with stored"),
        rows(range(30, 40), 6, "newer") + rows(range(80, 120), 7, "newer or new"),
        rows(range(5), 3, "late"),
    ),
)
DELETE = Step("delete", (rows([*range(10, 15), *range(100, 105), 999], 1, "deleted"),))
# 12 comes back higher than it was, 14 lower (on MERGE_ON_READ its base row returns instead)
LAST = Step(
    "upsert",
    (rows([12], 8, "back") + rows([14], 2, "back lower"), rows(range(110, 116), 9, "again")),
)
HISTORY = (FIRST, SECOND, DELETE, LAST)


@dataclass
class PeerTable:
    """A table under test: where it is, what it is, and the commits that it has seen so far."""

    spark: SparkSession
    folder: Path
    table: HudiTable
    schema: pa.Schema = SCHEMA

    def __post_init__(self) -> None:
        self.commits: list[HistoryCommit] = []

    @property
    def path(self) -> str:
        return str(self.folder / "table")

    @property
    def rules(self) -> TableRules:
        """The table as the checks see it."""
        table = self.table
        merge_on_read = table.table_type == "MERGE_ON_READ"
        partition, kinds = split_kinds(table.partition, "", OptionError)
        return TableRules(
            RecordSchema(self.schema, table.record_key, partition, table.ordering),
            merge_mode=table.merge_mode,
            table_type=table.table_type,
            hive_style=table.hive_style,
            url_encode=table.url_encode,
            buckets=table.buckets if merge_on_read and table.index == "BUCKET" else 0,
            key_is_global=table.index.startswith("GLOBAL"),
            time=table.time,
            kinds=kinds,
        )

    def step(self, step: Step) -> HistoryCommit:
        """The input folder of the next write."""
        place = step.folder(self.folder / "inputs" / f"{len(self.commits)}")
        commit = HistoryCommit(step.operation, place)
        self.commits.append(commit)
        return commit

    def by_hudi(self, step: Step, write: HudiWrite, compacted: bool = False) -> None:
        """Apache Hudi does the next write; `compacted` says that it compacts after it."""
        commit = self.step(step)
        options = write_options(self.table, write) | {
            "hoodie.datasource.write.operation": step.operation
        }
        frame = self.spark.read.parquet(str(commit.folder))
        frame.write.format("hudi").options(**options).mode("append").save(self.path)
        if compacted:
            self.commits.append(HistoryCommit("compact"))

    def expected(self) -> Expected:
        """What the table must hold by now."""
        work = self.folder / "work" / f"{len(self.commits)}"
        return Expected.of(oracle.solve(self.rules, self.commits, work))

    def problems(self, judges: Collection[str] = ALL_READERS) -> list[str]:
        """What is wrong with the table as each of `judges` sees it; empty if nothing is."""
        expected = self.expected()
        assert expected.fingerprint.rows > 0
        rust = HudiRs(self.path)
        results: list[Check] = []
        if "hudi-rs" in judges:
            facts = rust.facts()
            results += check_table(rust, expected, self.rules).results
        else:
            facts = LabReader(self.path).facts()
        if "apache-hudi" in judges:
            with HudiSnapshot(self.spark, self.path) as snapshot:
                results += check_table(snapshot, expected, self.rules, facts).results
        if "serde_lab" in judges:
            own = LabReader(self.path)
            results += check_table(own, expected, self.rules, facts).results
        return [result.detail for result in results if not result.passed]
