"""A table of texts as aligned text, Markdown or CSV. Knows no comparison."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

Format = Literal["table", "md", "csv", "json"]


@dataclass(frozen=True, slots=True)
class TextTable:
    """Columns, rows of the same length, and which columns are figures (aligned to the right)."""

    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    figures: frozenset[str] = frozenset()


def aligned(table: TextTable) -> str:
    """Lines with columns two spaces apart."""
    lines = [table.columns, *table.rows]
    widths = [max(len(line[i]) for line in lines) for i in range(len(table.columns))]

    def padded(line: Sequence[str]) -> str:
        cells = [
            cell.rjust(width) if name in table.figures else cell.ljust(width)
            for name, cell, width in zip(table.columns, line, widths, strict=True)
        ]
        return "  ".join(cells).rstrip()

    return "\n".join(padded(line) for line in lines)


def markdown(table: TextTable) -> str:
    """A GitHub table; what would end a cell is escaped."""
    rule = ["---:" if name in table.figures else "---" for name in table.columns]
    lines = [table.columns, rule, *table.rows]
    return "\n".join(f"| {' | '.join(markdown_text(cell) for cell in line)} |" for line in lines)


def markdown_text(text: str) -> str:
    """Text that Markdown shows as it is, in a table or a list."""
    for sign in ("\\", "|", "*", "_", "`", "<", ">", "[", "]"):
        text = text.replace(sign, f"\\{sign}")
    return " ".join(printable(text).split())


def printable(text: str) -> str:
    """Text without control characters, which data may hold and a terminal would obey."""
    return "".join(sign if sign == "\n" or sign.isprintable() else "\ufffd" for sign in text)


def comma_separated(table: TextTable) -> str:
    """CSV with a header and plain line feeds."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(table.columns)
    writer.writerows(table.rows)
    return text.getvalue()
