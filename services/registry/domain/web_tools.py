"""The settings of web_fetch and web_search, and which of the two a session's model is told of."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Never

from catalogue.resources.presence import given
from chassis.errors import DroverError, Reason
from drover.agent.v1.tool_pb2 import (
    URL_SOURCE_TYPE_EXCEPT,
    URL_SOURCE_TYPE_NONE,
    URL_SOURCE_TYPE_ONLY,
)
from services.registry.domain.web_domains import canonical_domains

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from drover.agent.v1.tool_pb2 import AgentToolConfig, AgentToolset, Tool, UrlSource, UrlSources

FETCH: Final = "web_fetch"
SEARCH: Final = "web_search"
WEB_TOOLS: Final = frozenset({FETCH, SEARCH})

_LISTS: Final = ("allowed_domains", "blocked_domains")
_SOURCES: Final = ("user_input", "client_tool_results", "server_tool_results")
_NAMING: Final = (URL_SOURCE_TYPE_ONLY, URL_SOURCE_TYPE_EXCEPT)


def settle_web_config(config: AgentToolConfig, customs: Collection[str], path: str) -> None:
    """Checks what `config` says of a web tool, and brings its domains into their one spelling.

    `customs` are the names of the agent's custom tools. Raises INVALID_ARGUMENT naming a path below
    `path`.
    """
    named = given(config, "given")
    for field in _LISTS:
        domains = getattr(config, field)
        if field in named and not domains:
            _refuse(f"{path}.{field}", "must not be empty: leave it out instead")
        if domains:
            given_domains = list(domains)
            del domains[:]
            domains.extend(
                canonical_domains(
                    given_domains, f"{path}.{field}", with_paths=config.name == SEARCH
                )
            )
    if config.allowed_domains and config.blocked_domains:
        _refuse(path, "Only one of allowed_domains or blocked_domains may be set.")
    if config.HasField("url_sources"):
        _check_sources(config.url_sources, customs, f"{path}.url_sources")
    if config.HasField("user_location"):
        country = config.user_location.country
        if country and not (len(country) == 2 and country.isascii() and country.isupper()):  # noqa: PLR2004  # ISO 3166-1 alpha-2
            _refuse(f"{path}.user_location.country", "must be two capital letters, as in US")


def settle_offer(tools: Iterable[Tool], *, searchable: bool) -> None:
    """Settles in a session's copy of its agent which web tools the model is told of.

    Those that are enabled; but web_search only where the installation has something to search with
    (`searchable`), or a config of its own enables it.
    """
    for tool in tools:
        if tool.HasField("agent_toolset"):
            del tool.agent_toolset.web_tools[:]
            tool.agent_toolset.web_tools.extend(_offer(tool.agent_toolset, searchable=searchable))


def _offer(toolset: AgentToolset, *, searchable: bool) -> list[str]:
    configs = {config.name: config for config in toolset.configs}
    by_default = toolset.default_config.enabled
    offered = []
    for name in (FETCH, SEARCH):
        if name in configs:
            offers = configs[name].enabled
        else:
            offers = by_default and (name == FETCH or searchable)
        if offers:
            offered.append(name)
    return offered


def _check_sources(sources: UrlSources, customs: Collection[str], path: str) -> None:
    if all(
        sources.HasField(name) and getattr(sources, name).type == URL_SOURCE_TYPE_NONE
        for name in _SOURCES
    ):
        _refuse(path, "at least one source must contribute URLs: not all three may be none")
    if sources.HasField("user_input") and sources.user_input.type in _NAMING:
        _refuse(f"{path}.user_input.type", "must be all or none")
    _check_names(sources.user_input, (), f"{path}.user_input", "")
    _check_names(
        sources.client_tool_results,
        customs,
        f"{path}.client_tool_results",
        "is no custom tool of these tools",
    )
    _check_names(
        sources.server_tool_results,
        WEB_TOOLS,
        f"{path}.server_tool_results",
        "must be web_search or web_fetch",
    )


def _check_names(source: UrlSource, known: Collection[str], path: str, unknown: str) -> None:
    if source.type not in _NAMING:
        if source.tools:
            _refuse(f"{path}.tools", "belongs to only and except")
        return
    if not source.tools:
        _refuse(f"{path}.tools", "must name 1 to 128 tools; use none or all instead")
    seen: set[str] = set()
    for index, tool in enumerate(source.tools):
        here = f"{path}.tools.{index}.name"
        if tool.name not in known:
            _refuse(here, f"{tool.name!r} {unknown}")
        if tool.name in seen:
            _refuse(here, f"{tool.name!r} is listed already")
        seen.add(tool.name)


def _refuse(path: str, text: str) -> Never:
    raise DroverError(Reason.INVALID_ARGUMENT, f"{path}: {text}")
