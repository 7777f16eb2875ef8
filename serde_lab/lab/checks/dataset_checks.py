"""Checks a cell that wrote several tables, and its answers to queries.

Every check of a table is made for each table, and counts under its one name: it passes if it passes for all
of them, and otherwise names the tables that are wrong.

Spark's answers to TPC-H's queries are compared with those of DuckDB over the rows that the tables must hold.
Neither the tables nor the lab's reader take part in DuckDB's answer: its rows are the oracle's. Numbers,
texts and dates must be equal. Averages and quotients are rounded by Spark to its decimals, and computed as
doubles by DuckDB; they may differ by `TOLERANCE`, and by `RELATIVE` of the value.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa

from serde_lab.lab.cells.cell import CellResult, QueryRows
from serde_lab.lab.cells.table_cells import DATASETS
from serde_lab.lab.checks.cell_checks import CellChecks
from serde_lab.lab.inputs.prepared import PreparedTable
from serde_lab.runs.model import Check
from serde_lab.scenario.model import Arm
from serde_lab.verify.contents import Fingerprint, RowSource
from serde_lab.verify.table_checks import TableVerdict
from tpch import QUERIES

TOLERANCE, RELATIVE = 1e-6, 1e-9
"""Spark's averages of two decimals have six, so that rounding changes them by 5e-7 at most; a double has
about 16 digits, and sums of millions of them may lose several."""
_MEMORY_MB, _THREADS = 2048, 2


class DatasetChecks(CellChecks):
    """Judges the cells that write all `tables`; as a `CellChecks` it stands for the first of them."""

    def __init__(self, tables: Sequence[PreparedTable], work: Path) -> None:
        first = tables[0]
        super().__init__(first.scenario, first.inputs, work)
        self._tables: dict[str, CellChecks] = {first.name: self}
        for one in tables[1:]:
            folder = work / DATASETS / one.name
            self._tables[one.name] = CellChecks(one.scenario, one.inputs, folder)
        self._queries = QueryAnswers(work / "queries")

    def judge(self, arm: Arm, result: CellResult) -> TableVerdict:
        """Every check of one cell; the fingerprint is that of all tables."""
        verdicts = {
            name: checks.of_table(arm, result.parts[name]) for name, checks in self._tables.items()
        }
        rows = {name: checks.rows_of(arm) for name, checks in self._tables.items()}
        return TableVerdict(
            (
                *self.of_cell(arm, result),
                *_under_one_name({name: v.results for name, v in verdicts.items()}),
                *self._queries.judge(result.answers, rows),
            ),
            _of_all({name: verdict.fingerprint for name, verdict in verdicts.items()}),
        )


def _under_one_name(found: Mapping[str, Sequence[Check]]) -> list[Check]:
    """The checks of all tables, those with the same name as one."""
    named: dict[str, dict[str, Check]] = {}
    for table, results in found.items():
        for result in results:
            named.setdefault(result.name, {})[table] = result
    return [_as_one(name, of_tables) for name, of_tables in named.items()]


def _as_one(name: str, results: Mapping[str, Check]) -> Check:
    wrong = {table: one for table, one in results.items() if one.failed}
    not_made = {table: one for table, one in results.items() if one.passed is None}
    passed = False if wrong else (None if not_made else True)
    said = wrong or not_made or results
    detail = "; ".join(f"{table}: {one.detail}" for table, one in said.items())
    facts = {f"{table}.{key}": v for table, one in results.items() for key, v in one.facts.items()}
    return Check(name, passed, detail, facts=facts)


def _of_all(prints: Mapping[str, Fingerprint | None]) -> Fingerprint | None:
    """One fingerprint of all tables, whose columns are named `table.column`; None if one has none."""
    readable = {name: found for name, found in prints.items() if found is not None}
    if len(readable) < len(prints):
        return None
    digests = "".join(f"{name} {found.digest} " for name, found in readable.items())
    return Fingerprint(
        sum(found.rows for found in readable.values()),
        hashlib.sha256(digests.encode()).hexdigest()[:32],
        tuple(
            replace(column, name=f"{name}.{column.name}")
            for name, found in readable.items()
            for column in found.columns
        ),
    )


class QueryAnswers:
    """Judges answers; DuckDB is asked once for each set of right rows, in the folder `work`."""

    def __init__(self, work: Path) -> None:
        self._work = work
        self._right: dict[tuple[int, ...], tuple[Sequence[RowSource], dict[str, QueryRows]]] = {}

    def judge(
        self, answers: Mapping[str, QueryRows], tables: Mapping[str, RowSource]
    ) -> list[Check]:
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


def _compared(query: str, found: QueryRows, right: QueryRows) -> Check:
    name = f"answer_of_{query}"
    if len(found) != len(right):
        detail = f"Spark answers {len(found):,} rows, DuckDB {len(right):,}"
        return Check(name, False, detail)
    rounded = 0
    for number, (ours, theirs) in enumerate(zip(found, right, strict=True), start=1):
        for place, (mine, other) in enumerate(zip(ours, theirs, strict=True), start=1):
            if not _equal(mine, other):
                detail = f"row {number}, column {place}: Spark answers {mine}, DuckDB {other}"
                return Check(name, False, detail)
            rounded += isinstance(other, float)
    detail = f"{len(found):,} row{'' if len(found) == 1 else 's'} as DuckDB answers"
    if rounded:
        what = "average or quotient" if rounded == 1 else "averages or quotients"
        detail += f"; {rounded:,} {what} equal to {TOLERANCE:g}"
    return Check(name, True, detail)


def _equal(found: Any, right: Any) -> bool:
    if isinstance(right, float) and isinstance(found, float | int | Decimal):
        return abs(float(found) - right) <= TOLERANCE + RELATIVE * abs(right)
    return bool(found == right)
