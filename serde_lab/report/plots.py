"""Draws a drawing at a width: every plot of a report in a wide and in a narrow cut.

Owns the layout of plots. The narrow cut (a phone) sets labels above their bars and panels below each
other, instead of shrinking the wide one until nobody can read it. Must not know runs or pages.
"""

from __future__ import annotations

from collections.abc import Sequence

from serde_lab.report.canvas import (
    SMALL_PX,
    Canvas,
    fitting,
    nice_ticks,
    text_width,
)
from serde_lab.report.drawings import (
    Bar,
    Drawing,
    Key,
    Lines,
    Panel,
    PointRows,
    StackedBars,
    Steps,
)
from serde_lab.report.line_plot import draw_lines

WIDE_PX = 940.0
NARROW_PX = 344.0

_GAP = 26.0
_AXIS = 40.0
"""Height of an axis: its numbers and its name."""


def draw(drawing: Drawing, width_px: float) -> Canvas:
    """The drawing on a canvas `width_px` wide, as high as it needs to be."""
    if isinstance(drawing, StackedBars):
        return _stacked(drawing, width_px)
    if isinstance(drawing, PointRows):
        return _points(drawing, width_px)
    if isinstance(drawing, Steps):
        return _steps(drawing, width_px)
    assert isinstance(drawing, Lines)
    return draw_lines(drawing, width_px)


def _is_narrow(width_px: float) -> bool:
    return width_px < 600


def _label_width(labels: Sequence[str], most: float) -> float:
    return min(most, max((text_width(label) for label in labels), default=0.0)) + 12


class _Scale:
    """Values of an axis on pixels, from `left` on."""

    def __init__(self, left: float, pixels: float, highest: float, lowest: float = 0.0) -> None:
        self.left, self.pixels = left, pixels
        self.lowest = lowest
        self.span = (highest - lowest) or 1.0

    def __call__(self, value: float) -> float:
        return self.left + (value - self.lowest) / self.span * self.pixels


def _axis(
    canvas: Canvas,
    scale: _Scale,
    top: float,
    bottom: float,
    name: str,
    ticks: Sequence[float] = (),
) -> None:
    """Grid lines, numbers and the name of a horizontal axis."""
    highest = scale.lowest + scale.span
    for tick in ticks or nice_ticks(highest, max(2, int(scale.pixels / 75)), scale.lowest):
        if tick > highest * (1 + 1e-9):
            break
        x = scale(tick)
        canvas.line([x, x], [top, bottom], "grid")
        canvas.text(x, bottom + 11, _plain(tick), "muted", SMALL_PX, "center")
    if name:
        room = canvas.width_px - scale.left
        canvas.text(scale.left, bottom + 28, fitting(name, room, SMALL_PX), "muted", SMALL_PX)


def _plain(value: float) -> str:
    return f"{value:,.10g}"


def _legend_rows(keys: Sequence[Key], width_px: float) -> list[list[tuple[str, str]]]:
    """Items of the colour key in lines; a group begins a line, with its name as an item of role ""."""
    rows: list[list[tuple[str, str]]] = []
    for key in keys:
        row: list[tuple[str, str]] = [("", key.group)] if key.group else []
        x = start = _group_px(keys)
        for role, label in key.items:
            wide = text_width(label, SMALL_PX) + 34
            if x + wide > width_px and x > start:
                rows.append(row)
                row = [("", "")] if key.group else []
                x = start
            row.append((role, label))
            x += wide
        rows.append(row)
    return rows


def _group_px(keys: Sequence[Key]) -> float:
    widths = [text_width(key.group, SMALL_PX) for key in keys if key.group]
    return max(widths) + 18 if widths else 0.0


def _legend(canvas: Canvas, keys: Sequence[Key], top: float) -> float:
    """Draws the colour key; the height that it took."""
    rows = _legend_rows(keys, canvas.width_px)
    for i, row in enumerate(rows):
        x, y = 0.5, top + i * 19
        for role, label in row:
            if not role:
                canvas.text(x, y + 5.5, label, "muted", SMALL_PX)
                x += _group_px(keys)
                continue
            canvas.box(x, y, 11, 11, role)
            canvas.text(x + 17, y + 5.5, label, "ink", SMALL_PX)
            x += text_width(label, SMALL_PX) + 34
    return len(rows) * 19.0


