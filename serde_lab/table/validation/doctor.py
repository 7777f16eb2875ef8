"""The doctor: runs every check in turn, on a table that may be damaged in any way. Read-only."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from serde_lab.errors import LabError
from serde_lab.table.config import PROPERTIES_PATH
from serde_lab.table.files.base_file import BaseFileReader, data_schema
from serde_lab.table.storage.storage import Storage
from serde_lab.table.table import HoodieTable
from serde_lab.table.validation.data_checks import RowCheck, check_contents
from serde_lab.table.validation.file_checks import check_files
from serde_lab.table.validation.finding import Kind, Severity, TableFinding
from serde_lab.table.validation.inspection import Inspection
from serde_lab.table.validation.metadata_checks import check_properties, check_timeline

OWN_READER = "serde_lab"


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """The doctor's findings for one table. `rows`: row counts of those readers that were asked and could
    read."""

    table: str
    deep: bool
    findings: tuple[TableFinding, ...]
    rows: Mapping[str, int]

    @property
    def rows_at_stake(self) -> bool:
        """Whether any finding means that rows could be lost or wrong: exit status 4."""
        return any(f.severity is Severity.ROWS for f in self.findings)

    def to_dict(self) -> dict[str, Any]:
        return {
            "table": self.table,
            "deep": self.deep,
            "sound": not self.rows_at_stake,
            "rows": dict(self.rows),
            "findings": [finding.to_dict() for finding in self.findings],
        }


def validate_table(
    storage: Storage,
    deep: bool = False,
    readers: Mapping[str, Callable[[str], int]] | None = None,
) -> Diagnosis:
    """Check a table of version 6, 8 or 9 of any writer. `deep` reads every row.

    `readers`: other readers by name; each counts the rows of the table at a URL. Raises StorageError if the
    storage itself refuses.
    """
    table = Inspection.of(storage)
    if table is None:
        nothing = Kind.NOT_A_TABLE.at(storage.url, f"{PROPERTIES_PATH} is missing")
        return Diagnosis(storage.url, deep, (nothing,), {})
    findings = [
        *check_properties(table),
        *check_timeline(table),
        *check_files(table),
        *check_contents(table, deep),
    ]
    rows: dict[str, int] = {}
    if table.refusal is not None and not any(f.severity is Severity.ROWS for f in findings):
        findings.append(Kind.UNSUPPORTED_TABLE.at(PROPERTIES_PATH, table.refusal))
    schema = _schema(table)
    if deep and schema is not None:
        check = RowCheck(table, schema)
        findings += check.check()
        if not any(f.kind is Kind.ROWS_UNREADABLE for f in findings):
            rows[OWN_READER] = check.rows
    findings += _ask(storage, readers or {}, rows)
    order = list(Severity)
    findings.sort(key=lambda f: (order.index(f.severity), f.name, f.where))
    return Diagnosis(storage.url, deep, tuple(findings), rows)


def _schema(table: Inspection) -> pa.Schema | None:
    """The table's data columns, from its commits or else from the newest readable base file."""
    if table.config is None or table.view is None:
        return None
    try:
        return HoodieTable(table.storage, table.config).data_schema()
    except LabError:
        pass
    for base in sorted(table.view.latest_base_files(), reverse=True):
        try:
            return data_schema(BaseFileReader(table.storage, base.path).schema)
        except LabError:
            continue
    return None


def _ask(
    storage: Storage, readers: Mapping[str, Callable[[str], int]], rows: dict[str, int]
) -> list[TableFinding]:
    """Let other readers count the rows; adds to `rows`."""
    findings = []
    for name, count in readers.items():
        try:
            rows[name] = count(storage.url)
        except LabError as exc:
            findings.append(Kind.ROWS_UNREADABLE.at(name, exc.message))
    if len(set(rows.values())) > 1:
        counted = ", ".join(f"{name} {number}" for name, number in rows.items())
        findings.append(Kind.READERS_DISAGREE.at(".", f"rows: {counted}"))
    return findings
