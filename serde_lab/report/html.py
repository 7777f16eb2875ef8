"""Writes a page as one self-contained HTML file, with style, script and plots inside.

The templates contain no arithmetic and escape everything. The page's own policy forbids all requests,
and all scripts but its own.
"""

from __future__ import annotations

import base64
import hashlib
import re
from typing import NamedTuple

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from serde_lab.report.page import Cell, Column, Figure, Page, Table
from serde_lab.report.plots import palette
from serde_lab.report.plots.draw import NARROW_PX, WIDE_PX, draw
from serde_lab.report.plots.svg import embedded
from serde_lab.runs.plain_text import plain


class Plot(NamedTuple):
    """The wide and the narrow version of one figure, ready for the page."""

    wide: Markup
    narrow: Markup


def html(page: Page) -> str:
    """The page as HTML; equal pages give equal text."""
    environment = _environment()
    script = _source(environment, "page.js")
    style = _source(environment, "page.css")
    return environment.get_template("page.html").render(
        page=page,
        plots={figure.name: _plot(figure) for figure in page.figures()},
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
    environment.filters["sort_value"] = _sort_value
    environment.filters["breakable"] = _breakable
    environment.filters["coded"] = _coded
    environment.filters["paired"] = _paired
    environment.globals["light"] = Markup(palette.variables(0))
    environment.globals["dark"] = Markup(palette.variables(1))
    return environment


def _clean(value: object) -> object:
    """Make control characters visible: escaping leaves them, but HTML must not contain them."""
    if isinstance(value, str) and not isinstance(value, Markup):
        return plain(value)
    return value


def _source(environment: Environment, name: str) -> str:
    """A style or script of this package, with the palette filled in."""
    return environment.get_template(name).render().strip()


def _plot(figure: Figure) -> Plot:
    cuts = []
    for cut, width_px in (("wide", WIDE_PX), ("narrow", NARROW_PX)):
        canvas = draw(figure.drawing, width_px)
        cuts.append(
            Markup(
                embedded(
                    canvas.svg(),
                    f"plot-{figure.name}-{cut}",
                    figure.title,
                    figure.description,
                    canvas.tips,
                    themed=True,
                )
            )
        )
    return Plot(*cuts)


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
        for c in _joints(plain(name))
    )


def _joints(name: str) -> list[str]:
    return re.split(r"([_./-])", name)


def _coded(text: str) -> Markup:
    """A sentence, escaped, with the names in backquotes as code."""
    parts = plain(text).split("`")
    marked = [
        Markup('<code class="name">{}</code>').format(part) if i % 2 else Markup("{}").format(part)
        for i, part in enumerate(parts)
    ]
    return Markup("").join(marked)


def _paired(row: tuple[Cell, ...], table: Table) -> list[tuple[Cell, Column]]:
    return list(zip(row, table.columns, strict=True))
