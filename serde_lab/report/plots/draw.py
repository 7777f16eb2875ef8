"""Draws any drawing at a given width; every plot of a report has a wide and a narrow version.

The narrow version (for phones) puts labels above their bars and panels below each other, since a shrunk
wide version would be unreadable.
"""

from __future__ import annotations

from serde_lab.report.plots.bars import draw_bars, draw_steps
from serde_lab.report.plots.canvas import (
    AXIS_PX,
    SMALL_PX,
    Canvas,
    Scale,
    draw_axis,
    is_narrow,
    label_width,
    text_width,
)
from serde_lab.report.plots.drawings import (
    Drawing,
    Lines,
    Multiples,
    PointRow,
    PointRows,
    StackedBars,
    Steps,
)
from serde_lab.report.plots.lines import draw_lines
from serde_lab.report.plots.multiples import draw_multiples

WIDE_PX = 940.0
NARROW_PX = 344.0


def draw(drawing: Drawing, width_px: float) -> Canvas:
    """Draw on a canvas `width_px` wide, as high as needed."""
    if isinstance(drawing, StackedBars):
        return draw_bars(drawing, width_px)
    if isinstance(drawing, PointRows):
        return draw_points(drawing, width_px)
    if isinstance(drawing, Steps):
        return draw_steps(drawing, width_px)
    if isinstance(drawing, Lines):
        return draw_lines(drawing, width_px)
    assert isinstance(drawing, Multiples)
    return draw_multiples(drawing, width_px)


def draw_points(drawing: PointRows, width_px: float) -> Canvas:
    narrow = is_narrow(width_px)
    pitch = 46.0 if narrow else 32.0
    kinds = {point.kind for row in drawing.rows for point in row.points}
    key = [
        (kind, label)
        for kind, label in (
            ("measured", drawing.a_point),
            ("marked", "measured while the machine's speed differed"),
            ("cold", "a cold round (warm-up, not counted)"),
        )
        if kind in kinds
    ]
    lines = len(key) if narrow else min(1, len(key))
    head = 8 + 20.0 * lines
    height = head + pitch * len(drawing.rows) + AXIS_PX
    canvas = Canvas(width_px, height)
    x, y = 6.0, 8.0
    for kind, label in key:
        _mark(canvas, x, y, kind, "")
        canvas.text(x + 12, y, label, "ink", SMALL_PX)
        if narrow:
            y += 18
        else:
            x += text_width(label, SMALL_PX) + 40
    labels = [row.label for row in drawing.rows]
    label_px = 0.0 if narrow else label_width(labels, 250)
    notes = max((text_width(row.note, SMALL_PX) for row in drawing.rows), default=0.0)
    values = [v for row in drawing.rows for v in _row_values(row)]
    if drawing.line is not None:
        values.append(drawing.line)
    low = 0.0 if drawing.from_zero else min(values, default=0.0)
    high = max(values, default=1.0)
    if not drawing.from_zero:
        margin = ((high - low) or abs(high) or 1.0) * 0.06
        low, high = low - margin, high + margin
    else:
        high *= 1.02
    notes_px = 0.0 if narrow else notes + 16
    scale = Scale(label_px + 6, width_px - label_px - notes_px - 18, high, low)
    bottom = head + pitch * len(drawing.rows)
    draw_axis(canvas, scale, head - 4, bottom, drawing.axis)
    if drawing.line is not None:
        at = scale(drawing.line)
        canvas.line([at, at], [head - 4, bottom], "muted", 1.2, dashed=True)
    for i, row in enumerate(drawing.rows):
        y = head + i * pitch
        if narrow:
            canvas.text(0, y + 9, row.label, room=width_px - notes - 12)
            canvas.text(width_px, y + 9, row.note, "muted", SMALL_PX, "right")
            middle = y + 30
        else:
            middle = y + pitch / 2
            canvas.text(label_px - 10, middle, row.label, align="right", room=label_px - 12)
            canvas.text(width_px, middle, row.note, "muted", SMALL_PX, "right")
        if row.low is not None and row.high is not None:
            canvas.line([scale(row.low), scale(row.high)], [middle, middle], "bar", 3)
        if row.middle is not None:
            at = scale(row.middle)
            canvas.line([at, at], [middle - 11, middle + 11], "ink", 2)
        for n, point in enumerate(row.points):
            # equal values would overlap, so points alternate between five heights
            _mark(
                canvas, scale(point.value), middle + (n * 2 % 5 - 2) * 2.4, point.kind, point.text
            )
    return canvas


def _row_values(row: PointRow) -> list[float]:
    others = [v for v in (row.middle, row.low, row.high) if v is not None]
    return [point.value for point in row.points] + others


def _mark(canvas: Canvas, x: float, y: float, kind: str, tip: str) -> None:
    if kind == "cold":
        canvas.mark(x, y, "cold", "diamond", tip=tip)
    elif kind == "marked":
        canvas.mark(x, y, "bad", "cross", tip=tip)
    else:
        canvas.mark(x, y, "bar", "dot", tip=tip)
