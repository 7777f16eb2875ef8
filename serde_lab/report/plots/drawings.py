"""What the plots show, as frozen values: rows with bars, rows with points, steps, lines.

Owns the data of a plot, in the unit of its axis and with the text of every label. Must not know
matplotlib (that is `plots`), pages or runs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias


@dataclass(frozen=True, slots=True)
class Segment:
    """A part of a bar: `role` is its colour in the palette, `text` what hovering says."""

    role: str
    value: float
    text: str


@dataclass(frozen=True, slots=True)
class Bar:
    """A row of segments; `total` stands at its end, `tick` marks a predicted total."""

    label: str
    segments: tuple[Segment, ...]
    total: str
    tick: float | None = None
    absent: str = ""
    """Why there is no bar; "" where there is one."""


@dataclass(frozen=True, slots=True)
class Panel:
    """Bars under one heading."""

    heading: str
    bars: tuple[Bar, ...]


@dataclass(frozen=True, slots=True)
class Key:
    """A group of colours: (role, label) of each, under one name or none."""

    group: str
    items: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class StackedBars:
    """Panels with one scale for all, so that a length means the same everywhere."""

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
    """Points of one row; `middle` is marked, `low` to `high` drawn as a line where given."""

    label: str
    points: tuple[Point, ...]
    middle: float | None = None
    low: float | None = None
    high: float | None = None
    note: str = ""


@dataclass(frozen=True, slots=True)
class PointRows:
    """Rows of points on one axis. `line` is a value to compare with (1 for ratios)."""

    axis: str
    rows: tuple[PointRow, ...]
    from_zero: bool = True
    line: float | None = None


@dataclass(frozen=True, slots=True)
class Step:
    """One rung of a ladder: its bar, and what was changed to get here."""

    label: str
    value: float | None
    value_text: str
    change: str = ""
    sound: bool = True
    """Whether exactly one factor changed, so that the step has one cause."""


@dataclass(frozen=True, slots=True)
class Steps:
    axis: str
    steps: tuple[Step, ...]


@dataclass(frozen=True, slots=True)
class Line:
    """A series of (x, y); `x` are the positions, named by `Lines.x_labels` where there are any."""

    label: str
    role: str
    points: tuple[tuple[float, float], ...]


@dataclass(frozen=True, slots=True)
class Lines:
    """Series over one x axis; `band` shades a range of y, `marks` are vertical lines with a text."""

    x_axis: str
    y_axis: str
    lines: tuple[Line, ...]
    x_labels: tuple[str, ...] = ()
    band: tuple[float, float] | None = None
    marks: tuple[tuple[float, str], ...] = ()
    logarithmic: bool = False
    from_zero: bool = True
    x_logarithmic: bool = False


Drawing: TypeAlias = StackedBars | PointRows | Steps | Lines
