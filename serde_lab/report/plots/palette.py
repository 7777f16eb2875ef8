"""Defines all colours of a report by role, for light and dark, and gives them to the SVG in a page.

CSS, plots and tests share the colours. A role's light colour is unique, because a plot is drawn in light
colours and its SVG then gets the CSS variable of each: one drawing serves both themes.

matplotlib's SVG is adapted for embedding: its ids get the figure's name as a prefix, its colours become CSS
variables, its fonts the page's, and its groups get hover texts. A title and a description are the text
alternative.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple
from xml.etree import ElementTree

from serde_lab.runs.plain_text import plain


class Shade(NamedTuple):
    """One role's colour on a light and on a dark page."""

    light: str
    dark: str


TEXT = {
    "ink": Shade("#1b1f24", "#e8eaed"),
    "muted": Shade("#57606a", "#a3adb8"),
    "accent": Shade("#0b5cad", "#7cb7f5"),
    "good": Shade("#176639", "#6fcf97"),
    "bad": Shade("#b3261e", "#ff9c92"),
    "warn": Shade("#855000", "#f0b95b"),
}
"""Roles for text: AA contrast on every surface."""

SURFACE = {
    "page": Shade("#ffffff", "#14171b"),
    "raised": Shade("#f5f6f8", "#1d2127"),
    "bad-surface": Shade("#fdeeec", "#34191a"),
    "warn-surface": Shade("#fdf4e3", "#2e2515"),
}
"""Roles of the surfaces behind text."""

LINE = {
    "rule": Shade("#d9dde3", "#343a43"),
    "grid": Shade("#e4e7ec", "#2c323a"),
}

SERIES = {
    # SerDe: warm colours, since this is what readers look for
    "from_arrow": Shade("#c56a00", "#f2a33c"),
    "route": Shade("#8d5b3f", "#bb8a6c"),
    "encode": Shade("#cc3a4f", "#f26d7e"),
    "decode": Shade("#a0338f", "#de79cf"),
    "read_columns": Shade("#b04a7e", "#e58fb9"),
    "take": Shade("#9c6b1f", "#d3a85e"),
    "to_arrow": Shade("#6a4bbc", "#a58af0"),
    # work of the table: cool colours
    "read_source": Shade("#7f8f4a", "#b4c47c"),
    "keygen": Shade("#4b8f8c", "#7cc4c0"),
    "sniff": Shade("#5d8a6a", "#93c4a1"),
    "order": Shade("#3f7d8c", "#74b9c9"),
    "group": Shade("#6b7fb0", "#9fb2e2"),
    "precombine": Shade("#2f7f9e", "#5eb4d6"),
    "read_base": Shade("#5a86b8", "#8fb6e4"),
    "merge": Shade("#1f5f8b", "#4a93c9"),
    "payload": Shade("#806f1e", "#c9b458"),
    "write": Shade("#2f6f4f", "#5fae86"),
    "release": Shade("#7a6a9e", "#b3a6d9"),
    # waiting: grey
    "input_wait": Shade("#7a838d", "#8d97a2"),
    "output_wait": Shade("#8b949d", "#6f7984"),
    "task_setup": Shade("#4f5a66", "#c2cad3"),
    "jvm_before": Shade("#5a6b6b", "#a3b5b5"),
    "worker_start": Shade("#5f6770", "#aab3bd"),
    "bind": Shade("#565e66", "#b4bcc5"),
    "jvm_after": Shade("#66756f", "#95a89f"),
    "worker_end": Shade("#6c747d", "#9aa4ae"),
    "jvm": Shade("#6d7b6a", "#9fb09b"),
    "idle-driver": Shade("#b3bbc4", "#565f6a"),
    "idle-stage_tail": Shade("#c6ccd4", "#474f59"),
    "idle-scheduler": Shade("#d6dbe1", "#3a414a"),
    "lost_attempts": Shade("#a8423b", "#d9766e"),
    "unattributed": Shade("#33383e", "#d3d8de"),
    "other": Shade("#8a8f5a", "#bcc281"),
    # values that are not phases
    "bar": Shade("#3b6ea8", "#6ea3de"),
    "bar-pale": Shade("#6a95c9", "#587ca9"),
    "cold": Shade("#9a6b00", "#d9a83d"),
}

_LINES = (
    "bar",
    "encode",
    "write",
    "from_arrow",
    "decode",
    "merge",
    "to_arrow",
    "route",
    "keygen",
    "other",
)


def line_role(place: int) -> str:
    """The role of a plot's line, by its place among the lines; after ten they repeat."""
    return _LINES[place % len(_LINES)]


OUTLINED = frozenset({"idle-driver", "idle-stage_tail", "idle-scheduler"})
"""Series with pale colours, since nothing happens in them; they are drawn with an outline."""

