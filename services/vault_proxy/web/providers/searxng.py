"""SearXNG's JSON API (`GET /search?format=json`), which its `settings.yml` has to offer."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from services.vault_proxy.web.providers.asking import ask, objects, text
from services.vault_proxy.web.providers.port import MAX_RESULTS, Found

if TYPE_CHECKING:
    from collections.abc import Sequence

    from chassis.secret import Secret
    from drover.agent.v1.tool_pb2 import UserLocation
    from services.vault_proxy.outbound import Outbound


class SearxngSearch:
    """Asks an instance of SearXNG. `key`, where there is one, goes along as a bearer token."""

    def __init__(self, outbound: Outbound, url: str, key: Secret | None) -> None:
        self._outbound = outbound
        self._url = url.rstrip("/") + "/search"
        self._key = key

    @property
    def host(self) -> str:
        """See `SearchProvider.host`."""
        return urlsplit(self._url).hostname or ""

    async def search(self, query: str, location: UserLocation | None) -> Sequence[Found]:
        """See `SearchProvider.search`. It knows no places: a location changes nothing."""
        del location
        asked = {"q": query, "format": "json", "categories": "general"}
        headers = {"authorization": f"Bearer {self._key.open()}"} if self._key else {}
        answer = await ask(self._outbound, self._url, asked, headers)
        return [
            Found(
                url=text(one.get("url")),
                title=text(one.get("title")),
                text=text(one.get("content")),
                age=text(one.get("publishedDate")),
            )
            for one in objects(answer.get("results"))[:MAX_RESULTS]
        ]
