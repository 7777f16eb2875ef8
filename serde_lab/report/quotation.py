"""Remakes the tables that a Markdown document quotes from runs, so that no figure is typed by hand.

A quotation stands between two comments. The first one names a run directory (relative to the
document), a table of that run's report and, unless all are wanted, the keys of its columns:

    <!-- serde_lab: results/reference/smoke/20260101T000000Z arms arm,seconds,ratio -->
    <!-- serde_lab: end -->
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from serde_lab.errors import UsageError
from serde_lab.report.formats import markdown_table
from serde_lab.report.page import Table
from serde_lab.report.run.run_page import run_page
from serde_lab.runs.directory import load_run

_END = "<!-- serde_lab: end -->"
_QUOTATION = re.compile(
    r"^<!-- serde_lab: (?!end -->)(?P<asked>[^\n]*?) *-->\n(?P<body>.*?)^<!-- serde_lab: (?P<end>.*?) -->$",
    re.DOTALL | re.MULTILINE,
)


def requoted(document: Path) -> str:
    """The text of `document` with all its quotations remade.

    Raises UsageError if a quotation names no run, table or column or has no end, RunError if a run is
    damaged.
    """
    try:
        text = document.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as exc:
        raise UsageError(f"{document} cannot be read: {exc}") from exc
    return _QUOTATION.sub(lambda found: _remade(found, document), text)


def _remade(found: re.Match[str], document: Path) -> str:
    asked = found["asked"].split()
    if found["end"] != "end" or len(asked) not in (2, 3):
        raise UsageError(
            f"{document}: the quotation {found['asked']!r} needs a run, a table, perhaps columns,"
            f" and then {_END}"
        )
    page = run_page(load_run(document.parent / asked[0]))
    tables = {table.name: table for table in page.tables()}
    if asked[1] not in tables:
        raise UsageError(
            f"{document}: {asked[0]} has no table {asked[1]!r}; known are {', '.join(tables)}"
        )
    table = tables[asked[1]]
    if len(asked) == 3:
        table = _chosen(table, asked[2].split(","), document)
    lines = "\n".join(markdown_table(table))
    return f"<!-- serde_lab: {' '.join(asked)} -->\n{lines}\n{_END}"


def _chosen(table: Table, keys: Sequence[str], document: Path) -> Table:
    """The table with only these columns, in this order, without rows that have no values in them."""
    places = {column.key: i for i, column in enumerate(table.columns)}
    for key in keys:
        if key not in places:
            raise UsageError(
                f"{document}: table {table.name!r} has no column {key!r}; known are {', '.join(places)}"
            )
    kept = [places[key] for key in keys]
    columns = tuple(table.columns[i] for i in kept)
    rows = (tuple(row[i] for i in kept) for row in table.rows)
    said = tuple(
        row for row in rows if any(cell.value is not None for cell in row if not cell.header)
    )
    return Table(table.name, table.caption, columns, said)
