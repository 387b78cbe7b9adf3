from __future__ import annotations

import pytest
from google.protobuf.field_mask_pb2 import FieldMask

from chassis.errors import DroverError, Reason
from drover.agent.v1.agent_service_pb2 import AgentWithOverrides, ReviseSessionAgentRequest
from drover.agent.v1.tool_pb2 import (
    URL_SOURCE_TYPE_ALL,
    URL_SOURCE_TYPE_EXCEPT,
    URL_SOURCE_TYPE_NONE,
    URL_SOURCE_TYPE_ONLY,
    AgentToolConfig,
    Tool,
    ToolDefaults,
    ToolReference,
    UrlSource,
    UrlSources,
    UserLocation,
)
from services.registry.domain.selection import revised_session_agent, session_agent
from services.registry.domain.tools import settle_tools
from tests.unit.registry.definitions import custom, definition, toolset

NONE = UrlSource(type=URL_SOURCE_TYPE_NONE)


def fetch(**settings: object) -> AgentToolConfig:
    return AgentToolConfig(name="web_fetch", **settings)  # type: ignore[arg-type]


def search(**settings: object) -> AgentToolConfig:
    return AgentToolConfig(name="web_search", **settings)  # type: ignore[arg-type]


def settled(config: AgentToolConfig, *others: Tool) -> AgentToolConfig:
    tools = [toolset(config), *others]
    settle_tools(tools, "tools")
    return tools[0].agent_toolset.configs[0]


def refusal(config: AgentToolConfig, *others: Tool) -> str:
    with pytest.raises(DroverError) as refused:
        settled(config, *others)
    assert refused.value.reason is Reason.INVALID_ARGUMENT
    return refused.value.message.removeprefix("tools.0.configs.0")


def test_web_tools_keep_their_settings() -> None:
    config = settled(fetch(allowed_domains=["Docs.Example.com"], max_content_tokens=5000))
    assert list(config.allowed_domains) == ["docs.example.com"]
    assert config.max_content_tokens == 5000
    config = settled(
        search(
            blocked_domains=["ads.example.com/banners/"],
            user_location=UserLocation(city="Oslo", country="NO"),
        )
    )
    assert list(config.blocked_domains) == ["ads.example.com/banners"]
    assert config.user_location.city == "Oslo"


def test_only_one_of_the_two_lists_may_be_set() -> None:
    both = fetch(allowed_domains=["a.example"], blocked_domains=["b.example"])
    assert refusal(both) == ": Only one of allowed_domains or blocked_domains may be set."


@pytest.mark.parametrize("field", ["allowed_domains", "blocked_domains"])
def test_an_empty_list_of_domains_is_refused_and_an_absent_one_is_not(field: str) -> None:
    settled(fetch(given=FieldMask(paths=["name"])))
    empty = fetch(given=FieldMask(paths=["name", field]))
    assert refusal(empty) == f".{field}: must not be empty: leave it out instead"


def test_what_was_given_is_not_kept() -> None:
    assert not settled(fetch(given=FieldMask(paths=["name"]))).HasField("given")


@pytest.mark.parametrize(
    "domain",
    [
        "https://example.com",
        "example.com:8080",
        "*.example.com",
        "192.0.2.1",
        "[2001:db8::1]",
        "2001:db8::1",
        "0x7f000001",
        "2130706433",
        "com",
        "co.uk",
        "localhost",
        "printer.local",
        "metadata.google.internal",
        "db.corp",
        "router.home.arpa",
        "bücher.example",
        "a b.example",
        "user@example.com",
        "example.com?x=1",
        "",
        "a" * 256,
    ],
)
@pytest.mark.parametrize("tool", [fetch, search])
def test_what_is_no_public_domain_is_refused_by_its_place(domain: str, tool: object) -> None:
    config = tool(allowed_domains=["fine.example", domain])  # type: ignore[operator]
    assert refusal(config).startswith(".allowed_domains.1: ")


def test_a_path_may_stand_behind_a_domain_of_web_search_alone() -> None:
    config = settled(search(allowed_domains=["example.com/blog/2026"]))
    assert list(config.allowed_domains) == ["example.com/blog/2026"]
    assert refusal(fetch(allowed_domains=["example.com/blog"])) == (
        ".allowed_domains.0: must be a bare host name, without a path"
    )


