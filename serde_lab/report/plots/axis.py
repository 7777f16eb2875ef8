"""Draws what every plot with rows needs: a scale, a horizontal axis, and space for labels."""

from __future__ import annotations

from collections.abc import Sequence

from serde_lab.report.plots.canvas import SMALL_PX, Canvas, fitting, nice_ticks, text_width

AXIS_PX = 40.0
"""Height of an axis with its numbers and its name."""


def is_narrow(width_px: float) -> bool:
    """Whether the width is that of a phone."""
    return width_px < 600


def label_width(labels: Sequence[str], most: float) -> float:
    """Width for the labels left of the rows: at most `most` pixels, plus the gap."""
    return min(most, max((text_width(label) for label in labels), default=0.0)) + 12


class Scale:
    """Maps values of an axis to pixels, starting at `left`."""

    def __init__(self, left: float, pixels: float, highest: float, lowest: float = 0.0) -> None:
        self.left, self.pixels = left, pixels
        self.lowest = lowest
        self.span = (highest - lowest) or 1.0

    def __call__(self, value: float) -> float:
        return self.left + (value - self.lowest) / self.span * self.pixels


def draw_axis(
    canvas: Canvas,
    scale: Scale,
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
        canvas.text(x, bottom + 11, plain(tick), "muted", SMALL_PX, "center")
    if name:
        room = canvas.width_px - scale.left
        canvas.text(scale.left, bottom + 28, fitting(name, room, SMALL_PX), "muted", SMALL_PX)


def plain(value: float) -> str:
    """The text of a tick; ticks are round numbers already."""
    return f"{value:,.10g}"
