"""Draws small multiples: one small panel of lines for each factor, all with the same scale of y."""

from __future__ import annotations

import math

from serde_lab.report import notation
from serde_lab.report.plots.canvas import SMALL_PX, Canvas, is_narrow, text_width
from serde_lab.report.plots.drawings import Multiples, SmallPanel
from serde_lab.report.plots.lines import Position, log_ticks

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
