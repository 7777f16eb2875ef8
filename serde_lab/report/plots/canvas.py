"""Provides a drawing surface through matplotlib, written as SVG or PNG.

Coordinates are pixels from the top left, sizes are pixels, and colours are roles of the palette. Text
stays text: it is never parsed as mathematics, and characters that XML cannot hold are escaped.
What every plot with rows needs is here too: a scale, a horizontal axis, and space for labels.
"""

from __future__ import annotations

import io
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Literal

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Rectangle
from matplotlib.text import Text
from matplotlib.ticker import MaxNLocator

from serde_lab.report import notation
from serde_lab.report.plots import palette
from serde_lab.runs.plain_text import plain

TEXT_PX = 12.5
SMALL_PX = 11.0

_CHARACTER = 0.57
"""Assumed mean width of a character relative to its size, since the browser's font is unknown."""

_SETTINGS: dict[Any, Any] = {
    "svg.fonttype": "none",
    "svg.hashsalt": "serde_lab",
    "text.parse_math": False,
    "font.family": "sans-serif",
    "hatch.linewidth": 1.2,
    "path.simplify": False,
}


def text_width(text: str, size_px: float = TEXT_PX) -> float:
    """Approximate width of a text in pixels; wide characters (CJK, emoji) count double."""
    return sum(2.0 if ord(c) > 0x2E7F else 1.0 for c in text) * _CHARACTER * size_px


def fitting(text: str, width_px: float, size_px: float = TEXT_PX) -> str:
    """The text, cut in the middle if it is wider than `width_px`."""
    flat = " ".join(text.split())
    # start at most this long, so that even a very long name is cut in a few steps
    characters = min(len(flat), int(width_px / (_CHARACTER * size_px)) + 1)
    while characters > 3 and text_width(notation.shortened(flat, characters), size_px) > width_px:
        characters -= 1
    return notation.shortened(flat, characters)


def nice_ticks(highest: float, at_most: int, lowest: float = 0.0) -> list[float]:
    """Round numbers from `lowest` to `highest`, about `at_most` of them."""
    locator = MaxNLocator(nbins=max(1, at_most), steps=[1, 2, 2.5, 5, 10])
    ticks = (float(tick) for tick in locator.tick_values(lowest, highest))
    margin = (highest - lowest) * 1e-9
    return [tick for tick in ticks if lowest - margin <= tick <= highest + margin]


