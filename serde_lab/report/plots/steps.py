"""Draws a ladder: bars in order, with the changes between them."""

from __future__ import annotations

from serde_lab.report.plots.axis import AXIS_PX, Scale, draw_axis, is_narrow, label_width
from serde_lab.report.plots.canvas import SMALL_PX, Canvas, fitting, text_width
from serde_lab.report.plots.drawings import Steps


def draw_steps(drawing: Steps, width_px: float) -> Canvas:
    narrow = is_narrow(width_px)
    pitch, bar = (68.0, 16.0) if narrow else (48.0, 18.0)
    height = 6 + pitch * len(drawing.steps) + AXIS_PX - (0 if narrow else 10)
    canvas = Canvas(width_px, height)
    label_px = 0.0 if narrow else label_width([s.label for s in drawing.steps], 250)
    spare = max((text_width(s.value_text) for s in drawing.steps), default=0.0) + 10
    highest = max((s.value or 0.0 for s in drawing.steps), default=1.0)
    scale = Scale(label_px + 0.5, width_px - label_px - spare, highest)
    bottom = 4 + pitch * len(drawing.steps) - (0 if narrow else 6)
    draw_axis(canvas, scale, 2, bottom, drawing.axis)
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
