"""Where words go: results to standard output, progress and messages to standard error.

Owns the two consoles and the printing of a table in the formats that commands share. NO_COLOR and
non-terminals are respected by rich itself. Must not know what is printed.
"""

from __future__ import annotations

import csv
import io
import json
import os
import sys
from collections.abc import Sequence
from enum import StrEnum
from typing import IO, Any

from rich.console import Console
from rich.table import Table


def nobody_reads(stream: IO[str] | None) -> None:
    """Send the rest of a stream nowhere: the reader of the pipe left, and the command goes on."""
    if stream is None:
        return
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, stream.fileno())
    os.close(nowhere)


class _Console(Console):
    def on_broken_pipe(self) -> None:
        nobody_reads(self.file)


stderr = _Console(stderr=True, highlight=False, soft_wrap=True)
# a pipe has no width: what is read by others is never cut
_WIDE = None if sys.stdout is not None and sys.stdout.isatty() else 200
stdout = _Console(highlight=False, soft_wrap=True, width=_WIDE)


class Format(StrEnum):
    """`--format` of commands that print a table."""

    TABLE = "table"
    JSON = "json"
    CSV = "csv"
    MD = "md"


def emit(text: str) -> None:
    """A result, as it is: no wrapping, no markup."""
    try:
        sys.stdout.write(text if text.endswith("\n") else text + "\n")
    except BrokenPipeError:
        nobody_reads(sys.stdout)
    except OSError as exc:
        nobody_reads(sys.stdout)
        raise OSError(exc.errno, exc.strerror, "standard output") from exc


def print_rows(
    columns: Sequence[str],
    rows: Sequence[Sequence[object]],
    form: Format = Format.TABLE,
    title: str = "",
) -> None:
    """Rows of cells, shape (len(rows), len(columns)), in the asked format."""
    texts = [["" if cell is None else str(cell) for cell in row] for row in rows]
    if form is Format.JSON:
        emit(json.dumps([dict(zip(columns, row, strict=True)) for row in rows], indent=2))
    elif form is Format.CSV:
        buffer = io.StringIO()
        csv.writer(buffer, lineterminator="\n").writerows([columns, *texts])
        emit(buffer.getvalue())
    elif form is Format.MD:
        lines = [columns, ["---"] * len(columns), *texts]
        emit("\n".join(f"| {' | '.join(line)} |" for line in lines))
    else:
        table = Table(title=title or None, title_justify="left", header_style="bold", box=None)
        for index, name in enumerate(columns):
            numeric = bool(texts) and all(_is_number(row[index]) for row in texts)
            table.add_column(name, justify="right" if numeric else "left", no_wrap=numeric)
        for row in texts:
            table.add_row(*row)
        stdout.print(table)


def print_json(value: Any) -> None:
    """A value as JSON, for scripts."""
    emit(json.dumps(value, indent=2, ensure_ascii=False))


def _is_number(text: str) -> bool:
    return not text or text[0].isdigit() or text[:1] in "-–×"