def test_a_domain_is_listed_once_however_it_is_written() -> None:
    twice = fetch(blocked_domains=["a.example", "A.EXAMPLE"])
    assert refusal(twice) == ".blocked_domains.1: 'a.example' is listed already"


def test_a_country_is_two_capital_letters() -> None:
    assert refusal(search(user_location=UserLocation(country="us"))).startswith(
        ".user_location.country: "
    )


def only(*names: str) -> UrlSource:
    tools = [ToolReference(name=name) for name in names]
    return UrlSource(type=URL_SOURCE_TYPE_ONLY, tools=tools)


def test_sources_of_urls_are_kept() -> None:
    sources = UrlSources(
        user_input=NONE,
        client_tool_results=only("look_up"),
        server_tool_results=UrlSource(
            type=URL_SOURCE_TYPE_EXCEPT, tools=[ToolReference(name="web_fetch")]
        ),
    )
    assert settled(fetch(url_sources=sources), custom("look_up")).url_sources == sources


@pytest.mark.parametrize(
    ("sources", "message"),
    [
        (
            UrlSources(user_input=NONE, client_tool_results=NONE, server_tool_results=NONE),
            ": at least one source must contribute URLs: not all three may be none",
        ),
        (UrlSources(user_input=only("x")), ".user_input.type: must be all or none"),
        (
            UrlSources(client_tool_results=only("other")),
            ".client_tool_results.tools.0.name: 'other' is no custom tool of these tools",
        ),
        (
            UrlSources(client_tool_results=only()),
            ".client_tool_results.tools: must name 1 to 128 tools; use none or all instead",
        ),
        (
            UrlSources(client_tool_results=only("look_up", "look_up")),
            ".client_tool_results.tools.1.name: 'look_up' is listed already",
        ),
        (
            UrlSources(server_tool_results=only("bash")),
            ".server_tool_results.tools.0.name: 'bash' must be web_search or web_fetch",
        ),
        (
            UrlSources(
                user_input=UrlSource(type=URL_SOURCE_TYPE_ALL, tools=[ToolReference(name="x")])
            ),
            ".user_input.tools: belongs to only and except",
        ),
    ],
)
def test_sources_of_urls_that_make_no_sense_are_refused(sources: UrlSources, message: str) -> None:
    assert refusal(fetch(url_sources=sources), custom("look_up")) == f".url_sources{message}"


def offered(*tools: Tool, searchable: bool) -> list[str]:
    agent = session_agent(definition(*tools), searchable=searchable)
    return list(agent.tools[0].agent_toolset.web_tools)


def test_a_session_is_offered_the_web_tools_that_the_installation_has() -> None:
    assert offered(toolset(), searchable=True) == ["web_fetch", "web_search"]
    assert offered(toolset(), searchable=False) == ["web_fetch"]


def test_a_search_that_is_named_is_offered_whatever_the_installation_has() -> None:
    assert offered(toolset(search(enabled=True)), searchable=False) == ["web_fetch", "web_search"]
    assert offered(toolset(search(enabled=False)), searchable=True) == ["web_fetch"]


def test_no_web_tool_is_offered_that_is_not_enabled() -> None:
    off = ToolDefaults(enabled=False)
    assert offered(toolset(defaults=off), searchable=True) == []
    assert offered(toolset(fetch(enabled=True), defaults=off), searchable=True) == ["web_fetch"]


def test_an_offer_is_settled_anew_with_other_tools_and_by_nobody_else() -> None:
    mine = toolset()
    mine.agent_toolset.web_tools.append("web_search")
    agent = session_agent(
        definition(mine), AgentWithOverrides(id="agent_1", tools=[mine]), searchable=False
    )
    assert list(agent.tools[0].agent_toolset.web_tools) == ["web_fetch"]
    request = ReviseSessionAgentRequest(agent=agent, tools=[toolset(fetch(enabled=False))])
    revised = revised_session_agent(request, searchable=True)
    assert list(revised.tools[0].agent_toolset.web_tools) == ["web_search"]
