"""`.properties` text as Java writes and reads it, and the checksum of tables that Hudi made."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from serde_lab.table.properties import format_properties, parse_properties, table_checksum


@given(
    st.dictionaries(
        st.text(st.characters(exclude_categories=["Cs"]), min_size=1),
        st.text(st.characters(exclude_categories=["Cs"])),
    )
)
def test_whatever_is_written_is_read_again(properties: dict[str, str]) -> None:
    assert parse_properties(format_properties(properties, ("a comment",))) == properties


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("# a comment\n! another\n\na=1", {"a": "1"}),
        ("a:1\nb 2\nc   =   3", {"a": "1", "b": "2", "c": "3"}),
        ("empty=\nbare", {"empty": "", "bare": ""}),
        ("long=one \\\n    two", {"long": "one two"}),
        ("a=x\\:y\\=z\\#\\!\\\\", {"a": "x:y=z#!\\"}),
        ("a=http://h/p=q", {"a": "http://h/p=q"}),
        ("k\\ ey=\\u00e9\\uD83D\\uDE00\\t", {"k ey": "é😀\t"}),
        ("a=1\r\na=2\r\n", {"a": "2"}),
    ],
)
def test_what_java_reads(text: str, expected: dict[str, str]) -> None:
    assert parse_properties(text) == expected


def test_what_java_writes() -> None:
    text = format_properties({"a b": " x:y=z", "é": "#!"})
    assert text == "a\\ b=\\ x\\:y\\=z\n\\u00E9=\\#\\!\n"


def test_checksums_of_tables_that_hudi_made() -> None:
    assert table_checksum("v6_complexkeygen_hivestyle", "default") == 281415413
    assert table_checksum("t") == 498511606
