# SPDX-License-Identifier: Apache-2.0
"""Read HTML as text in which cells, quotations and struck words can still be told."""

from __future__ import annotations

import re
from html.parser import HTMLParser

STRUCK = "⟦struck⟧"
"""Stands around each piece of a line that is struck, or that a reader of the mail does not see."""
_LINES = frozenset(
    ("br", "p", "div", "li", "ul", "ol", "tr", "table", "h1", "h2", "h3", "h4", "h5", "h6", "blockquote")
)
_CELLS = frozenset(("td", "th"))
_VOID = frozenset(("br", "hr", "img", "input", "link", "meta", "wbr", "col"))
_HIDDEN = frozenset(("style", "script", "head"))
_STRUCK = frozenset(("s", "strike", "del"))
_MARKDOWN = re.compile(r"~~(?=\S)(.+?)~~", re.DOTALL)
_TAG = re.compile(r"</?[a-zA-Z][^<>]*>")
_UNSEEN = r"line-through|display\s*:\s*none|visibility\s*:\s*hidden"
_STRUCK_STYLE = re.compile(_UNSEEN, re.IGNORECASE)
_STRUCK_CLASS = re.compile(rf"\.([\w-]+)\s*\{{[^{{}}]*(?:{_UNSEEN})", re.IGNORECASE)
_OVERLAID = re.compile("(?:[^\n][\u0335-\u0338])+")
_OVERLAY = re.compile("[\u0335-\u0338]")


def html_text(pasted: str) -> str:
    """The words of HTML or of plain text: a tab between cells, ``>`` before quoted lines.

    :param pasted: HTML, Markdown or plain text.
    """
    marked = _OVERLAID.sub(lambda found: f"<s>{_OVERLAY.sub('', found.group())}</s>", pasted)
    text = _read(_MARKDOWN.sub(r"<s>\1</s>", marked))
    return _read(text) if _TAG.search(text) else text  # HTML that was escaped


def _read(marked: str) -> str:
    reader = _Reader(frozenset(_STRUCK_CLASS.findall(marked)))
    reader.feed(marked.replace("<![", "< ["))  # the parser stops at an odd section
    reader.close()
    return "".join(reader.pieces)


class _Reader(HTMLParser):
    def __init__(self, struck_classes: frozenset[str]) -> None:
        super().__init__(convert_charrefs=True)
        self._struck_classes = struck_classes
        self.pieces: list[str] = []
        self._open: list[tuple[str, bool]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag == "body":
            self._open.clear()  # a head without an end
        self._space(tag)
        if tag not in _VOID:
            was_struck = self._is_struck
            self._open.append((tag, tag in _STRUCK or self._has_struck_style(dict(attrs))))
            self._mark(was_struck)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._space(tag)

    def handle_endtag(self, tag: str) -> None:
        was_struck = self._is_struck
        if any(name == tag for name, _ in self._open):
            while self._open.pop()[0] != tag:
                pass
        self._mark(was_struck)
        if tag not in _CELLS:
            self._space(tag)

    def handle_data(self, data: str) -> None:
        if not any(name in _HIDDEN for name, _ in self._open):
            lines = data.split("\n")
            self.pieces.append(lines[0])
            for line in lines[1:]:
                self._break()
                self.pieces.append(line)

    @property
    def _is_struck(self) -> bool:
        return any(struck for _, struck in self._open)

    def _has_struck_style(self, attrs: dict[str, str | None]) -> bool:
        classes = (attrs.get("class") or "").split()
        is_styled = "hidden" in attrs or _STRUCK_STYLE.search(attrs.get("style") or "") is not None
        return is_styled or not self._struck_classes.isdisjoint(classes)

    def _mark(self, was_struck: bool) -> None:
        if self._is_struck != was_struck:
            self.pieces.append(f" {STRUCK} ")

    def _space(self, tag: str) -> None:
        if tag in _LINES:
            self._break()
        elif tag in _CELLS:
            self.pieces.append("\t")

    def _break(self) -> None:
        quoted = "> " * sum(name == "blockquote" for name, _ in self._open)
        struck = f" {STRUCK} " if self._is_struck else ""
        self.pieces.append(f"{struck}\n{quoted}{struck}")
