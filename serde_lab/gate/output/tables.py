"""Renders a table of texts as aligned text, Markdown or CSV."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from serde_lab.runs.plain_text import plain_line

Format = Literal["table", "md", "csv", "json"]


@dataclass(frozen=True, slots=True)
class TextTable:
    """Columns, rows of the same length, and which columns are figures (right-aligned)."""

    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    figures: frozenset[str] = frozenset()


def aligned(table: TextTable) -> str:
    """Lines with columns two spaces apart."""
    lines = [[plain_line(cell) for cell in line] for line in (table.columns, *table.rows)]
    widths = [max(len(line[i]) for line in lines) for i in range(len(table.columns))]

    def padded(line: Sequence[str]) -> str:
        cells = [
            cell.rjust(width) if name in table.figures else cell.ljust(width)
            for name, cell, width in zip(table.columns, line, widths, strict=True)
        ]
        return "  ".join(cells).rstrip()

    return "\n".join(padded(line) for line in lines)


def markdown(table: TextTable) -> str:
    """A GitHub table; characters that would end a cell are escaped."""
    rule = ["---:" if name in table.figures else "---" for name in table.columns]
    lines = [table.columns, rule, *table.rows]
    return "\n".join(f"| {' | '.join(markdown_text(cell) for cell in line)} |" for line in lines)


def markdown_text(text: str) -> str:
    """Text escaped so that Markdown shows it unchanged, in a table or a list."""
    lines = (plain_line(line).translate(_ESCAPED).strip() for line in text.split("\n"))
    return _EMOJI.sub(r"\:", "<br>".join(lines))


_ESCAPED = str.maketrans({sign: f"\\{sign}" for sign in "\\|*_`<>[]"})
_EMOJI = re.compile(r":(?=[A-Za-z+][\w+\\-]*:)")


def comma_separated(table: TextTable) -> str:
    """CSV with a header and plain line feeds; control characters are shown."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(table.columns)
    writer.writerows([plain_line(cell) for cell in row] for row in table.rows)
    return text.getvalue()
