"""An HTML page as text that a model reads well: Markdown, in short.

Runs over pages of strangers: in one pass, without recursion, and with the standard library alone,
so that a process of its own can do it (`reader`). What a page hides from people is left out.
"""

from __future__ import annotations

import re
from contextlib import suppress
from dataclasses import dataclass
from html.parser import HTMLParser
from typing import Final
from urllib.parse import urljoin

_UNSEEN: Final = frozenset(
    {"script", "style", "template", "svg", "math", "iframe", "object", "canvas", "select"}
    | {"datalist", "audio", "video", "dialog"}
)
_VOID: Final = frozenset(
    {"area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "source", "track"}
    | {"wbr", "param"}
)
_BLOCKS: Final = frozenset(
    {"address", "article", "aside", "blockquote", "body", "dd", "details", "div", "dl", "dt"}
    | {"fieldset", "figcaption", "figure", "footer", "form", "header", "hr", "html", "li", "main"}
    | {
        "nav",
        "ol",
        "p",
        "pre",
        "section",
        "summary",
        "table",
        "tbody",
        "tfoot",
        "thead",
        "tr",
        "ul",
    }
    | {"h1", "h2", "h3", "h4", "h5", "h6", "center", "caption"}
)
# Elements that end where another of their kind begins.
_IMPLIED: Final = {"li": ("li", "p"), "dt": ("dt", "dd", "p"), "dd": ("dt", "dd", "p"), "p": ("p",)}
_CELLS: Final = {"tr": ("tr", "td", "th", "p"), "td": ("td", "th", "p"), "th": ("td", "th", "p")}
_ENDED: Final = _IMPLIED | _CELLS
_HEADING: Final = re.compile(r"h([1-6])\Z")
_HIDDEN: Final = re.compile(r"display\s*:\s*none|visibility\s*:\s*hidden|font-size\s*:\s*0", re.I)
# A tag or a comment without an end: no browser shows it, nor anything behind it.
_OPEN_MARKUP: Final = re.compile("<[!/?a-zA-Z]")
_SPACES: Final = re.compile(r"[ \t\n\r\f\v\xa0]+")
_LINES: Final = re.compile(r"\n{3,}")
_EDGES: Final = re.compile(r"[ \t]+\n")
# Controls, direction overrides, tags and joiners that nobody sees, and a model reads.
_INVISIBLE: Final = re.compile(
    "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\xad\u180e\u200b\u200e\u200f\u202a-\u202e\u2060-\u2069"
    "\ufeff\ufff9-\ufffb\U000e0000-\U000e0fff]"
)
# What would end a link before its end.
_ESCAPED: Final = {ord(one): f"%{ord(one):02X}" for one in " <>()[]\"'`\\^{|}"}
_MAX_HREF: Final = 2048
_MAX_TITLE: Final = 300


@dataclass(frozen=True, slots=True)
class Page:
    """What a page says. `cut`: it says more than was asked for."""

    title: str
    text: str
    cut: bool


def visible(text: str) -> str:
    """`text` without what nobody sees."""
    return _INVISIBLE.sub("", text)


def read(html: str, base: str, limit: int) -> Page:
    """The page `html`, whose links are relative to `base`, up to `limit` characters."""
    reader = _Reader(base, limit)
    with suppress(_Full):
        reader.feed(html)
        if not _OPEN_MARKUP.match(reader.rawdata):
            reader.close()
    text = _LINES.sub("\n\n", _EDGES.sub("\n", "".join(reader.parts))).strip()
    title = _SPACES.sub(" ", visible("".join(reader.title))).strip()[:_MAX_TITLE]
    return Page(title, text[:limit], cut=reader.full or len(text) > limit)


class _Full(Exception):  # noqa: N818  # a thing that happens
    """More is not wanted."""


@dataclass(slots=True)
class _Open:
    """An element that is open."""

    tag: str
    unseen: bool = False
    href: str = ""
    start: int = 0
    items: int = 0


class _Reader(HTMLParser):
    def __init__(self, base: str, limit: int) -> None:
        super().__init__(convert_charrefs=True)
        self.parts: list[str] = []
        self.title: list[str] = []
        self.full = False
        self._base = base
        self._left = limit + 4096  # white space that goes again
        self._open: list[_Open] = []
        self._counts: dict[str, int] = {}
        self._unseen = 0
        self._in_title = False
        self._pre = 0
        self._fresh = True  # nothing on this line yet

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        if tag == "title" and not self.title and not self._unseen:
            self._in_title = True
            return
        if tag == "base" and (href := given.get("href")):
            self._base = _joined(self._base, href) or self._base
        if tag in _VOID:
            if not self._unseen:
                self._void(tag, given)
            return
        if tag == "a":  # one in another is none
            self._close_to("a")
        while self._open and self._open[-1].tag in _ENDED.get(tag, ()):
            self._close_to(self._open[-1].tag)
        element = _Open(tag, unseen=tag in _UNSEEN or _is_hidden(given))
        self._unseen += element.unseen
        self._counts[tag] = self._counts.get(tag, 0) + 1
        self._open.append(element)
        if not self._unseen:
            self._begin(element, given)

    def handle_endtag(self, tag: str) -> None:
        if tag == "title":
            self._in_title = False
        elif tag not in _VOID:
            self._close_to(tag)

    def handle_data(self, data: str) -> None:
        if self._in_title:
            self.title.append(data)
        elif not self._unseen:
            data = visible(data)
            if self._pre:
                self._write(data)
            else:
                data = _SPACES.sub(" ", data)
                self._write(data.lstrip(" ") if self._fresh else data)

    def _close_to(self, tag: str) -> None:
        """Closes the innermost `tag`, and all that is open in it."""
        if not self._counts.get(tag):
            return
        while self._open:
            element = self._open.pop()
            self._counts[element.tag] -= 1
            if not self._unseen:
                self._end(element)
            self._unseen -= element.unseen
            if element.tag == tag:
                return

    def _begin(self, element: _Open, given: dict[str, str | None]) -> None:
        tag = element.tag
        if tag in {"td", "th"}:
            self._write("" if self._fresh else " | ")
        elif tag in _BLOCKS:
            self._line(blank=tag not in {"li", "tr", "dt", "dd", "div", "ul", "ol"})
        if tag == "a":
            element.href = _joined(self._base, given.get("href") or "")
            element.start = len(self.parts)
        elif tag == "li":
            self._item()
        elif tag == "pre":
            self._pre += 1
            self._write("```\n")
        elif tag == "code" and not self._pre:
            self._write("`")
        elif tag == "blockquote":
            self._write("> ")
        elif heading := _HEADING.match(tag):
            self._write("#" * int(heading[1]) + " ")

    def _end(self, element: _Open) -> None:
        tag = element.tag
        if tag == "pre":
            self._pre -= 1
            self._line()
            self._write("```")
        elif tag == "code" and not self._pre:
            self._write("`")
        elif tag == "a" and element.href:
            self._link(element)
        if tag in _BLOCKS:
            self._line(
                blank=tag in {"p", "pre", "table", "blockquote"} or bool(_HEADING.match(tag))
            )

    def _void(self, tag: str, given: dict[str, str | None]) -> None:
        if tag == "br":
            self._line()
        elif tag == "hr":
            self._line(blank=True)
            self._write("---")
            self._line(blank=True)
        elif tag == "img" and (alt := _SPACES.sub(" ", visible(given.get("alt") or "")).strip()):
            self._write(f"[image: {alt}]")

    def _item(self) -> None:
        lists = [element for element in self._open[-64:] if element.tag in {"ul", "ol"}]
        indent = "  " * max(0, min(len(lists), 8) - 1)
        mark = "- "
        if lists:
            lists[-1].items += 1
            mark = f"{lists[-1].items}. " if lists[-1].tag == "ol" else "- "
        self._write(indent + mark)
        self._fresh = True

    def _link(self, element: _Open) -> None:
        text = "".join(self.parts[element.start :]).strip()
        if text and "\n" not in text:
            del self.parts[element.start :]
            self._write(text if text == element.href else f"[{text}]({element.href})")
        elif text:
            self._write(f"({element.href})")

    def _line(self, *, blank: bool = False) -> None:
        self._write("\n\n" if blank else "" if self._fresh else "\n")
        self._fresh = True

    def _write(self, text: str) -> None:
        if self._left <= 0:
            self.full = True
            raise _Full
        if text:
            self._left -= len(text)
            self.parts.append(text)
            self._fresh = text.endswith("\n")


def _is_hidden(given: dict[str, str | None]) -> bool:
    if "hidden" in given or given.get("aria-hidden") == "true":
        return True
    return bool(_HIDDEN.search(given.get("style") or ""))


def _joined(base: str, href: str) -> str:
    """The URL that a link leads to; empty where that is not a page."""
    href = href.strip()
    if not href or href.startswith("#") or len(href) > _MAX_HREF:
        return ""
    try:
        url = urljoin(base, href)
    except ValueError:
        return ""
    if not url.startswith(("http://", "https://")) or len(url) > _MAX_HREF:
        return ""
    return url.partition("#")[0].translate(_ESCAPED)
