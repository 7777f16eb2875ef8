"""Writes reports: a page in any format, and its figures as separate files.

Works from run directories alone, without Java, pyspark or a network.

Also remakes the tables that a Markdown document quotes from runs, so that no figure is typed by hand. A
quotation stands between two comments. The first one names a run directory (relative to the document), a table
of that run's report and, unless all are wanted, the keys of its columns:

    <!-- serde_lab: results/reference/smoke/20260101T000000Z arms arm,seconds,ratio -->
    <!-- serde_lab: end -->

A table whose columns were measured by older code than this version's is marked as such. A run that was made
beside other work is not quoted.
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple, get_args

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from serde_lab.analysis.drift import other_work
from serde_lab.errors import StorageError, UsageError
from serde_lab.files import write_whole
from serde_lab.report import formats
from serde_lab.report.comparison_page import comparison_page
from serde_lab.report.formats import markdown_table
from serde_lab.report.history_page import history_page
from serde_lab.report.page import Cell, Figure, Page, Table
from serde_lab.report.plots import palette
from serde_lab.report.plots.canvas import Canvas
from serde_lab.report.plots.draw import NARROW_PX, WIDE_PX, draw
from serde_lab.report.plots.palette import embedded
from serde_lab.report.run.provenance import UNKNOWN, metrics_of, older_instruments
from serde_lab.report.run.run_page import run_page
from serde_lab.runs.directory import load_run
from serde_lab.runs.model import Run
from serde_lab.runs.plain_text import plain

Format = Literal["html", "md", "csv", "json"]
FORMATS: tuple[str, ...] = get_args(Format)


def render_run(run: Run | Path, out: Path, format: str = "html") -> Path:
    """Write the report of a run (or a run directory) to the file `out`; returns `out`.

    Raises RunError if the directory is no sound run, UsageError for an unknown format.
    """
    return _write(out, _encoded(run_text(run, format)))


def run_text(run: Run | Path, format: str = "html") -> str:
    return page_text(run_page(_loaded(run)), format)


def write_comparison(document: Mapping[str, Any], out: Path, format: str = "html") -> Path:
    """Write the report of a comparison or a gate from its output with `--format json`."""
    return _write(out, _encoded(page_text(comparison_page(document), format)))


def write_history(document: Mapping[str, Any], out: Path, format: str = "html") -> Path:
    """Write the report of a history from its output with `--format json`."""
    return _write(out, _encoded(page_text(history_page(document), format)))


def render_quotations(document: Path) -> Path:
    """Remake the tables that a Markdown document quotes from runs (see `requoted`); returns its path."""
    return _write(document, _encoded(requoted(document)))


def page_text(page: Page, format: str = "html") -> str:
    """Any page in any format. Raises UsageError for an unknown format."""
    if format == "html":
        return html(page)
    if format not in FORMATS:
        raise UsageError(f"a report has no format {format!r}; known are {', '.join(FORMATS)}")
    return formats.page_text(page, format)


def figures(run: Run | Path, folder: Path) -> list[Path]:
    """Write every figure of a run's report to `folder` as <name>.svg and <name>.png, in light colours."""
    written = []
    for figure in run_page(_loaded(run)).figures():
        png = draw(figure.drawing, WIDE_PX).png()
        for suffix, data in (("svg", figure_svg(figure).encode()), ("png", png)):
            written.append(_write(folder / f"{figure.name}.{suffix}", data))
    return written


def figure_svg(figure: Figure) -> str:
    """The figure as one SVG element, in light colours."""
    return _svg(figure, draw(figure.drawing, WIDE_PX), figure.name, themed=False)


def _svg(figure: Figure, canvas: Canvas, name: str, themed: bool) -> str:
    source = canvas.svg(background=not themed)
    return embedded(source, name, figure.title, figure.description, canvas.tips, themed)


def _loaded(run: Run | Path) -> Run:
    return run if isinstance(run, Run) else load_run(run)


def _encoded(text: str) -> bytes:
    """Encode as UTF-8; lone surrogates in the data become escapes that JSON knows too."""
    return text.encode(errors="backslashreplace")


def _write(path: Path, data: bytes) -> Path:
    try:
        write_whole(path, data)
    except OSError as exc:
        raise StorageError(f"{path} cannot be written: {exc}") from exc
    return path


class PlotMarkup(NamedTuple):
    """The wide and the narrow version of one figure, ready for the page."""

    wide: Markup
    narrow: Markup


def html(page: Page) -> str:
    """The page as HTML; equal pages give equal text."""
    environment = _environment()
    style, script = (
        environment.get_template(name).render().strip() for name in ("page.css", "page.js")
    )
    return environment.get_template("page.html").render(
        page=page,
        style=Markup(style),
        script=Markup(script),
        script_hash=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
    )


def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("serde_lab.report", "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        finalize=_clean,
    )
    environment.filters["kind"] = lambda block: type(block).__name__
    environment.filters["plot"] = _plot
    environment.filters["sort_value"] = _sort_value
    environment.filters["breakable"] = _breakable
    environment.filters["coded"] = _coded
    environment.filters["paired"] = lambda row, table: list(zip(row, table.columns, strict=True))
    environment.globals["light"] = Markup(palette.variables(0))
    environment.globals["dark"] = Markup(palette.variables(1))
    return environment


def _clean(value: object) -> object:
    """Make control characters visible: escaping leaves them, but HTML must not contain them."""
    if isinstance(value, str) and not isinstance(value, Markup):
        return plain(value)
    return value


def _plot(figure: Figure) -> PlotMarkup:
    cuts = []
    for cut, width_px in (("wide", WIDE_PX), ("narrow", NARROW_PX)):
        canvas, name = draw(figure.drawing, width_px), f"plot-{figure.name}-{cut}"
        cuts.append(Markup(_svg(figure, canvas, name, themed=True)))
    return PlotMarkup(*cuts)


def _sort_value(cell: Cell) -> str:
    """The sort key of a cell, "" if its text is enough."""
    if not isinstance(cell.value, int | float):
        return ""
    value = f"{cell.value:.10g}"
    return "" if value == cell.text else value


def _breakable(name: str) -> Markup:
    """A name in which lines may break only after its separators."""
    return Markup("").join(
        Markup("{}<wbr>").format(c) if c in "_-./" else Markup("{}").format(c)
        for c in re.split(r"([_./-])", plain(name))
    )


def _coded(text: str) -> Markup:
    """A sentence, escaped, with the names in backquotes as code."""
    parts = plain(text).split("`")
    marked = [
        Markup('<code class="name">{}</code>').format(part) if i % 2 else Markup("{}").format(part)
        for i, part in enumerate(parts)
    ]
    return Markup("").join(marked)


_END = "<!-- serde_lab: end -->"
_QUOTATION = re.compile(
    r"^<!-- serde_lab: (?!end -->)(?P<asked>[^\n]*?) *-->\n(?P<body>.*?)^<!-- serde_lab: (?P<end>.*?) -->$",
    re.DOTALL | re.MULTILINE,
)


def requoted(document: Path) -> str:
    """The text of `document` with all its quotations remade.

    Raises UsageError if a quotation names no run, table or column, has no end, or quotes a run that was made
    beside other work; RunError if a run is damaged.
    """

    def remade(found: re.Match[str]) -> str:
        quotation = _asked(found, document)
        lines = [*markdown_table(quotation.table), *_mark(quotation)]
        return "\n".join([f"<!-- serde_lab: {quotation.asked} -->", *lines, _END])

    return _QUOTATION.sub(remade, _text(document))


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


def _text(document: Path) -> str:
    try:
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
