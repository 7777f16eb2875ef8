"""Plots are the same every time, carry their text, and stand any name."""

from __future__ import annotations

import re
from xml.etree import ElementTree

import pytest

from serde_lab.report.plots.canvas import fitting, nice_ticks, text_width
from serde_lab.report.plots.draw import NARROW_PX, WIDE_PX, draw
from serde_lab.report.plots.drawings import (
    Bar,
    Drawing,
    Key,
    Line,
    Lines,
    Multiples,
    Panel,
    Point,
    PointRow,
    PointRows,
    Segment,
    SmallPanel,
    StackedBars,
    Step,
    Steps,
)
from serde_lab.report.plots.palette import embedded

_HOSTILE = "</title><script>alert(1)</script> $\\frac{1}{2}$ \x00\x1b 日本語 " + "x" * 300

_DRAWINGS: dict[str, Drawing] = {
    "multiples": Multiples(
        "cost",
        (
            SmallPanel(
                _HOSTILE,
                ("5", _HOSTILE),
                (
                    Line(_HOSTILE, "bar", ((0, 0.5), (1, 30)), ranges=((0.4, 0.6), (30, 30))),
                    Line("b", "write", ((1, 2),), joined=False),
                ),
            ),
            SmallPanel("empty", (), ()),
        ),
        (("bar", _HOSTILE), ("write", "b")),
        limit=2.0,
    ),
    "bars": StackedBars(
        "seconds",
        (
            Panel(
                "map side",
                (
                    Bar(
                        _HOSTILE,
                        (
                            Segment("encode", 2.5, _HOSTILE),
                            Segment("unattributed", 0.1, "no name"),
                            Segment("idle-driver", 0.2, "idle"),
                        ),
                        "2.80 s",
                        tick=3.0,
                    ),
                    Bar("absent", (), "", absent="wrong answer"),
                ),
            ),
            Panel("reduce side", (Bar("a", (Segment("write", 0.01, "w"),), "0.01 s"),)),
        ),
        (Key("SerDe", (("encode", "encode"),)), Key("no name", (("unattributed", _HOSTILE),))),
        "expected",
    ),
    "points": PointRows(
        "seconds",
        (
            PointRow(
                _HOSTILE,
                (Point(1.0, "measured", "a"), Point(2.0, "cold", "b"), Point(1.5, "marked", "c")),
                middle=1.0,
                low=0.9,
                high=1.1,
                note="1.00 s",
            ),
        ),
        line=1.0,
    ),
    "steps": Steps(
        "seconds",
        (
            Step("pickle", 2.0, "2.00 s"),
            Step(_HOSTILE, None, "wrong answer", _HOSTILE, sound=False),
            Step("arrow", 1.0, "1.00 s", "framing", sound=True),
        ),
    ),
    "lines": Lines(
        "round",
        "ratio",
        (
            Line(_HOSTILE, "encode", ((1, 1.0), (2, 1.2))),
            Line("numpy", "write", ((1, 1.0), (2, 1.19))),
        ),
        band=(0.9, 1.1),
        marks=((1.5, _HOSTILE),),
        from_zero=False,
    ),
    "log": Lines(
        "rows",
        "µs",
        (Line("a", "encode", ((0, 100.0), (1, 1.0), (2, 0.0))),),
        x_labels=("1", "1,000", "10,000"),
        logarithmic=True,
    ),
    "nothing": StackedBars("seconds", ()),
    "no lines": Lines("x", "y", ()),
    "no points": PointRows("s", (PointRow("a", ()),)),
    "one value": PointRows("s", (PointRow("a", (Point(0.0, "measured", "z"),)),), from_zero=False),
}


@pytest.mark.parametrize("width_px", [WIDE_PX, NARROW_PX])
@pytest.mark.parametrize("name", _DRAWINGS)
def test_the_same_drawing_gives_the_same_svg(name: str, width_px: float) -> None:
    first, second = (draw(_DRAWINGS[name], width_px) for _ in range(2))
    assert first.svg() == second.svg()
    assert first.width_px == width_px


