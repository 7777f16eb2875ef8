"""Reads a report page back: a strict HTML parser for tests, and what it found."""

from __future__ import annotations

from html.parser import HTMLParser

_VOID = frozenset({"meta", "link", "br", "hr", "img", "input", "wbr"})
_INSIDE = {
    "tr": {"thead", "tbody"},
    "td": {"tr"},
    "th": {"tr"},
    "tbody": {"table"},
    "thead": {"table"},
    "caption": {"table"},
    "li": {"ul", "ol"},
    "dt": {"dl", "div"},
    "dd": {"dl", "div"},
    "figcaption": {"figure"},
    "summary": {"details"},
}
_NO_PARAGRAPH_HOLDS = frozenset({"p", "div", "table", "ul", "dl", "section", "figure", "details"})


class PageReader(HTMLParser):
    """Raises AssertionError where a page is not well formed; collects tags, ids and text."""

    def __init__(self, page: str) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.ids: list[str] = []
        self._open: list[str] = []
        self._words: list[str] = []
        self.feed(page)
        self.close()
        assert self._open == [], f"never closed: {self._open}"

    @property
    def text(self) -> str:
        """Everything a reader can read, tool tips of plots included."""
        return " ".join(" ".join(self._words).split())

    def names(self) -> set[str]:
        return {tag for tag, _ in self.tags}

    def having(self, attribute: str) -> list[str]:
        return [
            value or "" for _, held in self.tags for key, value in held.items() if key == attribute
        ]

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        held = dict(attrs)
        assert len(held) == len(attrs), f"an attribute twice in <{tag} {attrs}>"
        parent = self._open[-1] if self._open else ""
        if tag in _INSIDE:
            assert parent in _INSIDE[tag], f"<{tag}> inside <{parent}>"
        if tag in _NO_PARAGRAPH_HOLDS:
            assert "p" not in self._open, f"<{tag}> inside a paragraph"
        self.tags.append((tag, held))
        if held.get("id"):
            self.ids.append(held["id"] or "")
        if tag not in _VOID:
            self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self._open, f"</{tag}> closes nothing"
        assert self._open[-1] == tag, f"</{tag}> closes <{self._open[-1]}>"
        self._open.pop()

    def handle_data(self, data: str) -> None:
        if not {"style", "script"} & set(self._open):
            self._words.append(data)
