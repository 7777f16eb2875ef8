"""Adapts matplotlib's SVG for embedding in a page.

Its ids get the figure's name as a prefix, its colours become CSS variables, its fonts the page's, and
its groups get hover texts. A title and a description are the text alternative.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from xml.etree import ElementTree

from serde_lab.report.plots import palette
from serde_lab.runs.plain_text import plain

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
    return _COLOUR.sub(lambda match: palette.VARIABLE_OF.get(match[0].lower(), match[0]), plain)


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
