"""A table under test: every write is noted, so that DuckDB can say at any time what it must hold."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from serde_lab.lab.lab_reader import LabReader
from serde_lab.pipeline.commit.coordinator import Commit
from serde_lab.pipeline.commit.table_services import compact
from serde_lab.pipeline.exchange.in_process import Exchange, InProcessExchange, parquet_partitions
from serde_lab.pipeline.options.write import parse_options
from serde_lab.pipeline.source.schema import record_schema
from serde_lab.pipeline.write import PreparedWrite
from serde_lab.table.properties import format_properties, parse_properties
from serde_lab.table.read_plan import plan_snapshot
from serde_lab.table.storage.storage import Storage
from serde_lab.table.table import HoodieTable
from serde_lab.verify import oracle
from serde_lab.verify.table_checks import Expected, check_contents, check_path, check_table
from serde_lab.verify.table_rules import TableRules

STRATEGIES = ("pickle", "avro", "internal_row", "arrow")
OPTIONS = {
    "hoodie.table.name": "t",
    "hoodie.datasource.write.recordkey.field": "k,n",
    "hoodie.datasource.write.precombine.field": "ts",
    "hoodie.bucket.index.num.buckets": "4",
    "serde_lab.seed": "1",
}
MOR = {"hoodie.datasource.write.table.type": "MERGE_ON_READ"}
PARTITIONED = {"hoodie.datasource.write.partitionpath.field": "p"}

Row = tuple[str, int, int, float | None]
"""k, n, ts, x"""
Rows = Sequence[Row]

FIRST: Rows = [("a", i, 10 * i, i / 3) for i in range(40)] + [("é\0", 7, 5, None), ("", 1, 1, -0.0)]
SECOND: Rows = [
    ("a", 3, 31, 1.0),  # newer
    ("a", 4, 39, 2.0),  # late
    ("a", 5, 50, 3.0),  # a tie goes to the newer commit
    ("a", 6, 60, 4.0),
    ("a", 6, 60, 5.0),  # a tie within the batch goes to the later row
    ("a", 6, 59, 6.0),
    ("b", 0, 0, float("nan")),
    ("\U0001f600", 0, 0, float("inf")),
]
GONE: Rows = [("a", n, 0, None) for n in (3, 4, 10, 11, 12, 11)] + [
    ("b", 0, 0, None),
    ("z", 9, 0, None),
]
# 3 comes back newer than it was, 10 older than its base row, 11 and b at equal values
BACK: Rows = [("a", 3, 40, 7.0), ("a", 10, 99, 8.0), ("a", 11, 110, 9.0), ("b", 0, 0, 10.0)]


def table_of(rows: Rows) -> pa.Table:
    """`rows` with further columns of awkward types; the partition follows from n."""
    return pa.table(
        {
            "k": pa.array([r[0] for r in rows], pa.string()),
            "n": pa.array([r[1] for r in rows], pa.int64()),
            "ts": pa.array([r[2] for r in rows], pa.int64()),
            "x": pa.array([r[3] for r in rows], pa.float64()),
            "p": pa.array([f"p {r[1] % 3}" for r in rows], pa.string()),
            "d": pa.array([date(1960, 1, 1 + r[1] % 28) for r in rows], pa.date32()),
            "m": pa.array([Decimal(r[2]) / 100 for r in rows], pa.decimal128(38, 2)),
            "t": pa.array(
                [datetime(1969, 12, 31, 23, 59, 59, r[1], UTC) for r in rows],
                pa.timestamp("us", "UTC"),
            ),
            "l": pa.array([[r[0], ""] if r[1] % 2 else None for r in rows], pa.list_(pa.string())),
        }
    )


def write_parts(path: Path, table: pa.Table, files: int = 2) -> Path:
    """`table` as parquet files in input order."""
    path.mkdir(parents=True)
    step = -(-len(table) // files) or 1
    for number in range(files):
        pq.write_table(table.slice(number * step, step), path / f"part-{number:05d}.parquet")
    return path


def commit_batches(prepared: PreparedWrite, batches: Iterable[Exchange]) -> Commit:
    """Write batches one after the other under one instant, and commit it."""
    shared = None
    with prepared.hold():
        for batch in batches:
            shared = prepared.store_batch(batch, shared)
        assert shared is not None
        return prepared.coordinator.flush(shared)


@dataclass
class LabTable:
    """A table in `folder`, written without Spark; `options` are those of every write."""

    folder: Path
    options: Mapping[str, str | None] = field(default_factory=dict)
    schema: pa.Schema = field(default_factory=lambda: table_of([]).schema)
    commits: list[oracle.HistoryCommit] = field(default_factory=list)

    @property
    def path(self) -> Path:
        return self.folder / "table"

    @property
    def table(self) -> HoodieTable:
        return HoodieTable.open(Storage.open(self.path))

    @property
    def all_options(self) -> dict[str, str]:
        # None takes an option back that every table has here
        given: dict[str, Any] = {**OPTIONS, **self.options}
        return {key: value for key, value in given.items() if value is not None}

    def leave_as_hudi(self) -> None:
        """Take the lab's own properties away: each write has to say what the index is."""
        place = self.path / ".hoodie/hoodie.properties"
        stated = parse_properties(place.read_text())
        place.write_text(
            format_properties({k: v for k, v in stated.items() if not k.startswith("serde_lab")})
        )

    def upsert(self, rows: Rows | pa.Table, files: int = 2, **options: object) -> Commit:
        """The next write."""
        data = rows if isinstance(rows, pa.Table) else table_of(rows)
        return self.write("upsert", data, files, **options)

    def delete_partitions(self, *paths: str, **options: object) -> Commit:
        """Remove partitions, by a write without rows."""
        given = self.given(options) | {
            "hoodie.datasource.write.operation": "delete_partition",
            "hoodie.datasource.write.partitions.to.delete": ",".join(paths),
        }
        parsed = parse_options(given, self.table.config)
        prepared = PreparedWrite.of(Storage.open(self.path), self.schema, parsed)
        commit = prepared.commit(InProcessExchange([]))
        self.commits.append(oracle.HistoryCommit("delete_partition", partitions=paths))
        return commit

    def given(self, options: Mapping[str, object]) -> dict[str, Any]:
        """The options of a write: those of every write, and its own, named with `__` for dots."""
        return {**self.all_options, **{k.replace("__", "."): v for k, v in options.items()}}

    def delete(self, rows: Rows | pa.Table, files: int = 2, **options: object) -> Commit:
        """The next write, by the options that identify records alone."""
        data = rows if isinstance(rows, pa.Table) else table_of(rows).select(["k", "n", "p"])
        return self.write("delete", data, files, **options)

    def write(self, operation: str, data: pa.Table, files: int = 2, **options: object) -> Commit:
        """`options`: names with `__` for dots."""
        folder = self._input(data, files)
        given = {**self.given(options), "hoodie.datasource.write.operation": operation}
        stored = self.table.config if HoodieTable.exists(Storage.open(self.path)) else None
        prepared = PreparedWrite.of(
            Storage.open(self.path), data.schema, parse_options(given, stored)
        )
        parts = parquet_partitions(sorted(folder.glob("*.parquet")), data.schema.names)
        commit = prepared.commit(InProcessExchange(parts))
        self.commits.append(oracle.HistoryCommit(operation, folder))
        if prepared.serve().compacted is not None:
            self.commits.append(oracle.HistoryCommit("compact"))
        return commit

    def noted(self, operation: str, data: pa.Table, files: int = 2) -> Path:
        """The input of a write that something else makes."""
        folder = self._input(data, files)
        self.commits.append(oracle.HistoryCommit(operation, folder))
        return folder

    def _input(self, data: pa.Table, files: int) -> Path:
        inputs = self.folder / "inputs"
        return write_parts(inputs / f"{len(list(inputs.glob('*'))):03}", data, files)

    def compact(self) -> Commit | None:
        """Compact every slice with logs."""
        done = compact(self.table)
        if done is not None:
            self.commits.append(oracle.HistoryCommit("compact"))
        return done

    @property
    def rules(self) -> TableRules:
        # how records travel is no matter of what is right
        ways = ("serde_lab.topology", "hoodie.bulkinsert.sort.mode", "write.")
        needed = {k: v for k, v in self.all_options.items() if not k.startswith(ways)}
        options = parse_options(needed)
        config = options.table
        return TableRules(
            record_schema(self.schema, options),
            merge_mode=config.merge_mode or "EVENT_TIME_ORDERING",
            table_type=config.table_type,
            hive_style=config.hive_style,
            url_encode=config.url_encode,
            ordering_nulls=options.ordering_nulls,
            buckets=config.bucket_count or 0,
            key_is_global=config.index_is_global,
            time=config.extra if config.time_rule is not None else {},
            kinds=config.partition_kinds,
            partial_update=config.partial_update_mode,  # type: ignore[arg-type]
            unavailable=config.unavailable_value,
            delete_field=config.delete_field,
            delete_marker=config.delete_marker,
        )

    def expected(self, commits: int | None = None) -> Expected:
        """What the table must hold, or what it held after the first `commits` entries."""
        work = self.folder / "work" / f"{len(self.commits)}-{commits}"
        return Expected.of(oracle.solve(self.rules, self.commits[:commits], work))

    def check(self, by_rust: bool = True) -> Expected:
        """Both readers, hudi-rs and ours, see what DuckDB says; only ours where hudi-rs cannot."""
        expected = self.expected()
        own = LabReader(str(self.path))
        verdict = (
            check_path(str(self.path), expected, self.rules)
            if by_rust
            else check_table(own, expected, self.rules, own.facts())
        )
        assert verdict.passed, [result for result in verdict.results if not result.passed]
        ours = check_contents(plan_snapshot(self.table).read(), expected, self.rules, "us").results[
            0
        ]
        assert ours.passed, ours.detail
        return expected

    def logs(self) -> list[str]:
        """Names of log files of the latest slices."""
        slices = self.table.view().latest_file_slices()
        return [log.path.rpartition("/")[2] for s in slices for log in s.log_files]
