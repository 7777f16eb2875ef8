"""Escapes characters in text from files, data, titles and errors that could steer a terminal or a page.

A control character, a bidirectional override or a lone surrogate becomes its escape, such as `\\x1b` or
`\\u202e`. Every output of the lab passes through here.
"""

from __future__ import annotations

import json
import math
import re
import unicodedata

_SIGN = re.compile(r"[^\x20-\x7e]")
_SIGN_BUT_LINE_FEED = re.compile(r"[^\x0a\x20-\x7e]")


def plain(text: str) -> str:
    """`text` with every invisible character except line feeds escaped."""
    return text if text.isprintable() else _SIGN_BUT_LINE_FEED.sub(_shown, text)


def plain_line(text: str) -> str:
    """The same on one line: a line feed becomes `\\n`."""
    return text if text.isprintable() else _SIGN.sub(_shown, text)


def plain_json(value: object) -> str:
    """JSON that reads back as `value`, with the characters escaped that `plain` escapes.

    JSON has no numbers that are not finite: they become null.
    """
    text = json.dumps(_finite(value), indent=2, ensure_ascii=False, allow_nan=False)
    return text if text.isprintable() else _SIGN_BUT_LINE_FEED.sub(_json_escape, text)


def _finite(value: object) -> object:
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, dict):
        return {key: _finite(one) for key, one in value.items()}
    return [_finite(one) for one in value] if isinstance(value, list | tuple) else value


def _shown(found: re.Match[str]) -> str:
    sign = found[0]
    return sign if _is_plain(sign) else sign.encode("unicode_escape").decode("ascii")


def _json_escape(found: re.Match[str]) -> str:
    sign = found[0]
    return sign if _is_plain(sign) else json.dumps(sign)[1:-1]


def _is_plain(sign: str) -> bool:
    """Whether a character is visible; blanks of every width count as visible."""
    return sign.isprintable() or unicodedata.category(sign) == "Zs"
