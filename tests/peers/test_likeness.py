"""The table of what is alike, as documents have it."""

from __future__ import annotations

from pathlib import Path

from serde_lab.peers.likeness import ASPECTS, as_document, as_records, in_streams

DOCUMENT = Path(__file__).parents[2] / "serde_lab" / "peers" / "LIKENESS.md"


def test_the_document_is_the_table() -> None:
    text = DOCUMENT.read_text()
    assert text == as_document()
    assert text.count("\n| ") == len(ASPECTS) + 1


def test_a_stream_has_rows_of_its_own() -> None:
    batches, streamed = as_records(), in_streams(as_records())
    services = {"table services", "reader of the input", "time on the clock"}
    others = {one["name"] for one, now in zip(batches, streamed, strict=False) if one != now}
    assert others == services
    assert [one["name"] for one in streamed[len(batches) :]] == ["warm-up"]
