"""Text from outside can steer neither a terminal nor a page."""

from __future__ import annotations

import json
import unicodedata
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from serde_lab.runs.plain_text import plain, plain_json, plain_line

ANY = st.text(st.characters(codec=None), max_size=40)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("größer 数 😀", "größer 数 😀"),
        ("a\u00a0b\u2009c", "a\u00a0b\u2009c"),
        ("\x1b[31mred\x9b0m", "\\x1b[31mred\\x9b0m"),
        ("\u202eevil\u2066", "\\u202eevil\\u2066"),
        ("two\nlines\ttab\r", "two\\nlines\\ttab\\r"),
        ("half \ud800", "half \\ud800"),
        (":x: [/b] [red]", ":x: [/b] [red]"),
    ],
)
def test_what_cannot_be_seen_is_shown(text: str, shown: str) -> None:
    assert plain_line(text) == shown
    assert plain(text) == shown.replace("\\n", "\n")


@given(ANY)
def test_plain_text_can_be_printed_and_stand_in_xml(text: str) -> None:
    shown = plain_line(text)
    assert not {unicodedata.category(sign) for sign in shown} & {"Cc", "Cf", "Cs", "Zl", "Zp"}
    element = ElementTree.Element("t")
    element.text = plain(text)
    assert ElementTree.fromstring(ElementTree.tostring(element)).text == (element.text or None)


@given(ANY)
def test_json_reads_back_what_was_written(text: str) -> None:
    shown = plain_json({text: [text]})
    assert json.loads(shown) == {text: [text]}
    assert all(line == plain_line(line) for line in shown.splitlines())


def test_json_has_null_for_what_is_not_finite() -> None:
    found = plain_json({"k": [float("inf"), (float("-inf"), 1.5)], "n": float("nan")})
    assert json.loads(found) == {"k": [None, [None, 1.5]], "n": None}
