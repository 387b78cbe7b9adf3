"""web_search: results that may be shown, as blocks for the model."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from catalogue.hosts import HostError, parse_url
from drover.event.v1.content_pb2 import ContentBlock
from services.vault_proxy.web.content import UNTRUSTED
from services.vault_proxy.web.failures import Code, WebError
from services.vault_proxy.web.page import visible

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from drover.agent.v1.tool_pb2 import UserLocation, WebSettings
    from services.vault_proxy.web.judging import WebRules
    from services.vault_proxy.web.providers.port import Found, SearchProvider

MAX_QUERY: Final = 400
"""Characters of a query, its restriction to domains not counted."""

MAX_SHOWN: Final = 10
_MAX_SITES: Final = 8
_MAX_TITLE: Final = 300
_MAX_TEXT: Final = 2000

UNCONFIGURED: Final = (
    "This installation has nothing to search with: its operator can name a provider with "
    "DROVER_SEARCH_PROVIDER."
)


class Searcher:
    """Searches with what the operator has configured, if anything."""

    def __init__(self, provider: SearchProvider | None) -> None:
        self._provider = provider

    @property
    def host(self) -> str:
        """Where the provider is, or nothing."""
        return self._provider.host if self._provider is not None else ""

    async def search(
        self, query: str, settings: WebSettings, rules: WebRules
    ) -> list[ContentBlock]:
        """What was found and may be shown. Raises `WebError`."""
        if self._provider is None:
            raise WebError(Code.UNAVAILABLE, UNCONFIGURED)
        query = " ".join(query.split())
        if not query:
            raise WebError(Code.INVALID_INPUT, "`query` must say what to search for.")
        if len(query) > MAX_QUERY:
            message = f"A query may have {MAX_QUERY} characters at most."
            raise WebError(Code.QUERY_TOO_LONG, message)
        location: UserLocation | None = None
        if settings.HasField("user_location"):
            location = settings.user_location
        found = await self._provider.search(_narrowed(query, settings.allowed_domains), location)
        return _blocks(_showable(found, rules))


def _narrowed(query: str, domains: Sequence[str]) -> str:
    """The query with what most providers take for a restriction; results are judged anyway."""
    if not 0 < len(domains) <= _MAX_SITES:
        return query
    sites = " OR ".join(f"site:{domain}" for domain in domains)
    return f"{query} ({sites})" if len(domains) > 1 else f"{query} {sites}"


def _showable(found: Iterable[Found], rules: WebRules) -> list[Found]:
    shown: list[Found] = []
    for one in found:
        try:
            url = parse_url(one.url.partition("#")[0])
        except HostError:
            continue
        if not rules.refusal(url.host, url.path) and len(shown) < MAX_SHOWN:
            shown.append(one)
    return shown


def _blocks(shown: Sequence[Found]) -> list[ContentBlock]:
    # Without the query: what the model has written itself is no URL that it was shown.
    head = ContentBlock()
    if not shown:
        head.text.text = "Nothing was found that may be shown."
        return [head]
    results = "1 result follows" if len(shown) == 1 else f"{len(shown)} results follow"
    head.text.text = f"{results}. Of each: {UNTRUSTED[:1].lower()}{UNTRUSTED[1:]}"
    blocks = [head]
    for one in shown:
        block = ContentBlock()
        result = block.search_result
        result.source = one.url
        result.title = " ".join(visible(one.title).split())[:_MAX_TITLE] or one.url
        text = visible(one.text).strip()[:_MAX_TEXT] or "(no summary)"
        result.content.add().text = f"{text}\n(age: {visible(one.age)[:40]})" if one.age else text
        result.citations.enabled = False
        blocks.append(block)
    return blocks
