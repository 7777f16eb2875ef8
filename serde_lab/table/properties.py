"""Parsing and formatting of Java `.properties` text, and the table checksum.

`hoodie.properties` and partition metadata files are in this format. Escaping follows java.util.Properties.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Mapping

_UNESCAPED = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_ESCAPED = {"\t": "\\t", "\n": "\\n", "\r": "\\r", "\f": "\\f", "\\": "\\\\"}
_TOKEN = re.compile(r"\\u([0-9a-fA-F]{4})|\\(.)", re.DOTALL)
_KEY = re.compile(r"((?:\\.|[^\\=:\s])*)[ \t\f]*(?:[=:][ \t\f]*)?(.*)", re.DOTALL)


def parse_properties(text: str) -> dict[str, str]:
    """The key-values of a `.properties` text; the last one of a repeated key counts.

    Source: java.util.Properties#load (comments, continuation lines, escapes, three separators).
    """
    found: dict[str, str] = {}
    for line in _logical_lines(text):
        match = _KEY.match(line)
        if match is not None and match[1]:
            found[_unescape(match[1])] = _unescape(match[2])
    return found


def is_cut(content: bytes) -> bool:
    """Whether the end of a `.properties` file is missing: its last line has no end."""
    return not content.endswith((b"\n", b"\r"))


def format_properties(properties: Mapping[str, str], comments: tuple[str, ...] = ()) -> str:
    """The text of `properties`, in their order, after `comments` (one `#` line each).

    Source: java.util.Properties#store, whose escapes Hudi's readers expect.
    """
    lines = [f"#{comment}" for comment in comments]
    for key, value in properties.items():
        lead = "\\ " if value.startswith(" ") else ""
        rest = value[1:] if lead else value
        lines.append(f"{_escape(key, ' :=#!')}={lead}{_escape(rest, ':=#!')}")
    return "\n".join(lines) + "\n"


def table_checksum(name: str, database: str = "") -> int:
    """`hoodie.table.checksum`: CRC-32 of `<database>.<table>`; the dot stays without a database."""
    return zlib.crc32(f"{database}.{name}".encode())


def _logical_lines(text: str) -> list[str]:
    lines: list[str] = []
    pending: str | None = None
    for raw in re.split(r"\r\n|\n|\r", text):
        line = raw.lstrip(" \t\f")
        if pending is None and (not line or line[0] in "#!"):
            continue
        line = (pending or "") + line
        backslashes = len(line) - len(line.rstrip("\\"))
        if backslashes % 2:
            pending = line[:-1]
        else:
            lines.append(line)
            pending = None
    if pending is not None:
        lines.append(pending)
    return lines


def _unescape(text: str) -> str:
    def one(match: re.Match[str]) -> str:
        if match[1] is not None:
            return chr(int(match[1], 16))
        return _UNESCAPED.get(match[2], match[2])

    # a character beyond U+FFFF is stored as two escapes, its surrogates
    plain = _TOKEN.sub(one, text)
    return plain.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _escape(text: str, special: str) -> str:
    escaped = []
    for char in text:
        if char in _ESCAPED:
            escaped.append(_ESCAPED[char])
        elif char in special:
            escaped.append("\\" + char)
        elif " " <= char <= "~":
            escaped.append(char)
        else:
            units = char.encode("utf-16-be")
            escaped += [f"\\u{units[i : i + 2].hex().upper()}" for i in range(0, len(units), 2)]
    return "".join(escaped)


def fields_of(text: str) -> tuple[str, ...]:
    """The names in a comma-separated property."""
    return tuple(part for part in (piece.strip() for piece in text.split(",")) if part)