PALETTE = MappingProxyType({**TEXT, **SURFACE, **LINE, **SERIES})


def light(role: str) -> str:
    """The light colour of a role, in which plots are drawn."""
    return PALETTE[role].light


def variables(theme: int) -> str:
    """The CSS custom properties of a theme: 0 light, 1 dark."""
    return " ".join(f"--{role}: {shade[theme]};" for role, shade in PALETTE.items())


VARIABLE_OF = MappingProxyType({shade.light: f"var(--{role})" for role, shade in PALETTE.items()})
"""Light colour -> CSS variable."""


Element = ElementTree.Element

_HREF = "{http://www.w3.org/1999/xlink}href"
_NAMESPACE = "http://www.w3.org/2000/svg"
_REFERENCE = re.compile(r"url\(#([^)]+)\)")
_COLOUR = re.compile(r"#[0-9a-fA-F]{6}\b")
_FONT = re.compile(r"(font: )((?:bold )?[0-9.]+px) [^;]*|font-family: [^;]*;? ?")


def embedded(
    source: str, name: str, title: str, description: str, tips: Mapping[str, str], themed: bool
) -> str:
    """The SVG as an element. With `themed`, colours are the page's CSS variables and fonts the page's.

    Every id in it starts with `name`. `title` and `description` are its text alternative.
    """
    root = ElementTree.fromstring(source)
    used = _referenced(root)
    for element in root.iter():
        element.tag = element.tag.rpartition("}")[2]
    for parent in list(root.iter()):
        for child in list(parent):
            # matplotlib's only style rule is `*{…}`, which would apply to the whole page
            if child.tag in ("metadata", "style", "title", "desc"):
                parent.remove(child)
    for element in list(root.iter()):
        _rewrite(element, name, used, tips, themed)
    _flatten(root)
    size = root.attrib["viewBox"].split()[2:]
    root.attrib.clear()
    root.attrib.update(
        {
            "xmlns": _NAMESPACE,
            "viewBox": f"0 0 {' '.join(size)}",
            "role": "img",
            "aria-labelledby": f"{name}-title",
            "aria-describedby": f"{name}-desc",
            "stroke-linejoin": "round",
        }
    )
    if themed:
        root.attrib["class"] = "plot"
    else:
        root.attrib["width"], root.attrib["height"] = size
    for position, (tag, text) in enumerate((("title", title), ("desc", description))):
        element = ElementTree.Element(tag, {"id": f"{name}-{tag}"})
        element.text = plain(text)
        root.insert(position, element)
    return ElementTree.tostring(root, encoding="unicode", short_empty_elements=False)


def _referenced(root: Element) -> frozenset[str]:
    found = set()
    for element in root.iter():
        for key, value in element.attrib.items():
            found.update(_REFERENCE.findall(value))
            if key in (_HREF, "href"):
                found.add(value.lstrip("#"))
    return frozenset(found)


def _rewrite(
    element: Element, name: str, used: frozenset[str], tips: Mapping[str, str], themed: bool
) -> None:
    old = element.attrib.pop("id", "")
    if old in used:
        element.attrib["id"] = f"{name}-{old}"
    if old in tips:
        tip = ElementTree.Element("title")
        tip.text = tips[old]
        element.insert(0, tip)
    if _HREF in element.attrib:
        element.attrib["href"] = f"#{name}-{element.attrib.pop(_HREF).lstrip('#')}"
    if "d" in element.attrib:
        element.attrib["d"] = " ".join(element.attrib["d"].split())
    if _COLOUR.fullmatch(element.attrib.get("fill", "")):
        # CSS variables work only inside a style
        element.attrib["style"] = f"fill: {element.attrib.pop('fill')}"
    if "style" in element.attrib:
        style = _REFERENCE.sub(rf"url(#{name}-\1)", element.attrib["style"])
        element.attrib["style"] = _styled(style) if themed else style
    if element.tail is not None:
        element.tail = element.tail.strip()
    if element.text is not None and element.tag not in ("text", "title"):
        element.text = element.text.strip()


def _styled(style: str) -> str:
    plain = _FONT.sub(
        lambda match: f"font-size: {match[2]}" if match[1] else "",
        style,
    )
    # the shorthand "font: bold 12px …" sets weight and size; they need separate properties
    plain = plain.replace("font-size: bold ", "font-weight: bold; font-size: ")
    return _COLOUR.sub(lambda match: VARIABLE_OF.get(match[0].lower(), match[0]), plain)


def _flatten(root: Element) -> None:
    """Remove groups that have no attributes left: half of the bytes."""
    for parent in list(root.iter()):
        for child in list(parent):
            while child.tag == "g" and not child.attrib and len(child) == 1:
                only = child[0]
                position = list(parent).index(child)
                parent.remove(child)
                parent.insert(position, only)
                child = only
