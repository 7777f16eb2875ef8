"""Rounds figures the same way for display and for decisions, with one precision for each quantity.

A figure is rounded when it enters a judgement. Limits are compared with the rounded figure and every output
prints it, so that a reader who recomputes a verdict from the page gets the same one.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Literal

Quantity = Literal["seconds", "ratio", "share", "rows_per_s", "megabytes", "bytes", "count", "p"]

NOTHING = "–"  # shown if there is no figure

_SIGNIFICANT_DIGITS: dict[Quantity, int] = {"seconds": 4, "rows_per_s": 4}
_DECIMALS: dict[Quantity, int] = {
    "ratio": 3,
    "share": 4,
    "megabytes": 2,
    "bytes": 0,
    "count": 0,
    "p": 5,
}


def rounded(quantity: Quantity, value: float) -> float:
    """`value` rounded for display and for decisions; `megabytes` takes and returns units of 10^6 bytes."""
    if quantity in _SIGNIFICANT_DIGITS:
        return float(f"{value:.{_SIGNIFICANT_DIGITS[quantity]}g}")
    return round(value, _DECIMALS[quantity])


def text(quantity: Quantity, value: float | None) -> str:
    """The rounded value without its unit; a dash for None."""
    if value is None:
        return NOTHING
    return _TEXT[quantity](rounded(quantity, value))


def _significant(value: float) -> str:
    # "#" keeps trailing zeros: 2.500 and 2.5 are not the same statement
    shown = f"{value:#.{_SIGNIFICANT_DIGITS['seconds']}g}"
    if "e+" in shown:
        return f"{value:,.0f}"
    return shown.rstrip(".")


_TEXT: dict[Quantity, Callable[[float], str]] = {
    "seconds": _significant,
    "rows_per_s": lambda value: f"{value:,.0f}" if value >= 1000 else _significant(value),
    "ratio": lambda value: f"{value:.3f}",
    "share": lambda value: f"{100 * value:.2f} %",
    "megabytes": lambda value: f"{value:,.2f}",
    "bytes": lambda value: f"{value:,.0f}",
    "count": lambda value: f"{value:,.0f}",
    "p": lambda value: f"{value:.5f}",
}


_SMALLEST_P = 1e-5
_WHOLE_FROM = 10_000


def rounded_ratio(value: float) -> float:
    """A ratio of after to before."""
    return rounded("ratio", float(value))


def rounded_change(value: float) -> float:
    """A relative change, a noise floor or a margin: 0.05 is 5 %."""
    return rounded("share", float(value)) if math.isfinite(value) else float(value)


def rounded_p(value: float) -> float:
    """A probability, at most 1 and never rounded to 0: smaller values become 0.00001."""
    return max(rounded("p", min(float(value), 1.0)), _SMALLEST_P)


def rounded_value(value: float) -> float:
    """A measured value: whole numbers unchanged (one byte may matter), others rounded like seconds, but from
    10,000 on to a whole number: the median of an even number of counts may be a half."""
    value = float(value)
    if not math.isfinite(value) or value.is_integer():
        return value
    return float(round(value)) if abs(value) >= _WHOLE_FROM else rounded("seconds", value)


def shown_value(value: float | None, unit: str = "") -> str:
    """The text of a measured value with its unit."""
    if value is None:
        return "-"
    whole = float(value).is_integer() and (unit != "s" or abs(value) >= _WHOLE_FROM)
    figure = text("count", value) if whole else text("seconds", value)
    return f"{figure} {unit}" if unit and unit != "1" else figure


def shown_ratio(value: float | None) -> str:
    """The text of a ratio, rounded as for the decision."""
    if value is None:
        return "-"
    return text("ratio", value) if math.isfinite(value) else "inf"


def shown_change(value: float) -> str:
    """The text of a relative change, rounded as for the decision."""
    return text("share", value) if math.isfinite(value) else "without bound"


def shown_p(value: float | None) -> str:
    """The text of a probability, rounded as for the decision."""
    return "-" if value is None else text("p", rounded_p(value))
