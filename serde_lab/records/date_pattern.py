"""Writes local times as text and reads them back by Joda-Time patterns, vectorised.

Hudi's TimestampBasedKeyGenerator reads and writes dates by such patterns. Source: Joda-Time's
DateTimeFormat.

Letters for writing: y Y (year), x (ISO week year), M (month; its name from three letters on), w (ISO
week), d D (day of month, of year), e E (day of week, as number, as name), a, H K h k, m, s, S, and text
between them, quoted or not. Letters for reading: y M d H h a m s S Z. Names are English.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from serde_lab.errors import DataError, OptionError

Milliseconds = npt.NDArray[np.int64]

_MONTHS = ["January", "February", "March", "April", "May", "June", "July", "August"]
_MONTHS += ["September", "October", "November", "December"]
_DAYS = ["Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"]
_HALVES = ["AM", "PM"]
_DAY_MS = 86_400_000
# the smallest difference in time that a letter can show; a day for letters not listed here
_STEPS_MS = {"S": 1, "s": 1000, "m": 60_000} | dict.fromkeys("HKhk", 3_600_000) | {"a": 43_200_000}
_FIRST_MS = -62_135_596_800_000  # the year 1
LAST_MS = 253_402_300_799_999  # the end of the year 9999

_READ = "yMdHhamsSZ"
_WRITTEN = "yYxMwdDeEaHKhkmsS"


@dataclass(frozen=True, slots=True)
class Token:
    """A letter repeated `width` times; or, if `letter` is "", the text between letters."""

    letter: str
    width: int
    text: str = ""


@dataclass(frozen=True, slots=True)
class ReadTimes:
    """The times that a pattern reads from texts; all arrays have the same length.

    `matched`: whether the whole text matches. `local_ms`: milliseconds since 1970 on the clock of the
    text. `offset_ms`: how far that clock is ahead of UTC; None if the pattern has no zone.
    """

    matched: npt.NDArray[np.bool_]
    local_ms: Milliseconds
    offset_ms: Milliseconds | None


def check_written(pattern: str, option: str) -> None:
    """Raise OptionError, naming `option`, for a pattern that `write_times` does not support."""
    _check(pattern, option, _WRITTEN)


def check_read(pattern: str, option: str) -> None:
    """Raise OptionError, naming `option`, for a pattern that `read_times` does not support."""
    _check(pattern, option, _READ)
    letters = [token.letter for token in _tokens(pattern) if token.letter]
    doubled = {letter for letter in letters if letters.count(letter) > 1}
    short_year = any(t.letter == "y" and t.width == 2 for t in _tokens(pattern))
    if "y" not in letters or doubled or short_year or ("h" in letters) != ("a" in letters):
        raise OptionError(
            f"{option} is {pattern!r}, which does not determine a time: expected a year of four"
            " digits, each letter once, and a only beside h"
        )


def write_times(pattern: str, local_ms: Milliseconds, offset: str = "") -> pa.StringArray:
    """The text of each time; `offset` replaces Z in the pattern.

    Raises DataError for times outside the years 1 to 9999.
    """
    if len(local_ms) and not (local_ms.min() >= _FIRST_MS and local_ms.max() <= LAST_MS):
        raise DataError("a time lies outside the years 1 to 9999")
    tokens = _tokens(pattern)
    step = min((_STEPS_MS.get(t.letter, _DAY_MS) for t in tokens if t.letter), default=_DAY_MS)
    # many times give few different texts, so make each text once
    encoded = pa.array(local_ms - local_ms % step).dictionary_encode()
    times = encoded.dictionary.cast(pa.timestamp("ms"))
    parts: list[pa.Array | pa.Scalar] = [pa.repeat(pa.scalar(""), len(times))]
    for token in tokens:
        if token.letter in ("", "Z"):
            parts.append(pa.scalar(token.text or offset))
        else:
            parts.append(_written(token, times))
    return pc.binary_join_element_wise(*parts, "").take(encoded.indices)


def read_times(pattern: str, texts: pa.StringArray) -> ReadTimes:
    """Read each text by `pattern`. Raises DataError for a match that is not a time (a 13th month)."""
    groups = pc.extract_regex(texts, _expression(pattern))
    matched = groups.is_valid().to_numpy(zero_copy_only=False)
    names = [groups.type.field(i).name for i in range(groups.type.num_fields)]
    parts = {name: pc.fill_null(pc.struct_field(groups, name), "") for name in names}
    widths = {t.letter: t.width for t in _tokens(pattern)}

    def number(letter: str, default: int) -> Milliseconds:
        if letter not in parts:
            return np.full(len(texts), default, np.int64)
        digits = pc.if_else(pc.equal(parts[letter], ""), str(default), parts[letter])
        return digits.cast(pa.int64()).to_numpy()

    named = widths.get("M", 0) > 2
    month = _named(parts["M"], _MONTHS) if named else number("M", 1)
    hour = number("H", 0)
    if "h" in parts:
        later = pc.equal(pc.utf8_upper(parts["a"]), "PM").to_numpy(zero_copy_only=False)
        clock = number("h", 12)
        _check_range(texts, matched, clock, 1, 12)
        hour = clock % 12 + 12 * later
    day, minute, second = number("d", 1), number("m", 0), number("s", 0)
    months = (number("y", 1970) - 1970) * 12 + month - 1
    first_days = months.astype("datetime64[M]").astype("datetime64[D]")
    days_in_month = (months + 1).astype("datetime64[M]").astype("datetime64[D]") - first_days
    _check_range(texts, matched, month, 1, 12)
    _check_range(texts, matched, day, 1, days_in_month.astype(np.int64))
    _check_range(texts, matched, hour, 0, 23)
    _check_range(texts, matched, minute, 0, 59)
    _check_range(texts, matched, second, 0, 59)
    days = first_days.astype(np.int64) + day - 1
    local = ((days * 24 + hour) * 60 + minute) * 60_000 + second * 1000
    if "S" in parts:
        three = pc.utf8_slice_codeunits(pc.utf8_rpad(parts["S"], 3, "0"), 0, 3)
        local = local + three.cast(pa.int64()).to_numpy()
    offset = _offsets(parts["Z"]) if "Z" in parts else None
    return ReadTimes(matched, np.where(matched, local, 0), offset)


def _check(pattern: str, option: str, known: str) -> None:
    for token in _tokens(pattern):
        if token.letter and token.letter not in known:
            raise OptionError(
                f"{option} is {pattern!r}, whose {token.letter * token.width!r} is not supported;"
                f" letters that are: {', '.join(known)}"
            )


@lru_cache(maxsize=64)
def _tokens(pattern: str) -> tuple[Token, ...]:
    return tuple(_scanned(pattern))


def _scanned(pattern: str) -> Iterator[Token]:
    for letters, _, quoted, other in re.findall(
        r"(([A-Za-z])\2*)|('(?:[^']|'')*'?)|([^A-Za-z']+)", pattern
    ):
        if letters:
            yield Token(letters[0], len(letters))
        elif quoted == "''":
            yield Token("", 0, "'")
        elif quoted:
            inner = quoted[1:-1] if quoted.endswith("'") else quoted[1:]
            yield Token("", 0, inner.replace("''", "'"))
        else:
            yield Token("", 0, other)


def _written(token: Token, times: pa.Array) -> pa.StringArray:
    letter, width = token.letter, token.width
    if letter == "S":
        digits = pc.utf8_lpad(_integers(pc.millisecond(times)), 3, "0")
        cut = pc.utf8_slice_codeunits(digits, 0, width)
        return cut if width <= 3 else pc.utf8_rpad(cut, width, "0")
    if letter == "M" and width > 2:
        return _name(pc.subtract(pc.month(times), 1), _MONTHS, short=width == 3)
    if letter == "E":
        return _name(pc.day_of_week(times), _DAYS, short=width < 4)
    if letter == "a":
        return _name(pc.divide(pc.hour(times), 12), _HALVES, short=False)
    values = _NUMBERS[letter](times)
    if letter in "yYx" and width == 2:
        values = pc.subtract(values, pc.multiply(pc.divide(values, 100), 100))
    text = _integers(values)
    return text if width == 1 else pc.utf8_lpad(text, width, "0")


def _hour_from(times: pa.Array, hours: int, first: int) -> pa.Array:
    """The hour on a clock of `hours` hours whose lowest number is `first`."""
    hour = pc.hour(times).to_numpy()
    return pa.array((hour - first) % hours + first)


_NUMBERS: dict[str, Callable[[pa.Array], pa.Array]] = {
    "y": pc.year,
    "Y": pc.year,
    "x": pc.iso_year,
    "M": pc.month,
    "w": pc.iso_week,
    "d": pc.day,
    "D": pc.day_of_year,
    "e": lambda times: pc.add(pc.day_of_week(times), 1),
    "H": pc.hour,
    "K": lambda times: _hour_from(times, 12, 0),
    "h": lambda times: _hour_from(times, 12, 1),
    "k": lambda times: _hour_from(times, 24, 1),
    "m": pc.minute,
    "s": pc.second,
}


def _integers(values: pa.Array) -> pa.StringArray:
    return values.cast(pa.int64()).cast(pa.string())


def _name(numbers: pa.Array, names: list[str], short: bool) -> pa.StringArray:
    return pa.array([name[:3] if short else name for name in names]).take(numbers)


def _named(texts: pa.Array, names: list[str]) -> Milliseconds:
    """The number of each name, from 1; names are written in full or by their first three letters."""
    known = pa.array([name[:3].upper() for name in names])
    start = pc.utf8_upper(pc.utf8_slice_codeunits(texts, 0, 3))
    return pc.add(pc.fill_null(pc.index_in(start, known), 0), 1).cast(pa.int64()).to_numpy()


@lru_cache(maxsize=64)
def _expression(pattern: str) -> str:
    tokens = _tokens(pattern)
    parts = []
    for place, token in enumerate(tokens):
        follows = tokens[place + 1].letter if place + 1 < len(tokens) else ""
        parts.append(_part(token, bool(follows) and follows not in "aZ"))
    # Joda ignores case in names and in the text between letters
    return rf"(?i)\A{''.join(parts)}\z"


def _part(token: Token, digits_follow: bool) -> str:
    letter, width = token.letter, token.width
    if not letter:
        return re.escape(token.text)
    if letter == "Z":
        return r"(?P<Z>Z|[+-]\d\d(?::?\d\d)?)"
    if letter == "a":
        return "(?P<a>AM|PM)"
    if letter == "M" and width > 2:
        return f"(?P<M>{'|'.join([*_MONTHS, *(name[:3] for name in _MONTHS)])})"
    if letter == "S":
        return rf"(?P<S>\d{{1,{width}}})"
    most = 4 if letter == "y" else 2
    # if digits follow, only a fixed count shows where these digits end
    return rf"(?P<{letter}>\d{{{most if digits_follow else 1},{most}}})"


def _offsets(texts: pa.Array) -> Milliseconds:
    """Offsets such as "Z", "+02", "+0200" or "+02:00" in milliseconds; "" is 0."""
    digits = pc.utf8_rpad(pc.replace_substring_regex(texts, "[^0-9]", ""), 4, "0")
    number = digits.cast(pa.int64()).to_numpy()
    size = (number // 100 * 60 + number % 100) * 60_000
    return np.where(pc.starts_with(texts, "-").to_numpy(zero_copy_only=False), -size, size)


def _check_range(
    texts: pa.Array,
    matched: npt.NDArray[np.bool_],
    values: Milliseconds,
    least: int,
    most: int | Milliseconds,
) -> None:
    wrong = np.flatnonzero(matched & ((values < least) | (values > most)))
    if len(wrong):
        raise DataError(f"{texts[int(wrong[0])].as_py()!r} is not a time")