def _stacked(drawing: StackedBars, width_px: float) -> Canvas:
    narrow = _is_narrow(width_px)
    panels = [panel for panel in drawing.panels if panel.bars]
    legend = _legend_rows(drawing.legend, width_px)
    bars = max((len(panel.bars) for panel in panels), default=0)
    headed = any(panel.heading for panel in panels)
    pitch = 40.0 if narrow else 27.0
    head = (24.0 if headed else 4.0) + (17.0 if drawing.tick_label else 0.0)
    panel_height = head + bars * pitch + _AXIS
    height = len(legend) * 19 + 8 + panel_height * (len(panels) if narrow else 1)
    canvas = Canvas(width_px, height)
    top = _legend(canvas, drawing.legend, 2) + 8
    labels = [bar.label for panel in panels for bar in panel.bars]
    label_px = 0.0 if narrow else _label_width(labels, 250)
    total_px = max((text_width(bar.total, SMALL_PX) for p in panels for bar in p.bars), default=0)
    spare = total_px + 8
    if drawing.tick_label:
        canvas.line([label_px + 4, label_px + 4], [top, top + 12], "ink", 2)
        canvas.text(label_px + 12, top + 6, drawing.tick_label, "muted", SMALL_PX)
        top += 17
        head -= 17
    highest = [_highest(panel) for panel in panels]
    if narrow:
        for i, panel in enumerate(panels):
            scale = _Scale(0.5, width_px - spare, max(highest) or 1.0)
            _panel(
                canvas, panel, scale, top + i * (panel_height), head, pitch, drawing.axis, None, ()
            )
        return canvas
    room = width_px - label_px - _GAP * (len(panels) - 1) - spare * len(panels)
    least = 96.0
    widths = _shared_widths(highest, room, least)
    unit = _unit(highest, widths)
    most = max(highest, default=1.0)
    # one step for all panels: equal distances are then equal amounts for the eye too
    ticks = nice_ticks(most, max(2, int(most * unit / 60)))
    left = label_px
    for i, (panel, wide) in enumerate(zip(panels, widths, strict=True)):
        scale = _Scale(left, wide, wide / unit)
        names = label_px if i == 0 else None
        axis = drawing.axis if i == 0 else ""
        _panel(canvas, panel, scale, top, head, pitch, axis, names, ticks, beside=True)
        left += wide + spare + _GAP
    return canvas


def _highest(panel: Panel) -> float:
    return max(
        (max(sum(s.value for s in bar.segments), bar.tick or 0.0) for bar in panel.bars),
        default=0.0,
    )


def _shared_widths(highest: Sequence[float], room: float, least: float) -> list[float]:
    """Widths in the ratio of the panels' highest values, but each wide enough for its heading."""
    small: set[int] = set()
    while True:
        rest = sum(h for i, h in enumerate(highest) if i not in small)
        left = room - least * len(small)
        widths = [
            least if i in small else (left * h / rest if rest else left / len(highest))
            for i, h in enumerate(highest)
        ]
        new = {i for i, wide in enumerate(widths) if wide < least - 1e-9} - small
        if not new or left <= least:
            return widths
        small |= new


def _unit(highest: Sequence[float], widths: Sequence[float]) -> float:
    """Pixels a unit: those of the panel that needs its width most."""
    units = [wide / high for high, wide in zip(highest, widths, strict=True) if high > 0]
    return min(units, default=1.0) or 1.0


def _panel(
    canvas: Canvas,
    panel: Panel,
    scale: _Scale,
    top: float,
    head: float,
    pitch: float,
    axis: str,
    names_px: float | None,
    ticks: Sequence[float],
    beside: bool = False,
) -> None:
    if panel.heading:
        canvas.text(scale.left, top + 9, panel.heading, bold=True)
    first = top + head
    bottom = first + pitch * len(panel.bars)
    _axis(canvas, scale, first - 2, bottom, axis, ticks)
    canvas.line([scale.left, scale.left], [first - 2, bottom], "rule")
    for i, bar in enumerate(panel.bars):
        y = first + i * pitch
        if beside:
            if names_px is not None:
                label = fitting(bar.label, names_px - 12)
                canvas.text(names_px - 10, y + pitch / 2, label, align="right", tip=bar.label)
            _bar(canvas, bar, scale, y + 5, pitch - 10)
        else:
            label = fitting(bar.label, scale.pixels)
            canvas.text(scale.left, y + 9, label, tip=bar.label)
            _bar(canvas, bar, scale, y + 18, pitch - 24)


def _bar(canvas: Canvas, bar: Bar, scale: _Scale, y: float, height: float) -> None:
    if bar.absent:
        canvas.text(scale.left + 4, y + height / 2, bar.absent, "bad", SMALL_PX)
        return
    at = 0.0
    for segment in bar.segments:
        x, end = scale(at), scale(at + segment.value)
        if end - x > 0.05:
            # a hairline of the page between neighbours tells them apart without colour
            gap = 0.6 if end - x > 2.5 else 0.0
            canvas.box(x, y, end - x - gap, height, segment.role, segment.text)
        at += segment.value
    if bar.tick is not None:
        x = scale(bar.tick)
        canvas.line([x, x], [y - 3, y + height + 3], "ink", 2, tip=f"expected {bar.total}")
    end = max(scale(at), scale(bar.tick or 0.0))
    canvas.text(end + 6, y + height / 2, bar.total, "ink", SMALL_PX)


