"""Prints results to standard output, and progress and messages to standard error.

Text is printed unchanged: no markup, no emoji codes; control characters are made visible
(`runs.plain_text`). rich itself respects NO_COLOR and non-terminals.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from enum import StrEnum
from typing import IO, Any

from rich.console import Console
from rich.table import Table

from serde_lab.gate.output.tables import TextTable, comma_separated, markdown
from serde_lab.runs.plain_text import plain, plain_json, plain_line


def nobody_reads(stream: IO[str] | None) -> None:
    """Discard the rest of a stream, so that the command goes on after the reader of a pipe left."""
    if stream is None:
        return
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, stream.fileno())
    os.close(nowhere)


class _Console(Console):
    def on_broken_pipe(self) -> None:
        nobody_reads(self.file)


stderr = _Console(stderr=True, highlight=False, soft_wrap=True, markup=False, emoji=False)
# a pipe has no width, and what other programs read must not be cut
_WIDE = None if sys.stdout is not None and sys.stdout.isatty() else 200
stdout = _Console(highlight=False, soft_wrap=True, width=_WIDE, markup=False, emoji=False)

_GAP = 2  # blanks that rich puts between two columns


class Format(StrEnum):
    """`--format` of commands that print a table."""

    TABLE = "table"
    JSON = "json"
    CSV = "csv"
    MD = "md"


def say(text: str, style: str | None = None) -> None:
    """Print a one-line message on standard error."""
    stderr.print(plain_line(text), style=style)


def emit(text: str) -> None:
    """Print a result unchanged, line by line."""
    try:
        sys.stdout.write(text if text.endswith("\n") else text + "\n")
    except BrokenPipeError:
        nobody_reads(sys.stdout)
    except OSError as exc:
        nobody_reads(sys.stdout)
        raise OSError(exc.errno, exc.strerror, "standard output") from exc


def tell(text: str) -> None:
    """Print a result that is a sentence."""
    emit(plain_line(text))


def print_rows(
    columns: Sequence[str],
    rows: Sequence[Sequence[object]],
    form: Format = Format.TABLE,
    title: str = "",
) -> None:
    """Print rows of cells, shape (len(rows), len(columns)); a cell that is a tuple has several lines."""
    if form is Format.JSON:
        print_json([dict(zip(columns, row, strict=True)) for row in rows])
        return
    texts = [tuple(_lines(cell) for cell in row) for row in rows]
    if form is Format.TABLE:
        _print_table(columns, texts, title)
        return
    joined = tuple(tuple("\n".join(cell) for cell in row) for row in texts)
    table = TextTable(tuple(columns), joined)
    emit(comma_separated(table) if form is Format.CSV else markdown(table))


def print_json(value: Any) -> None:
    """Print a value as JSON."""
    emit(plain_json(value))


def _lines(cell: object) -> tuple[str, ...]:
    if isinstance(cell, tuple):
        return tuple(plain_line(str(line)) for line in cell if line) or ("",)
    return ("" if cell is None else plain_line(str(cell)),)


def _print_table(
    columns: Sequence[str], rows: Sequence[tuple[tuple[str, ...], ...]], title: str
) -> None:
    """Print a table within the terminal's width; text wraps, figures only if there is no other way."""
    numeric = [
        bool(rows) and all(_is_number(line) for row in rows for line in row[i])
        for i in range(len(columns))
    ]
    figures = sum(
        max(len(line) for row in [((name,),), *((row[i],) for row in rows)] for line in row[0])
        for i, name in enumerate(columns)
        if numeric[i]
    )
    least = 8 * numeric.count(False)
    room = stdout.width - _GAP * len(columns) - least >= figures
    table = Table(
        title=plain(title) or None,
        title_justify="left",
        title_style="",
        header_style="bold",
        box=None,
        pad_edge=False,
        padding=(0, _GAP, 0, 0),
    )
    for i, name in enumerate(columns):
        justify: Any = "right" if numeric[i] else "left"
        table.add_column(name, justify=justify, no_wrap=numeric[i] and room, overflow="fold")
    for row in rows:
        table.add_row(*("\n".join(cell) for cell in row))
    stdout.print(table)


def _is_number(text: str) -> bool:
    return not text or text[0].isdigit() or text[:1] in "-–×"
