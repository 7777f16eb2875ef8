"""Draws series over one horizontal axis, alone or in small multiples: one small panel for each factor.

Small multiples have the same scale of y.
"""

from __future__ import annotations

import math
from typing import Literal

from serde_lab.report import notation
from serde_lab.report.plots.canvas import SMALL_PX, Canvas, is_narrow, nice_ticks, text_width
from serde_lab.report.plots.drawings import Line, Lines, Multiples, SmallPanel

_HEIGHT = 190.0


def draw_lines(drawing: Lines, width_px: float) -> Canvas:
    """Draw the lines; names are at their ends (wide) or in a key above (narrow)."""
    narrow = width_px < 600
    names_px = max((text_width(line.label, SMALL_PX) for line in drawing.lines), default=0.0)
    names_px = min(names_px, 200.0)
    head = (
        16.0
        + (18.0 * sum(bool(one.label) for one in drawing.lines) if narrow else 0.0)
        + (16 if drawing.marks else 0)
    )
    canvas = Canvas(width_px, head + _HEIGHT + 44)
    left, right = 58.0, width_px - (10.0 if narrow else names_px + 34)
    top, bottom = head, head + _HEIGHT
    xs = [x for line in drawing.lines for x, _ in line.points] or [0.0, 1.0]
    ys = [y for line in drawing.lines for _, y in line.points if _shown(y, drawing)] or [0.0, 1.0]
    low, high = min(ys), max(ys)
    if drawing.band is not None:
        low, high = min(low, drawing.band[0]), max(high, drawing.band[1])
    if drawing.from_zero and not drawing.logarithmic:
        low = 0.0
    along = Position(min(xs), max(xs), left + 12, right - 12, drawing.x_logarithmic)
    margin = (high - low) * 0.06 or abs(high) * 0.1 or 1.0
    if drawing.logarithmic:
        low, high = low / 1.15, high * 1.15
    else:
        low, high = (low if low == 0 else low - margin), high + margin
    up = Position(low, high, bottom, top, drawing.logarithmic)
    if drawing.band is not None:
        y = up(drawing.band[1])
        canvas.box(left, y, right - left, up(drawing.band[0]) - y, "grid")
    ticks = log_ticks(low, high) if drawing.logarithmic else nice_ticks(high, 5, low)
    for tick in ticks:
        canvas.line([left, right], [up(tick), up(tick)], "grid")
        canvas.text(left - 6, up(tick), _tick_text(tick), "muted", SMALL_PX, "right")
    canvas.line([left, right], [bottom, bottom], "rule")
    _x_axis(canvas, drawing, along, left, right, bottom)
    canvas.text(0, top - 12, drawing.y_axis, "muted", SMALL_PX)
    for at, text in drawing.marks:
        x = along(at)
        canvas.line([x, x], [top, bottom], "warn", 1.2, dashed=True, tip=text)
        middle = width_px / 2
        align: Literal["left", "right"] = "left" if x < middle else "right"
        canvas.text(x, top - 28, text, "warn", SMALL_PX, align, room=middle)
    ends: list[tuple[float, Line]] = []
    named = [line for line in drawing.lines if line.label]
    for line in drawing.lines:
        points = [(along(x), up(y)) for x, y in line.points if _shown(y, drawing)]
        if not points:
            continue
        if line.joined and len(points) > 1:
            canvas.line([x for x, _ in points], [y for _, y in points], line.role, 1.8)
        for (x, y), (_, value) in zip(points, line.points, strict=False):
            shape: Literal["dot", "diamond"] = "dot" if line.joined else "diamond"
            canvas.mark(x, y, line.role, shape, tip=f"{line.label}: {notation.number(value)}")
        if not line.label:
            continue
        if narrow:
            _named(canvas, 0.5, 8 + 18.0 * named.index(line), line, width_px)
        else:
            ends.append((points[-1][1], line))
    lowest = -math.inf
    for y, line in sorted(ends, key=lambda end: end[0]):
        # keep the distance to the name above
        lowest = max(y, lowest + 14)
        _named(canvas, right + 6, lowest, line, names_px + 24)
    return canvas


def _named(canvas: Canvas, x: float, y: float, line: Line, width_px: float) -> None:
    canvas.line([x, x + 12], [y, y], line.role, 3)
    canvas.text(x + 18, y, line.label, "ink", SMALL_PX, room=width_px - 18)


def _shown(value: float, drawing: Lines) -> bool:
    return math.isfinite(value) and (value > 0 or not drawing.logarithmic)


class Position:
    """Maps values of an axis to pixels."""

    def __init__(
        self, low: float, high: float, first: float, last: float, logarithmic: bool
    ) -> None:
        self._log = logarithmic
        self._low, high = (math.log(low), math.log(high)) if logarithmic else (low, high)
        self._span = high - self._low
        self._first, self._last = first, last

    def __call__(self, value: float) -> float:
        at = math.log(value) if self._log else value
        share = (at - self._low) / self._span if self._span else 0.5
        return self._first + share * (self._last - self._first)


def log_ticks(low: float, high: float) -> list[float]:
    """Round numbers from `low` to `high` for a logarithmic axis."""
    decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    steps = (1, 2, 5) if len(decades) < 5 else (1,)
    return [s * 10.0**d for d in decades for s in steps if low <= s * 10.0**d <= high]


def _tick_text(tick: float) -> str:
    return notation.short_number(tick) if abs(tick) >= 1e5 else f"{tick:,.10g}"


