"""Writes reports: a page in any format, and its figures as separate files.

Works from run directories alone, without Java, pyspark or a network.
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, NamedTuple, get_args

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from serde_lab.errors import StorageError, UsageError
from serde_lab.files import write_whole
from serde_lab.report import formats
from serde_lab.report.comparison_page import comparison_page
from serde_lab.report.history_page import history_page
from serde_lab.report.page import Cell, Figure, Page
from serde_lab.report.plots import palette
from serde_lab.report.plots.canvas import Canvas
from serde_lab.report.plots.draw import NARROW_PX, WIDE_PX, draw
from serde_lab.report.plots.palette import embedded
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
    return write_out(out, run_text(run, format))


def run_text(run: Run | Path, format: str = "html") -> str:
    return page_text(run_page(_loaded(run)), format)


def write_comparison(document: Mapping[str, Any], out: Path, format: str = "html") -> Path:
    """Write the report of a comparison or a gate from its output with `--format json`."""
    return write_out(out, page_text(comparison_page(document), format))


def write_history(document: Mapping[str, Any], out: Path, format: str = "html") -> Path:
    """Write the report of a history from its output with `--format json`."""
    return write_out(out, page_text(history_page(document), format))


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
        for suffix, content in (("svg", figure_svg(figure)), ("png", png)):
            written.append(write_out(folder / f"{figure.name}.{suffix}", content))
    return written


def figure_svg(figure: Figure) -> str:
    """The figure as one SVG element, in light colours."""
    return _svg(figure, draw(figure.drawing, WIDE_PX), figure.name, themed=False)


def _svg(figure: Figure, canvas: Canvas, name: str, themed: bool) -> str:
    source = canvas.svg(background=not themed)
    return embedded(source, name, figure.title, figure.description, canvas.tips, themed)


def _loaded(run: Run | Path) -> Run:
    return run if isinstance(run, Run) else load_run(run)


def write_out(path: Path, content: str | bytes) -> Path:
    """Write the file; returns its path. Lone surrogates in a text become escapes that JSON knows too."""
    data = content if isinstance(content, bytes) else content.encode(errors="backslashreplace")
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
