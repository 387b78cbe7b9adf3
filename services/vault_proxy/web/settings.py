"""What web_search asks, by the operator's settings."""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING, Final, Literal
from urllib.parse import urlsplit

from pydantic import Field, ValidationInfo, field_validator

from chassis.secret import Secret
from chassis.settings import SecretText, Settings
from services.vault_proxy.web.content import Shown
from services.vault_proxy.web.fetching import Fetcher
from services.vault_proxy.web.meter import WebMeter
from services.vault_proxy.web.providers import brave
from services.vault_proxy.web.providers.brave import BraveSearch
from services.vault_proxy.web.providers.searxng import SearxngSearch
from services.vault_proxy.web.reading import PageReader
from services.vault_proxy.web.searching import Searcher
from services.vault_proxy.web.tools import WebTools

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

    from chassis.clock import Clock
    from services.vault_proxy.domain.ports import Audit
    from services.vault_proxy.outbound import Outbound
    from services.vault_proxy.web.providers.port import SearchProvider

_MARK_BYTES: Final = 8


class SearchSettings(Settings):
    """The search provider, and its key, which no other process is given."""

    search_provider: Literal["none", "brave", "searxng"] = Field(
        default="none",
        description="What web_search asks: none, brave (Brave's API) or searxng (JSON API).",
    )
    search_url: str = Field(
        default="",
        validate_default=True,
        description="Where the search provider is, as http://searxng.internal:8888; brave has a "
        "default. It is reached whatever the rules about addresses say.",
    )
    search_api_key: SecretText = Field(
        default=None,
        validate_default=True,
        description="The search provider's key; searxng may do without.",
    )

    @field_validator("search_url")
    @classmethod
    def _is_given(cls, value: str, info: ValidationInfo) -> str:
        if value and not _is_url(value):
            msg = "must be an http or https URL, without a query"
            raise ValueError(msg)
        if not value and info.data.get("search_provider") == "searxng":
            msg = "must say where SearXNG is, which DROVER_SEARCH_PROVIDER names"
            raise ValueError(msg)
        return value

    @field_validator("search_api_key")
    @classmethod
    def _is_known(cls, value: Secret | None, info: ValidationInfo) -> Secret | None:
        if value is None and info.data.get("search_provider") == "brave":
            msg = "must be the token of a subscription, which brave wants"
            raise ValueError(msg)
        return value

    def web_tools(
        self,
        outbound: Outbound,
        operators: Outbound,
        *,
        audit: Audit,
        clock: Clock,
        registry: CollectorRegistry,
    ) -> WebTools:
        """The web tools, with their way out, and the one to what the operator himself has named."""
        return WebTools(
            Fetcher(outbound),
            Shown(PageReader(), lambda: secrets.token_hex(_MARK_BYTES)),
            Searcher(self._provider(operators)),
            audit=audit,
            clock=clock,
            meter=WebMeter(registry),
        )

    def _provider(self, outbound: Outbound) -> SearchProvider | None:
        if self.search_provider == "brave" and self.search_api_key is not None:
            return BraveSearch(outbound, self.search_url or brave.URL, self.search_api_key)
        if self.search_provider == "searxng":
            return SearxngSearch(outbound, self.search_url, self.search_api_key)
        return None


def _is_url(text: str) -> bool:
    try:
        parts = urlsplit(text)
    except ValueError:
        return False
    return parts.scheme in {"http", "https"} and bool(parts.hostname) and not parts.query
