"""Computes the rows that a table must hold, with DuckDB, from the input folders alone.

The oracle uses none of the code that writes tables. DuckDB decides which input row each key ends with
(`solver`), from keys, ordering values and input positions only. The rows themselves are then fetched from
the input files, so that no value passes through another engine.

Rules (Hudi's BufferedRecordMergerFactory, as in `hudi-format.md` part 3):

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
from pathlib import Path

import duckdb
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from serde_lab.errors import DataError
from serde_lab.verify.evolution import in_types
from serde_lab.verify.rules import TableRules
from serde_lab.verify.solver import HistoryCommit as HistoryCommit
from serde_lab.verify.solver import Solver


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
    memory_mb: int = 2048,
    threads: int = 2,
) -> OracleAnswer:
    """The answer to a history of commits, in order. Works out of core in `work_folder`, which it keeps.

    Raises DataError for input without a right answer: a null key, a null ordering value if those are refused,
    a key written twice by `bulk_insert`. Raises UsageError for an unknown operation.
    """
    work_folder.mkdir(parents=True, exist_ok=True)
    database = work_folder / "oracle.duckdb"
    database.unlink(missing_ok=True)
    settings: dict[str, str | bool | int | float | list[str]] = {
        "memory_limit": f"{memory_mb}MB",
        "threads": threads,
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
