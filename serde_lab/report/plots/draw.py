"""Draws any drawing at a given width; every plot of a report has a wide and a narrow version.

The narrow version (for phones) puts labels above their bars and panels below each other, since a shrunk
wide version would be unreadable. Bars and rows of points are drawn here.
"""

from __future__ import annotations

from collections.abc import Sequence

from serde_lab.report.plots.canvas import (
    AXIS_PX,
    SMALL_PX,
    Canvas,
    Scale,
    draw_axis,
    is_narrow,
    label_width,
    nice_ticks,
    text_width,
)
from serde_lab.report.plots.drawings import (
    Bar,
    Drawing,
    Key,
    Lines,
    Multiples,
    Panel,
    PointRow,
    PointRows,
    StackedBars,
    Steps,
)
from serde_lab.report.plots.lines import draw_lines, draw_multiples

_GAP_PX = 26.0


def draw_bars(drawing: StackedBars, width_px: float) -> Canvas:
    narrow = is_narrow(width_px)
    panels = [panel for panel in drawing.panels if panel.bars]
    legend = _legend_rows(drawing.legend, width_px)
    bars = max((len(panel.bars) for panel in panels), default=0)
    headed = any(panel.heading for panel in panels)
    pitch = 40.0 if narrow else 27.0
    head = (24.0 if headed else 4.0) + (17.0 if drawing.tick_label else 0.0)
    panel_height = head + bars * pitch + AXIS_PX
    height = len(legend) * 19 + 8 + panel_height * (len(panels) if narrow else 1)
    canvas = Canvas(width_px, height)
    top = _legend(canvas, drawing.legend, 2) + 8
    labels = [bar.label for panel in panels for bar in panel.bars]
    label_px = 0.0 if narrow else label_width(labels)
    total_px = max((text_width(bar.total, SMALL_PX) for p in panels for bar in p.bars), default=0)
    spare = total_px + 8
    if drawing.tick_label:
        canvas.line([label_px + 4, label_px + 4], [top, top + 12], "ink", 2)
        canvas.text(label_px + 12, top + 6, drawing.tick_label, "muted", SMALL_PX)
        top += 17
        head -= 17
    highest = [_highest(panel) for panel in panels]
    if narrow:
        for panel in panels:
            scale = Scale(0.5, width_px - spare, max(highest) or 1.0)
            _panel(
                *(canvas, panel, scale, top, head, pitch, drawing.axis, None, ()),
                heading_px=width_px,
            )
            top += panel_height
        return canvas
    room = width_px - label_px - _GAP_PX * (len(panels) - 1) - spare * len(panels)
    least = 96.0
    widths = _shared_widths(highest, room, least)
    unit = _unit(highest, widths)
    most = max(highest, default=1.0)
    # the same ticks in all panels, so that equal lengths mean equal amounts
    ticks = nice_ticks(most, max(2, int(most * unit / 60)))
    left = label_px
    for i, (panel, wide) in enumerate(zip(panels, widths, strict=True)):
        scale = Scale(left, wide, wide / unit)
        names = label_px if i == 0 else None
        axis = drawing.axis if i == 0 else ""
        _panel(
            *(canvas, panel, scale, top, head, pitch, axis, names, ticks),
            heading_px=wide + spare + _GAP_PX / 2,
            beside=True,
        )
        left += wide + spare + _GAP_PX
    return canvas


def _highest(panel: Panel) -> float:
    return max(
        (max(sum(s.value for s in bar.segments), bar.tick or 0.0) for bar in panel.bars),
        default=0.0,
    )


def _shared_widths(highest: Sequence[float], room: float, least: float) -> list[float]:
    """Widths proportional to the panels' highest values, but each wide enough for its heading."""
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
    """Pixels per unit of the axis, limited by the fullest panel."""
    units = [wide / high for high, wide in zip(highest, widths, strict=True) if high > 0]
    return min(units, default=1.0) or 1.0


