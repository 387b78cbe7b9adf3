"""Brave's Web Search API (`GET /res/v1/web/search`)."""

from __future__ import annotations

import html
import re
from typing import TYPE_CHECKING, Final
from urllib.parse import quote, urlsplit

from services.vault_proxy.web.providers.asking import ask, objects, text
from services.vault_proxy.web.providers.port import MAX_RESULTS, Found

if TYPE_CHECKING:
    from collections.abc import Sequence

    from chassis.secret import Secret
    from drover.agent.v1.tool_pb2 import UserLocation
    from services.vault_proxy.outbound import Outbound

URL: Final = "https://api.search.brave.com"
_PATH: Final = "/res/v1/web/search"
_MARKS: Final = re.compile(r"</?strong>")


class BraveSearch:
    """Asks Brave, under a subscription's key."""

    def __init__(self, outbound: Outbound, url: str, key: Secret) -> None:
        self._outbound = outbound
        self._url = url.rstrip("/") + _PATH
        self._key = key

    @property
    def host(self) -> str:
        """See `SearchProvider.host`."""
        return urlsplit(self._url).hostname or ""

    async def search(self, query: str, location: UserLocation | None) -> Sequence[Found]:
        """See `SearchProvider.search`."""
        asked = {"q": query, "count": str(MAX_RESULTS), "extra_snippets": "true"}
        headers = {"x-subscription-token": self._key.open()}
        if location is not None:
            if location.country:
                asked["country"] = location.country
            headers |= {
                name: quote(value, safe=" ,.'-/")
                for name, value in (
                    ("x-loc-city", location.city),
                    ("x-loc-state-name", location.region),
                    ("x-loc-country", location.country),
                    ("x-loc-timezone", location.timezone),
                )
                if value
            }
        answer = await ask(self._outbound, self._url, asked, headers)
        web = answer.get("web")
        found = objects(web.get("results")) if isinstance(web, dict) else []
        return [
            Found(
                url=text(one.get("url")),
                title=_plain(one.get("title")),
                text="\n".join(
                    _plain(part)
                    for part in (one.get("description"), *_list(one.get("extra_snippets")))
                    if part
                ),
                age=text(one.get("age") or one.get("page_age")),
            )
            for one in found
        ]


def _list(value: object) -> list[object]:
    return value if isinstance(value, list) else []


def _plain(value: object) -> str:
    """Text without the marks of what matched."""
    return html.unescape(_MARKS.sub("", text(value)))
