"""Calls of the web tools: what they go by, and which are refused before anything is asked."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

from drover.agent.v1.tool_pb2 import WebSettings
from services.brain.domain.links import MAX_URL, canonical_url

if TYPE_CHECKING:
    from collections.abc import Iterable

    from drover.agent.v1.tool_pb2 import AgentToolConfig, Tool
    from services.brain.domain.calls import Call
    from services.brain.domain.links import Links

FETCH: Final = "web_fetch"
SEARCH: Final = "web_search"

_INVALID: Final = (
    "web_fetch failed: invalid_tool_input. `url` must be a whole http or https URL, such as "
    "https://example.com/page."
)
_TOO_LONG: Final = f"web_fetch failed: url_too_long. A URL may have {MAX_URL} characters at most."
_UNSEEN: Final = (
    "web_fetch failed: url_not_in_prior_context. Only URLs can be fetched that stand, exactly so, "
    "in the user's messages, in results of the client's own tools, or in earlier results of "
    "web_search and web_fetch. Search for the page, or ask the user for its URL."
)


def _settings(tools: Iterable[Tool], name: str) -> WebSettings:
    """What calls of the web tool `name` go by."""
    config = _config(tools, name)
    if config is None:
        return WebSettings()
    return WebSettings(
        allowed_domains=config.allowed_domains,
        blocked_domains=config.blocked_domains,
        max_content_tokens=config.max_content_tokens,
        user_location=config.user_location if config.HasField("user_location") else None,
    )


def browse(call: Call, tools: Iterable[Tool], links: Links) -> None:
    """Makes `call` one of a web tool, by the agent's `tools` and the URLs it was shown before."""
    tools = tuple(tools)
    why = _barred(call.arguments, tools, links) if call.name == FETCH else ""
    call.browse(_settings(tools, call.name), why)


def _barred(arguments: str, tools: Iterable[Tool], links: Links) -> str:
    """Why a call of web_fetch may not be made in this session; empty where it may.

    `arguments` is the input's JSON, `links` are the URLs that the session was shown before.
    """
    try:
        given = json.loads(arguments)
    except (ValueError, RecursionError):
        return _INVALID
    url = given.get("url") if isinstance(given, dict) else None
    if not isinstance(url, str):
        return _INVALID
    if len(url) > MAX_URL:
        return _TOO_LONG
    canonical = canonical_url(url)
    if not canonical:
        return _INVALID
    config = _config(tools, FETCH)
    sources = config.url_sources if config is not None and config.HasField("url_sources") else None
    return "" if links.known(canonical, sources) else _UNSEEN


def _config(tools: Iterable[Tool], name: str) -> AgentToolConfig | None:
    for tool in tools:
        for config in tool.agent_toolset.configs:
            if config.name == name:
                return config
    return None
