"""Compares the answers of timed reads with what they must be.

The oracle answers a snapshot read from all writes before it, and an incremental read from the writes in its
range alone, as if nothing had been stored before: a reader merges log records of the range with each other
only, so that a late row is a change although a stored row outdoes it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from serde_lab.lab.cells.cell import CellResult, ReadAnswer
from serde_lab.lab.inputs.prepared import CommitInput, PreparedInputs
from serde_lab.records.operation import TABLE_OPERATIONS, TableOperation
from serde_lab.runs.model import Check
from serde_lab.scenario.model import Scenario
from serde_lab.verify.oracle import HistoryCommit, solve
from serde_lab.verify.readers import PlainParquet
from serde_lab.verify.table_checks import Expected, check_contents
from serde_lab.verify.table_rules import TableRules

READS_MATCH_ORACLE = "reads_match_oracle"


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

    def judge(self, rules: TableRules, result: CellResult) -> list[Check]:
        """One check of all reads of a cell; none if it had none."""
        if not result.reads:
            return []
        wrong = [words for read in result.reads if (words := self._problem(rules, read))]
        if wrong:
            return [Check(READS_MATCH_ORACLE, False, "; ".join(wrong))]
        rows = ", ".join(f"{read.timed.rows:,}" for read in result.reads)
        return [Check(READS_MATCH_ORACLE, True, f"{len(result.reads)} reads of {rows} rows")]

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
