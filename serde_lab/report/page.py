"""What a report page consists of: sections of sentences, tables, plots and cards, as frozen values.

Owns the shape that every format (HTML, Markdown, CSV, JSON) writes out, for a run, a comparison or a
history alike. Everything is text or a number by now: whoever writes it out does no arithmetic. Must
not know runs, HTML or matplotlib.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from serde_lab.report.plots.drawings import Drawing

Tone = Literal["", "good", "bad", "warn", "muted"]


@dataclass(frozen=True, slots=True)
class Cell:
    """One value of a table: as shown, and as the number or text that sorts and that JSON carries."""

    text: str
    value: float | str | None = None
    note: str = ""
    """A second, smaller line: a range, an option, a reason."""
    tone: Tone = ""
    header: bool = False
    """Whether it names its row."""


@dataclass(frozen=True, slots=True)
class Column:
    """`key` names it in CSV and JSON, `heading` on the page, `about` explains it on demand."""

    key: str
    heading: str
    numeric: bool = True
    about: str = ""
    unit: str = ""


@dataclass(frozen=True, slots=True)
class Table:
    """`name` is unique on the page. `caption` says what it holds, for those who only hear it."""

    name: str
    caption: str
    columns: tuple[Column, ...]
    rows: tuple[tuple[Cell, ...], ...]
    sortable: bool = True
    folded: str = ""
    """The summary behind which the table is folded away; "" shows it."""


@dataclass(frozen=True, slots=True)
class Sentence:
    """One paragraph of plain text; names stand in backquotes."""

    text: str
    tone: Tone = ""


@dataclass(frozen=True, slots=True)
class Points:
    """A list of sentences, each with a short heading; names stand in backquotes."""

    items: tuple[tuple[str, str], ...]
    tone: Tone = ""


@dataclass(frozen=True, slots=True)
class Figure:
    """A plot with its text alternative; `table` holds the same values, folded."""

    name: str
    title: str
    description: str
    drawing: Drawing
    table: Table | None = None


@dataclass(frozen=True, slots=True)
class Card:
    """A titled list of terms and what is said of them."""

    title: str
    facts: tuple[tuple[str, str], ...]
    note: str = ""


@dataclass(frozen=True, slots=True)
class Cards:
    cards: tuple[Card, ...]


@dataclass(frozen=True, slots=True)
class Facts:
    """Keys and values; folded behind `folded` if that is not empty."""

    facts: tuple[tuple[str, str], ...]
    folded: str = ""


@dataclass(frozen=True, slots=True)
class Commands:
    """Shell lines, each with what it does."""

    lines: tuple[tuple[str, str], ...]


Block: TypeAlias = Sentence | Points | Table | Figure | Cards | Facts | Commands


@dataclass(frozen=True, slots=True)
class Section:
    """`name` is the anchor; `heading` stands in the table of contents too."""

    name: str
    heading: str
    blocks: tuple[Block, ...]


@dataclass(frozen=True, slots=True)
class Answer:
    """The question in its own words, the one figure that matters, and what it says."""

    question: str
    figure: str
    figure_about: str
    sentences: tuple[Sentence, ...]


@dataclass(frozen=True, slots=True)
class Page:
    """A whole report. `facts` stand under the title; `data` is what JSON carries beside the tables."""

    kind: Literal["run", "comparison", "history"]
    title: str
    facts: tuple[tuple[str, str], ...]
    answer: Answer
    sections: tuple[Section, ...]
    data: Mapping[str, object] = field(default_factory=dict)

    def tables(self) -> tuple[Table, ...]:
        """Every table in reading order, those behind plots too."""
        found = []
        for section in self.sections:
            for block in section.blocks:
                if isinstance(block, Table):
                    found.append(block)
                elif isinstance(block, Figure) and block.table is not None:
                    found.append(block.table)
        return tuple(found)

    def figures(self) -> tuple[Figure, ...]:
        """Every plot in reading order."""
        return tuple(
            block for s in self.sections for block in s.blocks if isinstance(block, Figure)
        )