def _points(drawing: PointRows, width_px: float) -> Canvas:
    narrow = _is_narrow(width_px)
    pitch = 46.0 if narrow else 32.0
    kinds = {point.kind for row in drawing.rows for point in row.points}
    key = [
        (kind, label)
        for kind, label in (
            ("measured", "a measured round"),
            ("marked", "measured while the machine itself had moved"),
            ("cold", "a cold round (warm-up, not counted)"),
        )
        if kind in kinds
    ]
    lines = len(key) if narrow else 1
    head = 10 + 18.0 * lines
    height = head + pitch * len(drawing.rows) + _AXIS
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
    label_px = 0.0 if narrow else _label_width(labels, 250)
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
    scale = _Scale(label_px + 6, width_px - label_px - notes_px - 18, high, low)
    bottom = head + pitch * len(drawing.rows)
    _axis(canvas, scale, head - 4, bottom, drawing.axis)
    if drawing.line is not None:
        at = scale(drawing.line)
        canvas.line([at, at], [head - 4, bottom], "muted", 1.2, dashed=True)
    for i, row in enumerate(drawing.rows):
        y = head + i * pitch
        if narrow:
            label = fitting(row.label, width_px - notes - 12)
            canvas.text(0, y + 9, label, tip=row.label)
            canvas.text(width_px, y + 9, row.note, "muted", SMALL_PX, "right")
            middle = y + 30
        else:
            label = fitting(row.label, label_px - 12)
            middle = y + pitch / 2
            canvas.text(label_px - 10, middle, label, align="right", tip=row.label)
            canvas.text(width_px, middle, row.note, "muted", SMALL_PX, "right")
        if row.low is not None and row.high is not None:
            canvas.line([scale(row.low), scale(row.high)], [middle, middle], "bar", 3)
        if row.middle is not None:
            at = scale(row.middle)
            canvas.line([at, at], [middle - 11, middle + 11], "ink", 2)
        for n, point in enumerate(row.points):
            # equal values would hide each other: every point gets one of five heights
            _mark(
                canvas, scale(point.value), middle + (n * 2 % 5 - 2) * 2.4, point.kind, point.text
            )
    return canvas


def _row_values(row: object) -> list[float]:
    from serde_lab.report.drawings import PointRow

    assert isinstance(row, PointRow)
    others = [v for v in (row.middle, row.low, row.high) if v is not None]
    return [point.value for point in row.points] + others


def _mark(canvas: Canvas, x: float, y: float, kind: str, tip: str) -> None:
    if kind == "cold":
        canvas.mark(x, y, "cold", "diamond", tip=tip)
    elif kind == "marked":
        canvas.mark(x, y, "bad", "cross", tip=tip)
    else:
        canvas.mark(x, y, "bar", "dot", tip=tip)


def _steps(drawing: Steps, width_px: float) -> Canvas:
    narrow = _is_narrow(width_px)
    pitch, bar = (68.0, 16.0) if narrow else (48.0, 18.0)
    height = 6 + pitch * len(drawing.steps) + _AXIS - (0 if narrow else 10)
    canvas = Canvas(width_px, height)
    label_px = 0.0 if narrow else _label_width([s.label for s in drawing.steps], 250)
    spare = max((text_width(s.value_text) for s in drawing.steps), default=0.0) + 10
    highest = max((s.value or 0.0 for s in drawing.steps), default=1.0)
    scale = _Scale(label_px + 0.5, width_px - label_px - spare, highest)
    bottom = 4 + pitch * len(drawing.steps) - (0 if narrow else 6)
    _axis(canvas, scale, 2, bottom, drawing.axis)
    for i, step in enumerate(drawing.steps):
        y = 4 + i * pitch
        change_y = y + (7 if narrow else 9)
        if narrow:
            canvas.text(0, y + 27, fitting(step.label, width_px), tip=step.label)
            bar_y = y + 37
        else:
            bar_y = y + 20
            label = fitting(step.label, label_px - 12)
            canvas.text(label_px - 10, bar_y + bar / 2, label, align="right", tip=step.label)
        if i and step.change:
            role = "muted" if step.sound else "warn"
            change = fitting(f"↓ {step.change}", width_px - scale.left, SMALL_PX)
            canvas.text(scale.left + 4, change_y, change, role, SMALL_PX, tip=step.change)
        if step.value is None:
            canvas.text(scale.left + 4, bar_y + bar / 2, step.value_text, "bad", SMALL_PX)
        else:
            end = scale(step.value)
            canvas.box(scale.left, bar_y, end - scale.left, bar, "bar", step.value_text)
            canvas.text(end + 6, bar_y + bar / 2, step.value_text)
    return canvas
