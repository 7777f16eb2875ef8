"""Defines the content of plots as frozen values: rows with bars, rows with points, steps, lines, panels.

Values are in the unit of their axis; labels are ready-made texts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from math import fsum
from typing import Literal, TypeAlias

from serde_lab.report.plots.palette import line_role


@dataclass(frozen=True, slots=True)
class Segment:
    """A part of a bar: `role` is its colour in the palette, `text` its hover text."""

    role: str
    value: float
    text: str


@dataclass(frozen=True, slots=True)
class Bar:
    """A row of segments; `total` is the text at its end. `tick` is a predicted total; `tick_text` says it."""

    label: str
    segments: tuple[Segment, ...]
    total: str
    tick: float | None = None
    tick_text: str = ""
    absent: str = ""
    """The reason why there is no bar; "" if there is one."""


def stacked(
    label: str,
    parts: Iterable[tuple[str, str, float]],
    text: Callable[[float], str],
    tick: float | None = None,
) -> Bar:
    """The bar of the parts above 0, each with its role, its name and its value, which `text` shows; at its
    end stands their sum."""
    segments = tuple(
        Segment(role, value, f"{label}, {name}: {text(value)}")
        for role, name, value in parts
        if value > 0
    )
    total = text(fsum(one.value for one in segments))
    return Bar(label, segments, total, tick, "" if tick is None else text(tick))


@dataclass(frozen=True, slots=True)
class Panel:
    """Bars under a common heading."""

    heading: str
    bars: tuple[Bar, ...]


@dataclass(frozen=True, slots=True)
class Key:
    """A group of the colour key: (role, label) of each colour, with a name or without."""

    group: str
    items: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class StackedBars:
    """Panels with a common scale, so that a length means the same in all of them."""

    axis: str
    panels: tuple[Panel, ...]
    legend: tuple[Key, ...] = ()
    tick_label: str = ""


@dataclass(frozen=True, slots=True)
class Point:
    """`kind`: measured, cold (a warm-up round), or marked (a round that moved with its machine)."""

    value: float
    kind: Literal["measured", "cold", "marked"]
    text: str


@dataclass(frozen=True, slots=True)
class PointRow:
    """Points of one row; `middle` is marked, `low` to `high` is drawn as a line if given."""

    label: str
    points: tuple[Point, ...]
    middle: float | None = None
    low: float | None = None
    high: float | None = None
    note: str = ""


@dataclass(frozen=True, slots=True)
class PointRows:
    """Rows of points on one axis. `line` is a reference value (1 for ratios), `a_point` what a point is."""

    axis: str
    rows: tuple[PointRow, ...]
    from_zero: bool = True
    line: float | None = None
    a_point: str = "a measured round"


@dataclass(frozen=True, slots=True)
class Step:
    """One step of a ladder: its bar, and the change that leads to it."""

    label: str
    value: float | None
    value_text: str
    change: str = ""
    sound: bool = True
    """Whether exactly one factor changed, so that the step has a single cause."""


@dataclass(frozen=True, slots=True)
class Steps:
    axis: str
    steps: tuple[Step, ...]


@dataclass(frozen=True, slots=True)
class Line:
    """A series of (x, y); `x` are positions, with the names `Lines.x_labels` if there are any.

    Points that are not `joined` by a line are drawn as diamonds. `ranges` are the intervals of the points;
    only small panels draw them.
    """

    label: str
    role: str
    points: tuple[tuple[float, float], ...]
    joined: bool = True
    ranges: tuple[tuple[float, float], ...] = ()


def lines_of(series: Mapping[str, Iterable[tuple[float, float]]]) -> tuple[Line, ...]:
    """A line for each series, by its label, in the colours of lines."""
    return tuple(
        Line(label, line_role(place), tuple(points))
        for place, (label, points) in enumerate(series.items())
    )


@dataclass(frozen=True, slots=True)
class Lines:
    """Series over one x axis; `band` shades a range of y, `marks` are vertical lines with texts."""

    x_axis: str
    y_axis: str
    lines: tuple[Line, ...]
    x_labels: tuple[str, ...] = ()
    band: tuple[float, float] | None = None
    marks: tuple[tuple[float, str], ...] = ()
    logarithmic: bool = False
    from_zero: bool = True
    x_logarithmic: bool = False


@dataclass(frozen=True, slots=True)
class SmallPanel:
    """Lines over named positions: `x` of a point is the place of its name in `x_labels`."""

    heading: str
    x_labels: tuple[str, ...]
    lines: tuple[Line, ...]


@dataclass(frozen=True, slots=True)
class Multiples:
    """Small panels with one logarithmic scale of y; 1 and `limit` are marked by dashed lines.

    `legend` has (role, label) of each line.
    """

    y_axis: str
    panels: tuple[SmallPanel, ...]
    legend: tuple[tuple[str, str], ...]
    limit: float | None = None


Drawing: TypeAlias = StackedBars | PointRows | Steps | Lines | Multiples
