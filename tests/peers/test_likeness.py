"""The table of what is alike, as documents have it."""

from __future__ import annotations

from pathlib import Path

from serde_lab.peers.likeness import ASPECTS, as_document

DOCUMENT = Path(__file__).parents[2] / "serde_lab" / "peers" / "LIKENESS.md"


def test_the_document_is_the_table() -> None:
    text = DOCUMENT.read_text()
    assert text == as_document()
    assert text.count("\n| ") == len(ASPECTS) + 1
