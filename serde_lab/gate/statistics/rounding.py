"""Rounds the figures of a judgement as `analysis.rounding` does.

A figure is rounded when it enters a judgement. Limits are compared with the rounded figure and every output
prints it, so that nobody reads "1.050 > 1.050".
"""

from __future__ import annotations

import math

from serde_lab.analysis.rounding import rounded, text

_SMALLEST_P = 1e-5


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
    """A measured value: whole numbers unchanged (one byte may matter), others rounded like seconds."""
    value = float(value)
    return value if not math.isfinite(value) or value.is_integer() else rounded("seconds", value)


def shown_value(value: float | None, unit: str = "") -> str:
    """The text of a measured value with its unit."""
    if value is None:
        return "-"
    whole = float(value).is_integer() and unit != "s"
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
