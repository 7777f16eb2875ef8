"""The one rounding that display and decision share.

A figure is rounded when it enters a judgement; limits are compared with the rounded figure, and
every output prints the same figure. Nobody reads "1.050 > 1.050". Knows no verdicts.
"""

from __future__ import annotations

import math

RATIO_DECIMALS = 4
P_DECIMALS = 4
SIGNIFICANT_DIGITS = 5


def rounded_ratio(value: float) -> float:
    """A ratio, a share or a limit, to 4 decimals."""
    return round(float(value), RATIO_DECIMALS)


def rounded_p(value: float) -> float:
    """A probability to 4 decimals, but never to 0: what is smaller becomes 0.0001."""
    return max(round(min(float(value), 1.0), P_DECIMALS), 10.0**-P_DECIMALS)


def rounded_value(value: float) -> float:
    """A measured value: integers as they are, others to 5 significant digits."""
    value = float(value)
    if not math.isfinite(value) or value == 0 or value.is_integer():
        return value
    digits = SIGNIFICANT_DIGITS - 1 - math.floor(math.log10(abs(value)))
    return round(value, max(digits, 0))


def shown_value(value: float | None, unit: str = "") -> str:
    """The text of a rounded value with its unit; integers in full, since one byte may matter."""
    if value is None:
        return "-"
    rounded = rounded_value(value)
    text = f"{int(rounded):,}" if rounded.is_integer() and abs(rounded) < 2**63 else f"{rounded:g}"
    return f"{text} {unit}" if unit else text


def shown_ratio(value: float | None) -> str:
    """The text of a ratio as it was decided on."""
    return "-" if value is None else f"{rounded_ratio(value):.4f}"


def shown_p(value: float | None) -> str:
    """The text of a probability as it was decided on."""
    if value is None:
        return "-"
    return f"{rounded_p(value):.4f}" if value >= 10.0**-P_DECIMALS else "<=0.0001"