def _x_axis(
    canvas: Canvas,
    drawing: Lines,
    along: Position,
    left: float,
    right: float,
    bottom: float,
) -> None:
    if drawing.x_labels:
        widest = max(text_width(label, SMALL_PX) for label in drawing.x_labels) + 10
        step = (right - left) / len(drawing.x_labels)
        every = max(1, math.ceil(widest / step))
        for i, label in enumerate(drawing.x_labels):
            if i % every == 0:
                canvas.text(along(i), bottom + 13, label, "muted", SMALL_PX, "center")
    else:
        xs = sorted({x for line in drawing.lines for x, _ in line.points})
        ticks = xs if len(xs) <= 12 else nice_ticks(max(xs), 8, min(xs))
        for tick in ticks:
            canvas.text(along(tick), bottom + 13, f"{tick:,.10g}", "muted", SMALL_PX, "center")
    canvas.text(left, bottom + 32, drawing.x_axis, "muted", SMALL_PX)


_PANEL, _LEFT, _GAP, _HEAD, _FOOT = 150.0, 40.0, 22.0, 30.0, 34.0
_KEY_LINE = 18.0


def draw_multiples(drawing: Multiples, width_px: float) -> Canvas:
    """Draw the panels three in a row (wide) or one below the other (narrow), under a common key."""
    across = 1 if is_narrow(width_px) else min(3, len(drawing.panels))
    down = -(-len(drawing.panels) // across)
    rows = _key_rows(drawing, width_px)
    top = 22.0 + _KEY_LINE * len(rows)
    step = _HEAD + _PANEL + _FOOT
    canvas = Canvas(width_px, top + step * down)
    for n, row in enumerate(rows):
        for x, role, label in row:
            canvas.line([x, x + 12], [8 + n * _KEY_LINE, 8 + n * _KEY_LINE], role, 3)
            canvas.text(x + 18, 8 + n * _KEY_LINE, label, "ink", SMALL_PX, room=width_px - x - 18)
    canvas.text(0, top - 8, drawing.y_axis, "muted", SMALL_PX, room=width_px)
    ys = [y for panel in drawing.panels for line in panel.lines for _, y in line.points]
    ys += [
        end for panel in drawing.panels for line in panel.lines for r in line.ranges for end in r
    ]
    ys += [] if drawing.limit is None else [drawing.limit]
    low, high = min(ys, default=1.0) / 1.15, max(ys, default=1.0) * 1.15
    width = (width_px - _GAP * (across - 1)) / across
    for n, panel in enumerate(drawing.panels):
        left = (n % across) * (width + _GAP)
        _draw_panel(canvas, drawing, panel, left, top + n // across * step, width, (low, high))
    return canvas


def _key_rows(drawing: Multiples, width_px: float) -> list[list[tuple[float, str, str]]]:
    """The colour key, in as many lines as it needs: (x, role, label) of each entry."""
    rows: list[list[tuple[float, str, str]]] = [[]]
    x = 0.5
    for role, label in drawing.legend:
        needed = 18 + text_width(label, SMALL_PX) + 22
        if rows[-1] and x + needed > width_px:
            rows.append([])
            x = 0.5
        rows[-1].append((x, role, label))
        x += needed
    return rows


def _draw_panel(
    canvas: Canvas,
    drawing: Multiples,
    panel: SmallPanel,
    left: float,
    top: float,
    width: float,
    ends: tuple[float, float],
) -> None:
    canvas.text(left, top + 14, panel.heading, "ink", SMALL_PX, bold=True, room=width)
    first, last = left + _LEFT, left + width
    upper, lower = top + _HEAD, top + _HEAD + _PANEL
    up = Position(*ends, lower, upper, logarithmic=True)
    for tick in log_ticks(*ends):
        canvas.line([first, last], [up(tick), up(tick)], "grid")
        canvas.text(first - 6, up(tick), f"{tick:,.10g}", "muted", SMALL_PX, "right")
    canvas.line([first, last], [lower, lower], "rule")
    for at, role in ((1.0, "muted"), (drawing.limit, "warn")):
        if at is not None:
            canvas.line([first, last], [up(at), up(at)], role, 1.2, dashed=True)
    steps = max(1, len(panel.x_labels))
    room = (last - first) / steps

    def along(x: float) -> float:
        return first + (x + 0.5) * room

    for place, label in enumerate(panel.x_labels):
        canvas.text(along(place), lower + 13, label, "muted", SMALL_PX, "center", room=room)
    for number, line in enumerate(panel.lines):
        # beside each other, so that equal values and their intervals stay visible
        aside = (number - (len(panel.lines) - 1) / 2) * min(7.0, 0.5 * room / len(panel.lines))
        points = [(along(x) + aside, up(y)) for x, y in line.points]
        if len(points) > 1 and line.joined:
            canvas.line([x for x, _ in points], [y for _, y in points], line.role, 1.4)
        for (x, _), (low, high) in zip(points, line.ranges, strict=False):
            if math.isfinite(low) and math.isfinite(high) and low < high:
                canvas.line([x, x], [up(low), up(high)], line.role, 1.2)
        for (x, y), (place_x, value) in zip(points, line.points, strict=True):
            where = panel.x_labels[round(place_x)]
            tip = f"{line.label}, {panel.heading} {where}: {notation.number(value)}"
            canvas.mark(x, y, line.role, "dot", tip=tip)