@pytest.mark.parametrize("width_px", [WIDE_PX, NARROW_PX])
@pytest.mark.parametrize("name", _DRAWINGS)
def test_an_embedded_plot_is_named_themed_and_well_formed(name: str, width_px: float) -> None:
    canvas = draw(_DRAWINGS[name], width_px)
    svg = embedded(canvas.svg(), "plot-a", _HOSTILE, "what it shows", canvas.tips, themed=True)
    root = ElementTree.fromstring(svg)
    ids = [element.attrib["id"] for element in root.iter() if "id" in element.attrib]
    assert len(ids) == len(set(ids))
    assert all(one.startswith("plot-a-") for one in ids)
    assert root.attrib["role"] == "img"
    assert root.attrib["aria-labelledby"] in ids
    assert root.attrib["aria-describedby"] in ids
    assert set(re.findall(r"url\(#([^)]*)\)", svg)) <= set(ids)
    # every colour follows the theme, every font the page
    assert not re.findall(r"#[0-9a-f]{6}\b", re.sub(r"<(title|desc).*?</\1>", "", svg))
    assert "font-family" not in svg
    assert "<script" not in svg
    assert "<style" not in svg
    assert not re.search(r"https?://(?!www\.w3\.org/2000/svg)", svg)


def test_a_file_of_its_own_keeps_its_colours_and_size() -> None:
    canvas = draw(_DRAWINGS["bars"], WIDE_PX)
    svg = embedded(canvas.svg(background=True), "bars", "t", "d", canvas.tips, themed=False)
    assert "var(--" not in svg
    assert ElementTree.fromstring(svg).attrib["width"] == "940"


def test_no_date_and_no_program_in_a_file() -> None:
    canvas = draw(_DRAWINGS["points"], WIDE_PX)
    assert "dc:date" not in canvas.svg()
    assert "matplotlib" not in canvas.svg().lower()
    png = canvas.png()
    assert png.startswith(b"\x89PNG")
    assert b"matplotlib" not in png.lower()
    assert png == draw(_DRAWINGS["points"], WIDE_PX).png()


@pytest.mark.parametrize("width_px", [WIDE_PX, NARROW_PX])
@pytest.mark.parametrize("name", _DRAWINGS)
def test_nothing_is_drawn_beside_the_sheet(name: str, width_px: float) -> None:
    canvas = draw(_DRAWINGS[name], width_px)
    root = ElementTree.fromstring(canvas.svg())
    for element in root.iter("{http://www.w3.org/2000/svg}text"):
        x, y = float(element.attrib["x"]), float(element.attrib["y"])
        assert -1 <= x <= width_px + 1
        assert 0 <= y <= canvas.height_px


def test_panels_share_one_scale() -> None:
    def width_of(svg: str, tip: str) -> float:
        path = re.search(rf"<title>{tip}</title><path d=\"M ([\d.]+) [\d.]+ L ([\d.]+)", svg)
        assert path is not None
        return float(path[2]) - float(path[1])

    drawing = StackedBars(
        "s",
        (
            Panel("one", (Bar("a", (Segment("encode", 4.0, "four"),), "4"),)),
            Panel("two", (Bar("a", (Segment("decode", 1.0, "one"),), "1"),)),
        ),
    )
    for width_px in (WIDE_PX, NARROW_PX):
        canvas = draw(drawing, width_px)
        svg = embedded(canvas.svg(), "p", "t", "d", canvas.tips, themed=True)
        assert width_of(svg, "four") == pytest.approx(4 * width_of(svg, "one"), rel=0.02)


def test_a_bar_is_as_long_as_its_segments_say() -> None:
    canvas = draw(_DRAWINGS["steps"], WIDE_PX)
    svg = embedded(canvas.svg(), "p", "t", "d", canvas.tips, themed=True)
    found = {
        tip: float(end) - float(start)
        for tip, start, end in re.findall(
            r"<title>([\d.]+ s)</title><path d=\"M ([\d.]+) [\d.]+ L ([\d.]+)", svg
        )
    }
    assert found["2.00 s"] == pytest.approx(2 * found["1.00 s"])


def test_labels_are_cut_in_the_middle_to_fit() -> None:
    label = fitting("a_very_long_arm_name_that_ends_in_1000", 120)
    assert text_width(label) <= 120
    assert label.startswith("a_very")
    assert label.endswith("1000")


def test_ticks_are_round_and_within_the_axis() -> None:
    assert nice_ticks(9.3, 5) == [0, 2, 4, 6, 8]
    assert nice_ticks(1.0, 5, lowest=0.5) == pytest.approx([0.5, 0.6, 0.7, 0.8, 0.9, 1.0])
    assert all(0 <= tick <= 0.003 for tick in nice_ticks(0.003, 6))
