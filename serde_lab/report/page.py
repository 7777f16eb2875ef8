"""Defines a page as frozen values: sections of sentences, tables, plots and cards.

Every format (HTML, terminal, Markdown, CSV, JSON, JUnit) writes out this shape. A report has an answer; what
a command prints is a page without one. Everything is text or a number already, so writers do no arithmetic.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from serde_lab.analysis.ratios import Ratio
from serde_lab.report import notation
from serde_lab.report.plots.drawings import Drawing

Tone = Literal["", "good", "bad", "warn", "muted"]


@dataclass(frozen=True, slots=True)
class Cell:
    """A table's value: the text shown, and the number or text for sorting and JSON."""

    text: str
    value: float | str | None = None
    note: str = ""
    """A second, smaller line: a range, an option or a reason."""
    tone: Tone = ""
    header: bool = False
    """Whether the cell names its row."""


MISSING = Cell(notation.NOTHING, tone="muted")
"""Shown where there is no figure."""


def ratio_cell(ratio: Ratio | None, *, with_doubt: bool = True) -> Cell:
    """A ratio over its interval, and what it leaves undecided unless without doubt; MISSING for None."""
    if ratio is None:
        return MISSING
    return Cell(ratio.text, ratio.value, ratio.finding if with_doubt else ratio.range)


@dataclass(frozen=True, slots=True)
class Column:
    """`key` names the column in CSV and JSON, `heading` on the page; `about` explains it on demand."""

    key: str
    heading: str
    numeric: bool = True
    about: str = ""
    unit: str = ""


@dataclass(frozen=True, slots=True)
class Table:
    """`name` is unique on the page. `caption` describes the content, for screen readers too."""

    name: str
    caption: str
    columns: tuple[Column, ...]
    rows: tuple[tuple[Cell, ...], ...]
    sortable: bool = True
    folded: str = ""
    """The summary behind which the table is folded; "" if it is not folded."""


def text_columns(*keys: str) -> tuple[Column, ...]:
    """Columns of texts, whose headings are their keys."""
    return tuple(Column(key, key, numeric=False) for key in keys)


def text_table(
    name: str,
    headings: Sequence[str],
    rows: Sequence[Sequence[str]],
    numeric: frozenset[str] = frozenset(),
) -> Table:
    """A table of ready-made texts; the columns whose headings are in `numeric` are right-aligned."""
    return Table(
        name,
        "",
        tuple(Column(heading, heading, heading in numeric) for heading in headings),
        tuple(tuple(Cell(text) for text in row) for row in rows),
    )


@dataclass(frozen=True, slots=True)
class Sentence:
    """One paragraph of plain text, with names in backquotes."""

    text: str
    tone: Tone = ""


@dataclass(frozen=True, slots=True)
class Points:
    """A list of sentences, each with a short heading or ""; names are in backquotes."""

    items: tuple[tuple[str, str], ...]
    tone: Tone = ""


def warnings_or(found: Sequence[tuple[str, str]], otherwise: str) -> Points | Sentence:
    """The points as warnings; if there are none, the sentence `otherwise`."""
    return Points(tuple(found), "warn") if found else Sentence(otherwise, "good")


@dataclass(frozen=True, slots=True)
class Figure:
    """A plot with its text alternative; `table` has the same values, folded."""

    name: str
    title: str
    description: str
    drawing: Drawing
    table: Table | None = None


@dataclass(frozen=True, slots=True)
class Card:
    """A titled list of terms with their descriptions."""

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
    """Shell lines with their explanations."""

    lines: tuple[tuple[str, str], ...]


Block: TypeAlias = Sentence | Points | Table | Figure | Cards | Facts | Commands


@dataclass(frozen=True, slots=True)
class Section:
    """`name` is the anchor; `heading` also appears in the table of contents."""

    name: str
    heading: str
    blocks: tuple[Block, ...]

    @classmethod
    def of(cls, name: str, heading: str, *blocks: Block | None) -> Section:
        """The section with those of the blocks that there are."""
        return cls(name, heading, tuple(block for block in blocks if block is not None))


@dataclass(frozen=True, slots=True)
class Answer:
    """The question in its own words, the most important figure, and what it means."""

    question: str
    figure: str
    figure_about: str
    sentences: tuple[Sentence, ...]


@dataclass(frozen=True, slots=True)
class Case:
    """One test case of JUnit: its result and, unless it passed, the kind of problem with its text."""

    group: str
    name: str
    outcome: Literal["passed", "failure", "error", "skipped"]
    kind: str = ""
    message: str = ""
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Suite:
    """What JUnit shows of a page."""

    name: str
    cases: tuple[Case, ...]


@dataclass(frozen=True, slots=True)
class Page:
    """A report, or what a command prints if there is no `answer`.

    `facts` appear under the title of a report. `data` is the JSON content, in a report beside the tables.
    `csv_table` is what CSV holds in place of the first table.
    """

    kind: str
    title: str = ""
    facts: tuple[tuple[str, str], ...] = ()
    answer: Answer | None = None
    sections: tuple[Section, ...] = ()
    data: object = field(default_factory=dict)
    csv_table: Table | None = None
    suite: Suite | None = None

    def tables(self) -> tuple[Table, ...]:
        """Every table in reading order, including those behind plots."""
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


VERDICTS: dict[str, Tone] = {
    "failed": "bad",
    "wrong answer": "bad",
    "unchecked": "bad",
    "missing": "bad",
    "slower": "bad",
    "regression": "bad",
    "not comparable": "warn",
    "inconclusive": "warn",
    "insufficient": "warn",
    "undecided": "warn",
    "noise": "",
    "faster": "good",
    "passed": "",
    "same": "",
}
"""Every verdict of a comparison or a gate with its tone, the worst first."""


def verdict_tone(verdict: str) -> Tone:
    """The tone of a verdict; none for an unchanged figure or an unknown word."""
    return VERDICTS.get(verdict, "")
