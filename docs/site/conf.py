"""Configures Sphinx, which `make docs` runs with the repository as its source folder.

Pages are the Markdown files that the repository shows anyway, at the same relative places, so links
between them need no rewriting. Only `docs/site` is written for the site: navigation, API pages and style.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path

from pydantic import BaseModel
from sphinx.application import Sphinx

HERE = Path(__file__).parent
OPTIONS = re.compile(r"<!-- options of ([\w.]+) -->")
"""In a page, stands for a table of a module's `known_options()`."""

project = "serde_lab"
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.viewcode"]

root_doc = "README"
include_patterns = [
    "README.md",
    "DEVELOPERS.md",
    "CHANGELOG.md",
    "docs/**.md",
    "scenarios/README.md",
    "results/README.md",
    "results/profile.md",
    "reports/README.md",
    "serde_lab/serde/RECORD_API.md",
    "serde_lab/peers/LIKENESS.md",
    "tests/peers/INTEROP.md",
    "tests/differential/DIFFERENTIAL.md",
    "tests/faults/FAULTS.md",
]
# hidden folders (.venv, .cache) and build hold no pages, and are large to walk through
exclude_patterns = [".*", "build", "dist", "docs/site/navigation.md"]

# headings have the anchors that GitHub gives them
myst_heading_anchors = 4
# indented blocks are commands, diagrams, TOML and Python: none is guessed to be Python
highlight_language = "none"

autodoc_member_order = "bysource"
autodoc_typehints_format = "short"
# `name` in a docstring is code, as in Markdown
default_role = "code"

html_theme = "furo"
html_title = "serde_lab"
html_static_path = ["style"]
html_css_files = ["site.css"]
html_extra_path = ["start", "../../reports/example.html"]
html_copy_source = False
html_show_copyright = False


def add_navigation(_: Sphinx, document: str, source: list[str]) -> None:
    """Append the navigation to the home page: README.md itself has none, since GitHub would print it."""
    if document == root_doc:
        source[0] += "\n" + (HERE / "navigation.md").read_text(encoding="utf-8")


def add_options(_: Sphinx, _document: str, source: list[str]) -> None:
    """Put tables of options into a page, from the code that parses them."""
    source[0] = OPTIONS.sub(lambda found: option_table(found[1]), source[0])


def option_table(module: str) -> str:
    known = import_module(module).known_options()
    rows = [f"| `{name}` | {meaning} |" for name, meaning in known.items()]
    return "\n".join(["| option | meaning |", "|---|---|", *rows])


def leave_out_keys(
    _app: Sphinx, _what: str, _name: str, found: object, *_: object
) -> tuple[str, None] | None:
    """A model of a file's table has no signature: its keys follow as attributes."""
    return ("", None) if isinstance(found, type) and issubclass(found, BaseModel) else None


def mark_indented_blocks(
    _app: Sphinx, _what: str, _name: str, _object: object, _options: object, lines: list[str]
) -> None:
    """Make indented blocks of a docstring literal: reStructuredText wants `::` before them."""
    lines[:] = literal_blocks(lines)


def literal_blocks(lines: Sequence[str]) -> list[str]:
    """`lines` with `::` before each block that is indented by four and follows an empty line."""
    found: list[str] = []
    inside = False
    for number, line in enumerate(lines):
        indented = line.startswith("    ")
        if line and not indented:
            inside = False
        elif indented and not inside and number and not lines[number - 1]:
            inside = True
            found += ["::", ""]
        found.append(line)
    return found


def setup(app: Sphinx) -> None:
    app.connect("source-read", add_navigation)
    app.connect("source-read", add_options)
    app.connect("autodoc-process-signature", leave_out_keys)
    app.connect("autodoc-process-docstring", mark_indented_blocks)
