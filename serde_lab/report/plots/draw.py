"""Draws any drawing at a given width; every plot of a report has a wide and a narrow version.

The narrow version (for phones) puts labels above their bars and panels below each other, since a shrunk
wide version would be unreadable.
"""

from __future__ import annotations

from serde_lab.report.plots.bars import draw_bars
from serde_lab.report.plots.canvas import Canvas
from serde_lab.report.plots.drawings import Drawing, Lines, PointRows, StackedBars, Steps
from serde_lab.report.plots.lines import draw_lines
from serde_lab.report.plots.points import draw_points
from serde_lab.report.plots.steps import draw_steps

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
    assert isinstance(drawing, Lines)
    return draw_lines(drawing, width_px)
