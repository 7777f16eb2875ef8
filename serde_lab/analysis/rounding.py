"""Rounds figures the same way for display and for decisions, with one precision for each quantity.

A verdict compares rounded figures, so that a reader who recomputes it from the page gets the same verdict.
"""

from __future__ import annotations

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
