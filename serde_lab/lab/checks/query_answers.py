"""Compares answers: those to TPC-H's queries, and those of timed reads, with what they must be.

Spark's answers to queries are compared with those of DuckDB over the rows that the tables must hold. Neither
the tables nor the lab's reader take part in DuckDB's answer: its rows are the oracle's. Numbers, texts and
dates must be equal. Averages and quotients are rounded by Spark to its decimals, and computed as doubles by
DuckDB; they may differ by `TOLERANCE`, and by `RELATIVE` of the value.

The oracle answers a snapshot read from all writes before it, and an incremental read from the writes in its
range alone, as if nothing had been stored before: a reader merges log records of the range with each other
only, so that a late row is a change although a stored row outdoes it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa

from serde_lab.lab.cells.cell import CellResult, QueryRows, ReadAnswer
from serde_lab.lab.inputs.prepared import CommitInput, PreparedInputs
from serde_lab.records.operation import TABLE_OPERATIONS, TableOperation
from serde_lab.scenario.model import Scenario
from serde_lab.verify.contents import RowSource
from serde_lab.verify.oracle import HistoryCommit, solve
from serde_lab.verify.readers import PlainParquet
from serde_lab.verify.table_checks import CheckResult, Expected, check_contents
from serde_lab.verify.table_rules import TableRules
from tpch import QUERIES

TOLERANCE, RELATIVE = 1e-6, 1e-9
"""Spark's averages of two decimals have six, so that rounding changes them by 5e-7 at most; a double has
about 16 digits, and sums of millions of them may lose several."""
_MEMORY_MB, _THREADS = 2048, 2


class QueryAnswers:
    """Judges answers; DuckDB is asked once for each set of right rows, in the folder `work`."""

    def __init__(self, work: Path) -> None:
        self._work = work
        self._right: dict[tuple[int, ...], tuple[Sequence[RowSource], dict[str, QueryRows]]] = {}

    def judge(
        self, answers: Mapping[str, QueryRows], tables: Mapping[str, RowSource]
    ) -> list[CheckResult]:
        """One result for each of `answers`, by query; `tables` are the right rows by table."""
        if not answers:
            return []
        rows = tuple(tables.values())
        kind = tuple(id(source) for source in rows)
        if kind not in self._right:
            # the rows are kept, so that no other ones get their ids
            self._right[kind] = rows, self._answered(list(answers), tables)
        right = self._right[kind][1]
        return [_compared(query, found, right[query]) for query, found in answers.items()]

    def _answered(
        self, queries: Sequence[str], tables: Mapping[str, RowSource]
    ) -> dict[str, QueryRows]:
        self._work.mkdir(parents=True, exist_ok=True)
        file = self._work / "rows.duckdb"
        settings: dict[str, str | bool | int | float | list[str]] = {
            "memory_limit": f"{_MEMORY_MB}MB",
            "threads": _THREADS,
            "temp_directory": str(self._work / "spill"),
            "autoinstall_known_extensions": False,
        }
        with duckdb.connect(str(file), config=settings) as connection:
            for name in dict.fromkeys(t for query in queries for t in QUERIES[query].tables):
                source = tables[name]
                reader = pa.RecordBatchReader.from_batches(source.schema, source.batches())
                connection.register("rows_of_oracle", reader)
                connection.execute(f'CREATE TABLE "{name}" AS SELECT * FROM rows_of_oracle')
                connection.unregister("rows_of_oracle")
            found = {
                query: tuple(connection.execute(QUERIES[query].sql).fetchall()) for query in queries
            }
        file.unlink()
        return found


def _compared(query: str, found: QueryRows, right: QueryRows) -> CheckResult:
    name = f"answer_of_{query}"
    if len(found) != len(right):
        detail = f"Spark answers {len(found):,} rows, DuckDB {len(right):,}"
        return CheckResult(name, False, detail)
    rounded = 0
    for number, (ours, theirs) in enumerate(zip(found, right, strict=True), start=1):
        for place, (mine, other) in enumerate(zip(ours, theirs, strict=True), start=1):
            if not _equal(mine, other):
                detail = f"row {number}, column {place}: Spark answers {mine}, DuckDB {other}"
                return CheckResult(name, False, detail)
            rounded += isinstance(other, float)
    detail = f"{len(found):,} row{'' if len(found) == 1 else 's'} as DuckDB answers"
    if rounded:
        what = "average or quotient" if rounded == 1 else "averages or quotients"
        detail += f"; {rounded:,} {what} equal to {TOLERANCE:g}"
    return CheckResult(name, True, detail)


def _equal(found: Any, right: Any) -> bool:
    if isinstance(right, float) and isinstance(found, float | int | Decimal):
        return abs(float(found) - right) <= TOLERANCE + RELATIVE * abs(right)
    return bool(found == right)


READS = "reads_match_oracle"


def oracle_commits(commits: Sequence[CommitInput]) -> list[HistoryCommit]:
    """The writes and compactions among `commits`, as the oracle takes them."""
    return [
        HistoryCommit(commit.operation, None)
        if commit.operation == TableOperation.COMPACT
        else HistoryCommit(commit.operation, commit.folder, commit.partitions)
        for commit in commits
        if commit.operation not in TABLE_OPERATIONS or commit.operation == TableOperation.COMPACT
    ]


class ReadChecks:
    """Judges the answers of one scenario's reads; each expected answer is computed once."""

    def __init__(self, scenario: Scenario, inputs: PreparedInputs, work: Path) -> None:
        self._scenario, self._inputs, self._work = scenario, inputs, work
        self._expected: dict[tuple[str, int], Expected] = {}

    def judge(self, rules: TableRules, result: CellResult) -> list[CheckResult]:
        """One check of all reads of a cell; none if it had none."""
        if not result.reads:
            return []
        wrong = [words for read in result.reads if (words := self._problem(rules, read))]
        if wrong:
            return [CheckResult(READS, False, "; ".join(wrong))]
        rows = ", ".join(f"{read.timed.rows:,}" for read in result.reads)
        return [CheckResult(READS, True, f"{len(result.reads)} reads of {rows} rows")]

    def _problem(self, rules: TableRules, read: ReadAnswer) -> str:
        """How the answer of a read differs; "" if it does not."""
        number = read.number
        where = f"commit {number} ({self._scenario.commits[number - 1].operation})"
        if read.timed != read.kept:
            return (
                f"{where}: the timed read had {read.timed.rows:,} rows with the digest {read.timed.hash:x},"
                f" and the same read afterwards {read.kept.rows:,} with {read.kept.hash:x}"
            )
        expected = self._answer(rules, number)
        if not read.kept.rows and not expected.fingerprint.rows:
            return ""
        (found,) = check_contents(PlainParquet(read.folder), expected, rules, "the arm").results
        return f"{where}: {found.detail}" if found.failed else ""

    def _answer(self, rules: TableRules, number: int) -> Expected:
        key = (repr(rules), number)
        if key not in self._expected:
            commits = (*self._inputs.setups, *self._inputs.commits[: number - 1])
            batch = self._scenario.commits[number - 1]
            history = oracle_commits(commits)
            if batch.operation == TableOperation.INCREMENTAL:
                writes = [one for one in history if one.operation != TableOperation.COMPACT]
                history = writes[-batch.since :]
                # in a log, what came before a delete is gone, as it is without logs
                rules = replace(rules, table_type="COPY_ON_WRITE")
            folder = self._work / str(len(self._expected))
            self._expected[key] = Expected.of(solve(rules, history, folder))
        return self._expected[key]
