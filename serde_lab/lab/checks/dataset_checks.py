"""Checks a cell that wrote several tables, and its answers to queries.

Every check of a table is made for each table, and counts under its one name: it passes if it passes for all
of them, and otherwise names the tables that are wrong.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from serde_lab.lab.cells.cell import CellResult
from serde_lab.lab.cells.table_cells import DATASETS
from serde_lab.lab.checks.cell_checks import CellChecks
from serde_lab.lab.checks.query_answers import QueryAnswers
from serde_lab.lab.inputs.prepared import PreparedTable
from serde_lab.scenario.model import Arm
from serde_lab.verify.contents import Fingerprint
from serde_lab.verify.table_checks import CheckResult, TableVerdict


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


def _under_one_name(found: Mapping[str, Sequence[CheckResult]]) -> list[CheckResult]:
    """The checks of all tables, those with the same name as one."""
    named: dict[str, dict[str, CheckResult]] = {}
    for table, results in found.items():
        for result in results:
            named.setdefault(result.name, {})[table] = result
    return [_as_one(name, of_tables) for name, of_tables in named.items()]


def _as_one(name: str, results: Mapping[str, CheckResult]) -> CheckResult:
    wrong = {table: one for table, one in results.items() if one.failed}
    not_made = {table: one for table, one in results.items() if one.passed is None}
    passed = False if wrong else (None if not_made else True)
    said = wrong or not_made or results
    detail = "; ".join(f"{table}: {one.detail}" for table, one in said.items())
    facts = {f"{table}.{key}": v for table, one in results.items() for key, v in one.facts.items()}
    return CheckResult(name, passed, detail, facts)


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