def _panel(
    canvas: Canvas,
    panel: Panel,
    scale: Scale,
    top: float,
    head: float,
    pitch: float,
    axis: str,
    names_px: float | None,
    ticks: Sequence[float],
    heading_px: float,
    beside: bool = False,
) -> None:
    if panel.heading:
        canvas.text(scale.left, top + 9, panel.heading, bold=True, room=heading_px)
    first = top + head
    bottom = first + pitch * len(panel.bars)
    draw_axis(canvas, scale, first - 2, bottom, axis, ticks)
    canvas.line([scale.left, scale.left], [first - 2, bottom], "rule")
    for i, bar in enumerate(panel.bars):
        y = first + i * pitch
        if beside:
            if names_px is not None:
                at, room = names_px - 10, names_px - 12
                canvas.text(at, y + pitch / 2, bar.label, align="right", room=room)
            _bar(canvas, bar, scale, y + 5, pitch - 10)
        else:
            canvas.text(scale.left, y + 9, bar.label, room=scale.pixels)
            _bar(canvas, bar, scale, y + 18, pitch - 24)


def _bar(canvas: Canvas, bar: Bar, scale: Scale, y: float, height: float) -> None:
    if bar.absent:
        canvas.text(scale.left + 4, y + height / 2, bar.absent, "bad", SMALL_PX)
        return
    at = 0.0
    for segment in bar.segments:
        x, end = scale(at), scale(at + segment.value)
        if end - x > 0.05:
            # a thin line in the page's colour separates neighbours even without colours
            gap = 0.6 if end - x > 2.5 else 0.0
            canvas.box(x, y, end - x - gap, height, segment.role, segment.text)
        at += segment.value
    if bar.tick is not None:
        x = scale(bar.tick)
        canvas.line(
            [x, x],
            [y - 3, y + height + 3],
            "ink",
            2,
            tip=f"{bar.label}, predicted: {bar.tick_text}",
        )
    end = max(scale(at), scale(bar.tick or 0.0))
    canvas.text(end + 6, y + height / 2, bar.total, "ink", SMALL_PX)


def _legend_rows(keys: Sequence[Key], width_px: float) -> list[list[tuple[str, str]]]:
    """The items of the colour key in lines; a group starts a line with its name, an item of role ""."""
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
    """Draw the colour key; returns its height."""
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


def draw_steps(drawing: Steps, width_px: float) -> Canvas:
    narrow = is_narrow(width_px)
    pitch, bar = (68.0, 16.0) if narrow else (48.0, 18.0)
    height = 6 + pitch * len(drawing.steps) + AXIS_PX - (0 if narrow else 10)
    canvas = Canvas(width_px, height)
    label_px = 0.0 if narrow else label_width([s.label for s in drawing.steps])
    spare = max((text_width(s.value_text) for s in drawing.steps), default=0.0) + 10
    highest = max((s.value or 0.0 for s in drawing.steps), default=1.0)
    scale = Scale(label_px + 0.5, width_px - label_px - spare, highest)
    bottom = 4 + pitch * len(drawing.steps) - (0 if narrow else 6)
    draw_axis(canvas, scale, 2, bottom, drawing.axis)
    for i, step in enumerate(drawing.steps):
        y = 4 + i * pitch
        change_y = y + (7 if narrow else 9)
        if narrow:
            canvas.text(0, y + 27, step.label, room=width_px)
            bar_y = y + 37
        else:
            bar_y = y + 20
            at, room = label_px - 10, label_px - 12
            canvas.text(at, bar_y + bar / 2, step.label, align="right", room=room)
        if i and step.change:
            role = "muted" if step.sound else "warn"
            change, room = f"↓ {step.change}", width_px - scale.left
            canvas.text(scale.left + 4, change_y, change, role, SMALL_PX, room=room)
        if step.value is None:
            canvas.text(scale.left + 4, bar_y + bar / 2, step.value_text, "bad", SMALL_PX)
        else:
            end = scale(step.value)
            canvas.box(scale.left, bar_y, end - scale.left, bar, "bar", step.value_text)
            canvas.text(end + 6, bar_y + bar / 2, step.value_text)
    return canvas


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
    label_px = 0.0 if narrow else label_width(labels)
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
