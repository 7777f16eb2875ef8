"""What the documents point to exists: files and headings by links, paths and dotted names of the code."""

from __future__ import annotations

import re
from importlib import import_module
from pathlib import Path

import pytest

from serde_lab.pipeline.options.write import known_options
from serde_lab.streams.options import known_options as options_of_streams

ROOT = Path(__file__).parents[1]
DOCUMENTS = sorted(
    path
    for pattern in ("*.md", "docs/**/*.md", "[!.]*/README.md", "serde_lab/**/*.md", "tests/*/*.md")
    for path in ROOT.glob(pattern)
)
LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)\)")
ANOTHER_PLACE = re.compile(r"[a-z]+:")
"""A link with a scheme (https:, mailto:) leads out of the repository."""
PATH = re.compile(r"`((?:serde_lab|tests|docs|scenarios|tpch)/[\w./]+)`")
"""A path of the repository, given as code."""
NAME = re.compile(r"`((?:serde_lab|tpch)(?:\.\w+)+)")
"""A module of the packages, or something in it, given as code."""
OF_THE_PAST = ("CHANGELOG.md", "DIFFERENTIAL.md", "INTEROP.md", "FAULTS.md")
"""Documents about the code as it was when they were written."""


def prose(text: str) -> str:
    """The text without code: fenced and indented blocks, and code in a line."""
    text = re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL)
    text = re.sub(r"^ {4}.*$", "", text, flags=re.MULTILINE)
    return re.sub(r"`[^`\n]*`", "", text)


def anchors(text: str) -> set[str]:
    """The anchors that GitHub, and the documentation site, give the headings of a page."""
    found: dict[str, int] = {}
    for heading in re.findall(r"^#{1,6} (.+)$", text, flags=re.MULTILINE):
        words = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading)
        anchor = re.sub(r"[^\w\- ]", "", words.strip().lower()).replace(" ", "-")
        count = found.get(anchor, 0)
        found[anchor] = count + 1
        if count:
            found[f"{anchor}-{count}"] = 1
    return set(found)


def broken_links(document: Path) -> list[str]:
    """The links of a document that lead nowhere, as they stand in it."""
    text = document.read_text(encoding="utf-8")
    broken = []
    for link in LINK.findall(prose(text)):
        name, _, anchor = link.partition("#")
        target = document.parent / name if name else document
        if ANOTHER_PLACE.match(link):
            continue
        if not target.exists() or (anchor and anchor not in anchors(target.read_text("utf-8"))):
            broken.append(link)
    return broken


def test_every_document_is_looked_at() -> None:
    names = {str(path.relative_to(ROOT)) for path in DOCUMENTS}
    assert {"README.md", "DEVELOPERS.md", "docs/results.md", "scenarios/README.md"} <= names


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_link_leads_somewhere(document: Path) -> None:
    assert broken_links(document) == []


def is_there(name: str) -> bool:
    """Whether a dotted name is a module, or an attribute of one."""
    module, attributes = name, list[str]()
    while module:
        try:
            found = import_module(module)
        except ModuleNotFoundError:
            module, _, attribute = module.rpartition(".")
            attributes.insert(0, attribute)
            continue
        for attribute in attributes:
            found = getattr(found, attribute, None)
        return found is not None
    return False


def test_every_path_and_name_is_there() -> None:
    missing = []
    for document in DOCUMENTS:
        if document.name in OF_THE_PAST:
            continue
        text = document.read_text(encoding="utf-8")
        missing += [path for path in PATH.findall(text) if not (ROOT / path).exists()]
        names = set(NAME.findall(text)) - known_options().keys() - options_of_streams().keys()
        missing += [name for name in names if not is_there(name)]
    assert missing == []


def test_a_missing_name_is_found() -> None:
    assert is_there("serde_lab.serde.conformance.Conformance")
    assert not is_there("serde_lab.serde.no_such_module.cut")
    assert not is_there("serde_lab.serde.framing.no_such_function")


def test_a_broken_link_is_found(tmp_path: Path) -> None:
    (tmp_path / "other.md").write_text("# A `heading`: of 2 words\n\n# Again\n\n# Again\n")
    page = tmp_path / "page.md"
    page.write_text(
        "# Here\n\n[a](other.md#a-heading-of-2-words) [b](#here) [c](other.md#again-1) `[d](e)`\n"
        "[f](https://example.org/nothing)\n\n    [g](code.md)\n\n"
        "[h](missing.md) [i](other.md#nowhere) [j](#nowhere)\n"
    )
    assert broken_links(page) == ["missing.md", "other.md#nowhere", "#nowhere"]


def test_the_readme_is_read_in_five_minutes() -> None:
    assert len((ROOT / "README.md").read_text(encoding="utf-8")) <= 10_000