class Canvas:
    """One drawing of `width_px` by `height_px`; `tips` are hover texts by group id."""

    def __init__(self, width_px: float, height_px: float) -> None:
        self.width_px, self.height_px = width_px, height_px
        self.tips: dict[str, str] = {}
        with _quiet():
            self._figure = Figure(figsize=(width_px / 72, height_px / 72), dpi=72)
            axes: Axes = self._figure.add_axes((0, 0, 1, 1))
            axes.set_xlim(0, width_px)
            axes.set_ylim(height_px, 0)
            axes.set_axis_off()
        self._axes = axes

    def box(
        self, x: float, y: float, width: float, height: float, role: str, tip: str = ""
    ) -> None:
        """Draw a filled box; `unattributed` is hatched, to be recognizable without colour."""
        hatched, outlined = role == "unattributed", role in palette.OUTLINED
        colour = palette.light(role)
        edge = palette.light("muted") if outlined else colour if hatched else "none"
        inset = 0.4 if outlined and width > 1 else 0.0
        self._add(
            Rectangle(
                (x + inset, y + inset),
                max(width - 2 * inset, 0.0),
                height - 2 * inset,
                facecolor=palette.light("page") if hatched else colour,
                edgecolor=edge,
                hatch="////" if hatched else None,
                linewidth=0.8 if hatched or outlined else 0,
            ),
            tip,
        )

    def line(
        self,
        x: Sequence[float],
        y: Sequence[float],
        role: str,
        width: float = 1.0,
        dashed: bool = False,
        tip: str = "",
    ) -> None:
        """Draw a line through points."""
        style: Any = (0, (4, 3)) if dashed else "-"
        self._add(
            Line2D(
                list(x),
                list(y),
                color=palette.light(role),
                linewidth=width,
                linestyle=style,
                solid_capstyle="butt",
            ),
            tip,
        )

    def mark(
        self,
        x: float,
        y: float,
        role: str,
        shape: Literal["dot", "diamond", "cross"] = "dot",
        tip: str = "",
    ) -> None:
        """Draw a point: a filled dot, a hollow diamond or a cross, recognizable without colour."""
        colour, page = palette.light(role), palette.light("page")
        marker, fill, edge, width = {
            "dot": ("o", colour, page, 0.8),
            "diamond": ("D", page, colour, 1.5),
            "cross": ("x", colour, colour, 1.8),
        }[shape]
        self._add(
            Line2D(
                [x],
                [y],
                color=colour,
                linestyle="none",
                marker=marker,
                markersize=6.4 if shape == "diamond" else 8.0,
                markerfacecolor=fill,
                markeredgecolor=edge,
                markeredgewidth=width,
            ),
            tip,
        )

    def text(
        self,
        x: float,
        y: float,
        text: str,
        role: str = "ink",
        size_px: float = TEXT_PX,
        align: Literal["left", "center", "right"] = "left",
        bold: bool = False,
        room: float | None = None,
    ) -> None:
        """Draw a line of text; `y` is the middle of its small letters.

        With `room`, the text is cut to so many pixels, and is in full its own hover text.
        """
        tip = "" if room is None else text
        text = text if room is None else fitting(text, room, size_px)
        self._add(
            Text(
                x,
                y + size_px * 0.35,
                plain(text),
                color=palette.light(role),
                fontsize=size_px,
                ha=align,
                va="baseline",
                fontweight="bold" if bold else "normal",
                parse_math=False,
            ),
            tip,
        )

    def _add(self, artist: Any, tip: str) -> None:
        artist.set_clip_on(False)
        # later drawings lie on top of earlier ones
        artist.set_zorder(len(self._axes.get_children()))
        if tip:
            name = f"tip{len(self.tips)}"
            artist.set_gid(name)
            self.tips[name] = plain(tip)
        self._axes.add_artist(artist)

    def svg(self, background: bool = False) -> str:
        """The drawing as matplotlib's SVG; equal drawings give equal text."""
        out = io.StringIO()
        with _quiet():
            self._figure.patch.set_visible(background)
            self._figure.savefig(
                out,
                format="svg",
                facecolor=palette.light("page"),
                metadata={"Date": None, "Creator": None},
            )
        return out.getvalue()

    def png(self) -> bytes:
        """The drawing as a PNG, in light colours on white."""
        out = io.BytesIO()
        with _quiet():
            self._figure.patch.set_visible(True)
            self._figure.savefig(
                out,
                format="png",
                dpi=72 * 2,
                facecolor=palette.light("page"),
                metadata={"Software": None},
            )
        return out.getvalue()


@contextmanager
def _quiet() -> Iterator[None]:
    """Apply the module's settings over the user's matplotlibrc; ignore missing glyphs, since the browser
    has its own fonts."""
    with matplotlib.rc_context(), warnings.catch_warnings():
        matplotlib.rcdefaults()
        matplotlib.rcParams.update(_SETTINGS)
        warnings.filterwarnings("ignore", message="Glyph .* missing", category=UserWarning)
        yield


AXIS_PX = 40.0
"""Height of an axis with its numbers and its name."""


def is_narrow(width_px: float) -> bool:
    """Whether the width is that of a phone."""
    return width_px < 600


def label_width(labels: Sequence[str]) -> float:
    """Width for the labels left of the rows: at most 250 pixels, plus the gap."""
    return min(250.0, max((text_width(label) for label in labels), default=0.0)) + 12


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
        canvas.text(x, bottom + 11, f"{tick:,.10g}", "muted", SMALL_PX, "center")
    if name:
        room = canvas.width_px - scale.left
        canvas.text(scale.left, bottom + 28, fitting(name, room, SMALL_PX), "muted", SMALL_PX)
