"""Computes the rows that a table must hold, with DuckDB, from the input folders alone.

The oracle uses none of the code that writes tables. DuckDB decides which input row each key ends with after a
history of commits, from keys, ordering values and input positions only. The rows themselves are then fetched
from the input files, so that no value passes through another engine.

Rules (Hudi's BufferedRecordMergerFactory):

- Within a batch the highest ordering value of a key wins; in a tie the later input position wins: file name
  order, then row. Under commit-time ordering the later position wins.
- The winner is merged with the stored row. Under event-time ordering the higher ordering value wins, in a tie
  the newer commit; under commit-time ordering the newer commit wins.
- Rows replaced by `insert_overwrite`, `insert_overwrite_table` or `delete_partition` count as never written.
- The operation `delete` removes a key whatever the ordering values: a commit-time delete.
- Keys are unique in a partition path; the same key in two partition paths is two rows. Under a global index
  keys are unique in the table, and a row is stored in the partition that it names.
- On MERGE_ON_READ a file group begins with a base file, and later commits append to its log until it is
  compacted (an operation `compact` without a folder). Log records are merged with each other first, then with
  the base row. So a key that was deleted, and written again with a lower ordering value than its base row,
  reads as that base row until the next compaction.
- `entry_by_entry` handles delete markers and partial updates.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

import duckdb
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from serde_lab.errors import DataError, UsageError
from serde_lab.records.operation import Operation
from serde_lab.verify.entry_by_entry import Arrival, Entry, EntryByEntry, filled_rows
from serde_lab.verify.key_text import in_types
from serde_lab.verify.narrow import POSITION_BITS, NarrowRows
from serde_lab.verify.table_rules import TableRules

COMPACT = "compact"
"""What a compaction is called among the operations of a history; it has no input."""
_KNOWN = (*Operation, COMPACT)
_WITHOUT_LOOKUP = (Operation.BULK_INSERT, Operation.INSERT)


@dataclass(frozen=True, slots=True)
class HistoryCommit:
    """One write or compaction: its operation, and the folder of its input Parquet files, None without input.

    `operation` is an `Operation` or COMPACT. `partitions`: the partition paths of a `delete_partition`.
    """

    operation: str
    folder: Path | None = None
    partitions: tuple[str, ...] = ()

    def files(self) -> list[Path]:
        """The input files in input order. Raises DataError if there are none."""
        if self.folder is None:
            return []
        found = sorted(
            path for path in self.folder.glob("*.parquet") if not path.name.startswith((".", "_"))
        )
        if not found:
            raise DataError(f"{self.folder} holds no Parquet file")
        return found


class Solver:
    """Holds one history in DuckDB: the tables `batches` and `deletes`, and at the end `visible`."""

    def __init__(
        self,
        connection: duckdb.DuckDBPyConnection,
        rules: TableRules,
        commits: Sequence[HistoryCommit],
    ) -> None:
        for commit in commits:
            if commit.operation not in _KNOWN:
                raise UsageError(
                    f"the oracle does not know the operation {commit.operation!r}; "
                    f"known are {', '.join(_KNOWN)}"
                )
        self._sql = connection
        self._rules = rules
        self._commits = commits
        self._narrow = NarrowRows(rules)
        self._keys = ", ".join(self._narrow.keys)
        if rules.merge_mode == "CUSTOM":
            raise UsageError(
                "the oracle cannot compute merge mode CUSTOM, whose merger may do anything"
            )
        columns = [*self._narrow.keys, *self._narrow.ordering, *self._narrow.group]
        self._columns = ", ".join([*columns, "commit", "position"])
        best_first = [f"{name} DESC NULLS LAST" for name in self._narrow.ordering]
        self._best_first = ", ".join([*best_first, "commit DESC", "position DESC"])

    def load(self) -> None:
        """Read keys, ordering values and positions of every input row."""
        for table in ("batches", "deletes"):
            empty = self._narrow.schema(deletes=table == "deletes").empty_table()
            self._run(f"CREATE TABLE {table} AS SELECT * FROM input", empty)
        for number, commit in enumerate(self._commits):
            deletes = commit.operation == "delete"
            table = "deletes" if deletes else "batches"
            for place, path in enumerate(commit.files()):
                # batch by batch: an error inside a stream that DuckDB pulls would lose its type
                for batch in self._narrow.read(path, number, place, deletes):
                    rows = pa.Table.from_batches([batch])
                    self._run(f"INSERT INTO {table} SELECT * FROM input", rows)
            self._replace(number, commit)
            if commit.operation in _WITHOUT_LOOKUP and self._rules.schema.record_key:
                self._refuse_doubles(number)

    def _replace(self, number: int, commit: HistoryCommit) -> None:
        """Remove the rows that this commit replaced: they no longer influence anything."""
        if commit.operation not in (
            *("insert_overwrite", "insert_overwrite_table", "delete_partition"),
        ):
            return
        where = f"commit < {number}"
        parameters: dict[str, object] = {}
        if commit.operation != "insert_overwrite_table" and self._rules.schema.partition:
            if not self._narrow.partition:
                raise UsageError(
                    f"the oracle cannot compute {commit.operation} under a global index"
                )
            if commit.operation == "insert_overwrite":
                touched = f"(SELECT path FROM batches WHERE commit = {number})"
            else:
                touched = "(SELECT unnest($paths))"
                parameters = {"paths": list(commit.partitions)}
            where += f" AND path IN {touched}"
        for table in ("batches", "deletes"):
            self._sql.execute(f"DELETE FROM {table} WHERE {where}", parameters).fetchall()

    def decide(self) -> None:
        """Fill `visible` with the row that each key ends with."""
        if self._rules.table_type == "COPY_ON_WRITE":
            self._decide_without_logs()
            return
        self._run(f"CREATE TABLE base AS SELECT {self._columns} FROM batches LIMIT 0")
        start = 0
        for number, commit in enumerate(self._commits):
            if commit.operation == "compact":
                self._decide_with_logs(start, number)
                self._run("DROP TABLE base")
                self._run("ALTER TABLE visible RENAME TO base")
                start = number
        self._decide_with_logs(start, len(self._commits))

    def winners(self, folder: Path) -> Iterator[tuple[Path, Path]]:
        """Every input file that contains winning rows, with a file of their row numbers in order."""
        self._run(
            "CREATE TABLE winners AS SELECT commit, position FROM visible ORDER BY commit, position"
        )
        for number, commit in enumerate(self._commits):
            for place, path in enumerate(commit.files()):
                first = place << POSITION_BITS
                found = self._sql.execute(
                    "SELECT position - $first AS row FROM winners WHERE commit = $commit"
                    " AND position >= $first AND position < $end ORDER BY position",
                    {"first": first, "commit": number, "end": first + (1 << POSITION_BITS)},
                ).fetchnumpy()["row"]
                if len(found):
                    numbers = folder / f"rows-{number:05}-{place:05}.npy"
                    np.save(numbers, np.asarray(found, np.int64))
                    yield path, numbers

    def entry_by_entry(self, folder: Path) -> tuple[tuple[Path, Path], ...]:
        """The answer as one file of rows, since a row may be made of several."""
        keys = ", ".join(self._narrow.keys)
        values = ", ".join(f"{name} NULLS FIRST" for name in self._narrow.ordering) or "1"
        fields = "".join(f", {name}" for name in self._narrow.ordering)
        no_fields = "".join(f", NULL AS {name}" for name in self._narrow.ordering)
        marks = (
            "deleted, always" if self._rules.marker_columns else "false AS deleted, false AS always"
        )
        group = ", ".join([*self._narrow.partition, *self._narrow.group]) or "1"
        rows = self._sql.execute(f"""
            SELECT dense_rank() OVER (ORDER BY {keys}) AS key,
                dense_rank() OVER (ORDER BY {values}) AS value,
                "group", commit, position, deleted, always
            FROM (
                SELECT {keys}{fields}, dense_rank() OVER (ORDER BY {group}) AS "group",
                    commit, position, {marks} FROM batches
                UNION ALL
                SELECT {keys}{no_fields}, -1, commit, position, true, true FROM deletes)
            ORDER BY commit, position""").fetchall()
        history = EntryByEntry(self._rules)
        arrivals = [
            Arrival(
                commit,
                key,
                group,
                Entry(value, () if deleted else ((commit, position),), deleted, always),
            )
            for key, value, group, commit, position, deleted, always in rows
        ]
        by_commit = {n: list(found) for n, found in groupby(arrivals, lambda each: each.commit)}
        for number, commit in enumerate(self._commits):
            if commit.operation == "compact":
                history.compact()
            else:
                history.write(number, by_commit.get(number, []))
        files = [commit.files() for commit in self._commits]
        table = filled_rows(self._rules, history.visible(), files, POSITION_BITS)
        rows_path, numbers = folder / "made-rows.parquet", folder / "made-rows.npy"
        pq.write_table(table, rows_path)
        np.save(numbers, np.arange(table.num_rows))
        return ((rows_path, numbers),)

    def _decide_without_logs(self) -> None:
        """Deleted rows are gone from storage: only rows of later commits compete."""
        self._run(f"""
            CREATE TABLE visible AS
            SELECT commit, position
            FROM batches LEFT JOIN
                (SELECT {self._keys}, max(commit) AS deleted FROM deletes GROUP BY ALL)
                USING ({self._keys})
            WHERE deleted IS NULL OR commit > deleted
            QUALIFY row_number() OVER (PARTITION BY {self._keys} ORDER BY {self._best_first}) = 1""")

    def _decide_with_logs(self, start: int, end: int) -> None:
        """Visible rows after commits [start, end), with `base` holding the rows compacted before."""
        group = ", ".join([*self._narrow.partition, *self._narrow.group])
        self._run(f"""
            CREATE OR REPLACE TEMP TABLE births AS
            SELECT {group}, min(commit) AS born FROM batches GROUP BY ALL""")
        # a file group's first commit writes its base file; later commits append to its log
        self._run(f"""
            CREATE OR REPLACE TEMP TABLE candidates AS
            SELECT {self._columns}, false AS in_log FROM base
            UNION ALL
            SELECT {self._columns}, commit > born AS in_log
            FROM batches JOIN births USING ({group}) WHERE commit >= {start} AND commit < {end}""")
        self._run(f"""
            CREATE TABLE visible AS
            SELECT {self._columns}
            FROM candidates LEFT JOIN
                (SELECT {self._keys}, max(commit) AS deleted FROM deletes
                 WHERE commit >= {start} AND commit < {end} GROUP BY ALL)
                USING ({self._keys})
            -- a delete clears the log before it; the base row still meets whatever came after it
            WHERE deleted IS NULL OR commit > deleted OR NOT in_log
            WINDOW k AS (PARTITION BY {self._keys})
            QUALIFY row_number() OVER (k ORDER BY {self._best_first}) = 1
                AND (deleted IS NULL OR max(commit) OVER k > deleted)""")

    def _refuse_doubles(self, number: int) -> None:
        """Refuse commits without key lookup that would store an existing key twice."""
        double = self._sql.execute(f"""
            SELECT count(*) FROM
                (SELECT 1 FROM batches GROUP BY {self._keys}
                 HAVING count(*) > 1 AND max(commit) = {number})""").fetchall()
        if double[0][0]:
            raise DataError(
                f"{self._commits[number].folder}: {self._commits[number].operation} would store"
                f" {double[0][0]} keys twice, because it does not look for existing keys",
                hint="use operation upsert for these rows",
            )

    def _run(self, statement: str, rows: pa.Table | None = None) -> None:
        # DuckDB 2 holds the connection until a result was fetched completely
        if rows is None:
            self._sql.execute(statement).fetchall()
            return
        self._sql.register("input", rows)
        try:
            self._sql.execute(statement).fetchall()
        finally:
            self._sql.unregister("input")


@dataclass(frozen=True, slots=True)
class OracleAnswer:
    """The expected rows of a table, as rows of the input files; a RowSource of the stored schema."""

    rules: TableRules
    rows: int
    _parts: tuple[tuple[Path, Path], ...]
    """Input files, each with the file of its contributing row numbers."""

    @property
    def schema(self) -> pa.Schema:
        return self.rules.stored

    def batches(self) -> Iterator[pa.RecordBatch]:
        """The expected rows, as the table stores them, in input order."""
        for source, numbers in self._parts:
            wanted: npt.NDArray[np.int64] = np.load(numbers)
            start = 0
            file = pq.ParquetFile(source)
            for batch in file.iter_batches(columns=self.schema.names):
                first, last = np.searchsorted(wanted, [start, start + batch.num_rows])
                if last > first:
                    yield _stored(batch, self.schema, source).take(wanted[first:last] - start)
                start += batch.num_rows

    def table(self) -> pa.Table:
        """All expected rows in memory."""
        return pa.Table.from_batches(self.batches(), self.schema)


def solve(
    rules: TableRules,
    commits: Sequence[HistoryCommit],
    work_folder: Path,
) -> OracleAnswer:
    """The answer to a history of commits, in order. Works out of core in `work_folder`, which it keeps.

    Raises DataError for input without a right answer: a null key, a null ordering value if those are refused,
    a key written twice by `bulk_insert`. Raises UsageError for an unknown operation.
    """
    work_folder.mkdir(parents=True, exist_ok=True)
    database = work_folder / "oracle.duckdb"
    database.unlink(missing_ok=True)
    settings: dict[str, str | bool | int | float | list[str]] = {
        "memory_limit": "2048MB",
        "threads": 2,
        "temp_directory": str(work_folder / "spill"),
        "preserve_insertion_order": False,
        # load nothing from outside the package, least of all from a network
        "autoinstall_known_extensions": False,
    }
    connection = duckdb.connect(str(database), config=settings)
    try:
        # never committed: the database ends with this call, so its log need not reach the disk
        connection.begin()
        solver = Solver(connection, rules, commits)
        solver.load()
        if rules.best_row_wins:
            solver.decide()
            parts = tuple(solver.winners(work_folder))
        else:
            parts = solver.entry_by_entry(work_folder)
    finally:
        connection.close()
        database.unlink(missing_ok=True)
    rows = sum(len(np.load(numbers, mmap_mode="r")) for _, numbers in parts)
    return OracleAnswer(rules, rows, parts)


def _stored(batch: pa.RecordBatch, schema: pa.Schema, path: Path) -> pa.RecordBatch:
    """The data columns of `batch` in the types in which the table stores them."""
    try:
        return in_types(batch, schema)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as exc:
        raise DataError(f"{path} does not fit the table's schema: {exc}") from exc
