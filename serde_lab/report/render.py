"""Writes reports: a page in any format, and its figures as separate files.

Works from run directories alone, without Java, pyspark or a network.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, get_args

from serde_lab.errors import StorageError, UsageError
from serde_lab.report import formats
from serde_lab.report.comparison.page import comparison_page
from serde_lab.report.history.page import history_page
from serde_lab.report.html import html
from serde_lab.report.page import Page
from serde_lab.report.plots.draw import WIDE_PX, draw
from serde_lab.report.plots.svg import embedded
from serde_lab.report.quotation import requoted
from serde_lab.report.run.page import run_page
from serde_lab.runs.directory import load_run
from serde_lab.runs.model import Run

Format = Literal["html", "md", "csv", "json"]
FORMATS: tuple[str, ...] = get_args(Format)


def render_run(run: Run | Path, out: Path, format: str = "html") -> Path:
    """Write the report of a run (or a run directory) to the file `out`; returns `out`.

    Raises RunError if the directory is no sound run, UsageError for an unknown format.
    """
    _write(out, _encoded(run_text(run, format)))
    return out


def run_text(run: Run | Path, format: str = "html") -> str:
    """The report of a run as text."""
    return page_text(run_page(_loaded(run)), format)


def render_comparison(document: Mapping[str, Any], out: Path, format: str = "html") -> Path:
    """Write the report of a comparison or a gate from its output with `--format json`."""
    _write(out, _encoded(page_text(comparison_page(document), format)))
    return out


def render_history(document: Mapping[str, Any], out: Path, format: str = "html") -> Path:
    """Write the report of a history from its output with `--format json`."""
    _write(out, _encoded(page_text(history_page(document), format)))
    return out


def render_quotations(document: Path) -> Path:
    """Remake the tables that a Markdown document quotes from runs (see `quotation`); returns its path."""
    _write(document, _encoded(requoted(document)))
    return document


def page_text(page: Page, format: str = "html") -> str:
    """Any page in any format. Raises UsageError for an unknown format."""
    if format == "html":
        return html(page)
    if format == "md":
        return formats.markdown(page)
    if format == "csv":
        return formats.csv_text(page)
    if format == "json":
        return formats.json_text(page)
    raise UsageError(f"a report has no format {format!r}; known are {', '.join(FORMATS)}")


def figures(run: Run | Path, folder: Path) -> list[Path]:
    """Write every figure of a run's report to `folder` as <name>.svg and <name>.png."""
    return page_figures(run_page(_loaded(run)), folder)


def page_figures(page: Page, folder: Path) -> list[Path]:
    """Write the figures of any page as SVG and PNG, in light colours on white."""
    written = []
    for figure in page.figures():
        canvas = draw(figure.drawing, WIDE_PX)
        svg = embedded(
            canvas.svg(background=True),
            figure.name,
            figure.title,
            figure.description,
            canvas.tips,
            themed=False,
        )
        for suffix, data in (("svg", svg.encode()), ("png", canvas.png())):
            path = folder / f"{figure.name}.{suffix}"
            _write(path, data)
            written.append(path)
    return written


def _loaded(run: Run | Path) -> Run:
    return run if isinstance(run, Run) else load_run(run)


def _encoded(text: str) -> bytes:
    """Encode as UTF-8; lone surrogates in the data become escapes that JSON knows too."""
    return text.encode(errors="backslashreplace")


def _write(path: Path, data: bytes) -> None:
    """Write in one step, so that readers never see half a report."""
    new = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        new.write_bytes(data)
        new.replace(path)
    except OSError as exc:
        raise StorageError(f"{path} cannot be written: {exc}") from exc
    finally:
        new.unlink(missing_ok=True)
