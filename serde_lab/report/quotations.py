"""Remakes the tables that a Markdown document quotes from runs, so that no figure is typed by hand.

A quotation stands between two comments. The first one names a run directory (relative to the document), a
table of that run's report and, unless all are wanted, the keys of its columns:

    <!-- serde_lab: results/reference/smoke/20260101T000000Z arms arm,seconds,ratio -->
    <!-- serde_lab: end -->

A table whose columns were measured by older code than this version's is marked as such. A run that was made
beside other work is not quoted.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from stat import S_ISREG

from serde_lab.analysis.drift import other_work
from serde_lab.errors import UsageError
from serde_lab.files import alone_in
from serde_lab.report.formats import markdown_table
from serde_lab.report.page import Table
from serde_lab.report.render import write_out
from serde_lab.report.run.provenance import UNKNOWN, metrics_of, older_instruments
from serde_lab.report.run.run_page import run_page
from serde_lab.runs.directory import load_run
from serde_lab.runs.model import Run

_END = "<!-- serde_lab: end -->"
_QUOTATION = re.compile(
    r"^<!-- serde_lab: (?!end -->)(?P<asked>[^\n]*?) *-->\n(?P<body>.*?)^<!-- serde_lab: (?P<end>.*?) -->$",
    re.DOTALL | re.MULTILINE,
)


def render_quotations(document: Path) -> Path:
    """Remake the document's quotations (see `requoted`); returns its path."""
    with alone_in(document.parent):
        return write_out(document, requoted(document))


def quote_instead(document: Path, old: str, new: str) -> None:
    """Have a document name the run `new` wherever it names `old`, and remake the tables of that run alone.

    Both happen in one step: a name never stands above the figures of another run. Raises what `requoted`
    raises; the document then stays as it is.
    """
    with alone_in(document.parent):
        text = _text(document)
        if old in text:
            write_out(document, _requoted(text.replace(old, new), document, new))


def requoted(document: Path) -> str:
    """The text of `document` with all its quotations remade.

    Raises UsageError if a quotation names no run, table or column, has no end, or quotes a run that was made
    beside other work; RunError if a run is damaged.
    """
    return _requoted(_text(document), document)


def _requoted(text: str, document: Path, run: str = "") -> str:
    """The text with its quotations remade, or those alone that name `run`."""

    def remade(found: re.Match[str]) -> str:
        if run not in found["asked"]:
            return found[0]
        quotation = _asked(found, document)
        lines = [*markdown_table(quotation.table), *_mark(quotation)]
        return "\n".join([f"<!-- serde_lab: {quotation.asked} -->", *lines, _END])

    return _QUOTATION.sub(remade, text)


def quotations(document: Path) -> list[tuple[Path, tuple[str, ...]]]:
    """The run directory of each quotation in a document, and the metrics that its columns show.

    Raises what `requoted` raises, except that any run may be quoted.
    """
    found = (
        _asked(one, document, of_quiet_run=False) for one in _QUOTATION.finditer(_text(document))
    )
    return [(one.run.path, metrics_of(one.table)) for one in found]


@dataclass(frozen=True, slots=True)
class _Quotation:
    asked: str
    run: Run
    table: Table


_MOST_BYTES = 16 << 20


def _text(document: Path) -> str:
    try:
        found = document.stat()
        if not S_ISREG(found.st_mode) or found.st_size > _MOST_BYTES:  # a device has no end
            most = f"a file of at most {_MOST_BYTES >> 20} MiB"
            raise UsageError(f"{document} cannot be read: expected {most}")
        return document.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as exc:
        raise UsageError(f"{document} cannot be read: {exc}") from exc


def _asked(found: re.Match[str], document: Path, *, of_quiet_run: bool = True) -> _Quotation:
    """What a quotation asks for; raises UsageError, also for a run beside other work if `of_quiet_run`."""
    asked = found["asked"].split()
    if found["end"] != "end" or len(asked) not in (2, 3):
        raise UsageError(
            f"{document}: the quotation {found['asked']!r} needs a run, a table, perhaps columns,"
            f" and then {_END}"
        )
    run = load_run(document.parent / asked[0])
    disturbed = other_work(run) if of_quiet_run else ()
    if disturbed:
        raise UsageError(
            f"{document}: {asked[0]} cannot be quoted, since it was made beside other work:"
            f" {'; '.join(disturbed)}"
        )
    tables = {table.name: table for table in run_page(run).tables()}
    if asked[1] not in tables:
        raise UsageError(
            f"{document}: {asked[0]} has no table {asked[1]!r}; known are {', '.join(tables)}"
        )
    table = tables[asked[1]]
    if len(asked) == 3:
        table = _chosen(table, asked[2].split(","), document)
    return _Quotation(" ".join(asked), run, table)


def _mark(quotation: _Quotation) -> tuple[str, ...]:
    """The lines below a table that older code measured; none if it is fresh."""
    older = older_instruments(quotation.run.header, metrics_of(quotation.table))
    if older == (UNKNOWN,):
        return ("", "Older measuring code.")
    return ("", f"Older measuring code: {', '.join(older)}.") if older else ()


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
