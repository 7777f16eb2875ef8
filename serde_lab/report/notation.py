"""Formats numbers for sentences, tables and plots, so that all three agree.

Figures that decide a verdict keep the rounding of `analysis.rounding`. All others get three significant
digits: more would suggest a precision that a handful of rounds does not have.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

from serde_lab.analysis.ratios import outward
from serde_lab.analysis.rounding import NOTHING as NOTHING
from serde_lab.analysis.rounding import text as rounded_text

_DIGITS = 3


def number(value: float | None) -> str:
    """Three significant digits, thousands separated: 0.0123, 4.50, 1,230."""
    if value is None or not math.isfinite(value):
        return NOTHING
    if value == 0:
        return "0"
    exponent = math.floor(math.log10(abs(float(f"{value:.{_DIGITS - 1}e}"))))
    if exponent < -6:
        return f"{value:.{_DIGITS - 1}e}"
    decimals = max(0, _DIGITS - 1 - exponent)
    return f"{round(value, _DIGITS - 1 - exponent):,.{decimals}f}"


def count(value: float | None) -> str:
    """A whole number with thousands separators: 1,200,000."""
    if value is None or not math.isfinite(value):
        return NOTHING
    return f"{value:,.0f}"


def short_number(value: float | None) -> str:
    """A large count with three digits: 1.20 M, 950 k."""
    if value is None or not math.isfinite(value):
        return NOTHING
    for limit, sign in ((1e9, "G"), (1e6, "M"), (1e4, "k")):
        if abs(value) >= limit * 0.9995:
            return f"{number(value / (1e3 if sign == 'k' else limit))} {sign}"
    return count(value) if value == int(value) else number(value)


def seconds(value: float | None) -> str:
    """Seconds; milliseconds and microseconds below a tenth of the unit above."""
    return _scaled(value, ((0.1, 1, "s"), (1e-4, 1e3, "ms"), (0, 1e6, "µs")))


def size(value: float | None) -> str:
    """Bytes in decimal units, as usual for disks and networks: 19.4 MB."""
    if value is not None and abs(value) < 1000:
        return NOTHING if not math.isfinite(value) else f"{number_of(value)} B"
    return _scaled(value, ((1e9, 1e-9, "GB"), (1e6, 1e-6, "MB"), (0, 1e-3, "kB")))


def number_of(value: float) -> str:
    """A whole number in full, any other with three significant digits."""
    return count(value) if value == int(value) else number(value)


def percent(share: float | None) -> str:
    """A share of one as a percentage: 18 %, 4.2 %."""
    if share is None or not math.isfinite(share):
        return NOTHING
    value = 100 * share
    return f"{value:.0f} %" if abs(value) >= 9.95 else f"{value:.1f} %"


def ratio(value: float | None) -> str:
    """A factor: 2.94×."""
    return NOTHING if value is None or not math.isfinite(value) else f"{number(value)}×"


def decided(quantity: Literal["ratio", "p", "share"], value: float | None) -> str:
    """A figure that decided a verdict, in the rounding that display and decision share."""
    if value is None or not math.isfinite(value):
        return NOTHING
    return rounded_text(quantity, value)


def as_decided(value: float | None) -> str:
    """A measured value that is already rounded: in full, whole numbers with separators."""
    if value is None or not math.isfinite(value):
        return NOTHING
    return count(value) if value == int(value) else rounded_text("seconds", value)


def of_metric(name: str, value: float | None) -> str:
    """A value in the unit that its metric's name ends with: bytes, seconds, or else a count."""
    if name.endswith("_bytes"):
        return size(value)
    return seconds(value) if name.endswith("_s") else count(value)


def rounded_apart(low: float, high: float) -> tuple[float, float]:
    """The ends of an interval with three significant digits, each rounded away from the other."""
    return outward(low, low, _decimals(low))[0], outward(high, high, _decimals(high))[1]


def _decimals(value: float) -> int:
    return _DIGITS - 1 - math.floor(math.log10(abs(value))) if value else 0


def between(low: float, high: float) -> str:
    """A range in short form: 3.10–3.35."""
    return f"{number(low)}–{number(high)}"


def listed(words: Sequence[str]) -> str:
    """Words as a list in a sentence: a, b and c."""
    if len(words) < 2:
        return "".join(words)
    return f"{', '.join(words[:-1])} and {words[-1]}"


def named(name: str) -> str:
    """An arm's name for use in a sentence, marked to separate it from the words around it."""
    return "`" + name.replace("`", "'") + "`"


def plural(n: int, one: str) -> str:
    """A count with its noun: 1 round, 5 rounds."""
    return f"{count(n)} {one if n == 1 else one + 's'}"


def shortened(text: str, characters: int) -> str:
    """The text with at most `characters`, cut in the middle, since names differ at both ends."""
    if len(text) <= characters:
        return text
    tail = (characters - 1) // 3
    return f"{text[: characters - 1 - tail]}…{text[-tail:]}" if tail else text[:characters]


def _scaled(value: float | None, units: Sequence[tuple[float, float, str]]) -> str:
    if value is None or not math.isfinite(value):
        return NOTHING
    if value == 0:
        return f"0 {units[0][2]}"
    for least, factor, sign in units:
        if abs(value) >= least:
            return f"{number(value * factor)} {sign}"
    raise AssertionError("the last unit takes every value")
