"""Which URLs a session has been shown, and by whom: web_fetch takes no others (SEMANTICS §2).

A page that the model has been talked into reading is a way out for what the session knows, in the
URL itself. So only URLs count that somebody else has written down whole: the user in the text of a
message, the client in the result of a custom tool, the web in a result of web_search or web_fetch.
What the model, its system prompt, attachments, the sandbox or an MCP server say counts for nothing.

Compared is the URL as it would be asked for: scheme and host in lower case, without the scheme's
own port and without a fragment, with `/` for an empty path and %-escapes for what is not ASCII in
it. All else is compared byte for byte.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final
from urllib.parse import quote

from drover.agent.v1.tool_pb2 import (
    URL_SOURCE_TYPE_EXCEPT,
    URL_SOURCE_TYPE_NONE,
    URL_SOURCE_TYPE_ONLY,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from drover.agent.v1.tool_pb2 import UrlSource, UrlSources
    from drover.event.v1.content_pb2 import ContentBlock

MAX_LINKS: Final = 20_000
"""URLs that are remembered, past which the oldest is forgotten."""

MAX_URL: Final = 2048
"""Characters of the longest URL that is fetched."""

USER: Final = "user"
_CLIENT: Final = "client:"
_SERVER: Final = "server:"
_DIGEST_BYTES: Final = 16

_URL: Final = re.compile(r"""https?://[^\s<>"'`{}|\\^\x00-\x20\x7f]+""", re.IGNORECASE)
# What people write for a URL: a name with a known look, at the edge of a word.
_BARE: Final = re.compile(
    r"""(?<![\w@/.:%-])(?:[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?\.)+[a-z]{2,63}"""
    r"""(?::\d{1,5})?(?:/[^\s<>"'`{}|\\^]*)?""",
    re.IGNORECASE,
)
_PARTS: Final = re.compile(r"(https?)://([^/?#]*)([^?#]*)(\?[^#]*)?(?:#.*)?\Z", re.IGNORECASE)
_PORTS: Final = {"http": ":80", "https": ":443"}
_CLOSING: Final = {")": "(", "]": "["}
_TRAILING: Final = ".,;:!?*_~"


@dataclass(slots=True)
class Links:
    """The URLs that were seen, as digests, and who has shown each."""

    seen: dict[bytes, list[str]] = field(default_factory=dict)

    def user(self, contents: Iterable[ContentBlock]) -> None:
        """A message of the user's: its text, where a bare `example.com/a` is a URL too."""
        for block in contents:
            if block.HasField("text"):
                self._add(USER, _urls(block.text.text))
                self._add(USER, _bare(block.text.text))

    def client(self, tool: str, contents: Iterable[ContentBlock]) -> None:
        """A result of the custom tool `tool`."""
        self._contents(_CLIENT + tool, contents)

    def server(self, tool: str, contents: Iterable[ContentBlock]) -> None:
        """A result of the web tool `tool`, which went well."""
        self._contents(_SERVER + tool, contents)

    def known(self, url: str, sources: UrlSources | None) -> bool:
        """Whether one of the `sources` that count has shown `url`, a canonical one."""
        return any(_counts(shown, sources) for shown in self.seen.get(_digest(url), ()))

    def _contents(self, shown: str, contents: Iterable[ContentBlock]) -> None:
        for block in contents:
            if block.HasField("text"):
                self._add(shown, _urls(block.text.text))
            elif block.HasField("search_result"):
                self._add(shown, _urls(block.search_result.source))
                for part in block.search_result.content:
                    self._add(shown, _urls(part.text))

    def _add(self, shown: str, urls: Iterable[str]) -> None:
        for url in urls:
            by = self.seen.setdefault(_digest(url), [])
            if shown not in by:
                by.append(shown)
        while len(self.seen) > MAX_LINKS:
            del self.seen[next(iter(self.seen))]


def canonical_url(text: str) -> str:
    """The one spelling of a URL; empty for a text that is none, or too long a one."""
    found = _PARTS.match(text)
    if found is None or not found[2] or len(text) > MAX_URL:
        return ""
    scheme = found[1].lower()
    authority = found[2].lower().removesuffix(_PORTS[scheme])
    target = (found[3] or "/") + (found[4] or "")
    if not target.isascii():
        target = "".join(one if one.isascii() else quote(one, errors="replace") for one in target)
    return f"{scheme}://{authority}{target}"


def _counts(shown: str, sources: UrlSources | None) -> bool:
    if sources is None:
        return True
    if shown == USER:
        return sources.user_input.type != URL_SOURCE_TYPE_NONE
    if shown.startswith(_CLIENT):
        return _admits(sources.client_tool_results, shown.removeprefix(_CLIENT))
    return _admits(sources.server_tool_results, shown.removeprefix(_SERVER))


def _admits(source: UrlSource, tool: str) -> bool:
    match source.type:
        case t if t == URL_SOURCE_TYPE_NONE:
            return False
        case t if t == URL_SOURCE_TYPE_ONLY:
            return any(one.name == tool for one in source.tools)
        case t if t == URL_SOURCE_TYPE_EXCEPT:
            return all(one.name != tool for one in source.tools)
        case _:
            return True


def _urls(text: str) -> Iterator[str]:
    if "://" not in text:
        return
    place = 0
    while (found := _URL.search(text, place)) is not None:
        whole = _trimmed(found[0])
        place = found.start() + max(len(whole), 1)  # another may stand behind a bracket
        if url := canonical_url(whole):
            yield url


def _bare(text: str) -> Iterator[str]:
    if "." not in text:
        return
    for found in _BARE.finditer(text):
        for scheme in ("https://", "http://"):
            if url := canonical_url(scheme + _trimmed(found[0])):
                yield url


def _trimmed(text: str) -> str:
    """A URL without what only stands behind it: a bracket that it did not open, a full stop."""
    opened: list[str] = []
    for place, character in enumerate(text):
        if character in "([":
            opened.append(character)
        elif character in _CLOSING and (not opened or opened.pop() != _CLOSING[character]):
            text = text[:place]
            break
    return text.rstrip(_TRAILING)


def _digest(url: str) -> bytes:
    return hashlib.blake2b(url.encode("utf-8", "surrogatepass"), digest_size=_DIGEST_BYTES).digest()
