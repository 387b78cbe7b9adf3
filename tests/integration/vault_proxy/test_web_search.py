"""web_search against servers that speak as Brave and SearXNG do."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from urllib.parse import parse_qs, urlsplit

import pytest

from chassis.secret import Secret
from drover.agent.v1.tool_pb2 import UserLocation, WebSettings
from drover.event.v1.content_pb2 import ContentBlock
from services.vault_proxy.domain.audit import Kind, Outcome
from services.vault_proxy.outbound import Outbound
from services.vault_proxy.web.providers.brave import BraveSearch
from services.vault_proxy.web.providers.port import SearchProvider
from services.vault_proxy.web.providers.searxng import SearxngSearch
from tests.doubles.origin import Asked, Origin, origin
from tests.doubles.web_outside import Web, answer, facts, limited, unrestricted

KEY = "a-key-that-nobody-shows"
Make = Callable[[str], Callable[[Outbound], SearchProvider]]


def brave(url: str) -> Callable[[Outbound], SearchProvider]:
    return lambda outbound: BraveSearch(outbound, url, Secret(KEY))


def searxng(url: str) -> Callable[[Outbound], SearchProvider]:
    return lambda outbound: SearxngSearch(outbound, url, Secret(KEY))


def found(*urls: str) -> list[dict[str, object]]:
    return [
        {"url": url, "title": f"Page {number}", "text": f"about {number}", "age": "2 days ago"}
        for number, url in enumerate(urls)
    ]


def reply(results: list[dict[str, object]]) -> bytes:
    """Both providers' shapes in one answer."""
    as_brave = [one | {"description": f"<strong>{one['text']}</strong>"} for one in results]
    as_searxng = [one | {"content": one["text"], "publishedDate": one["age"]} for one in results]
    body = {"web": {"results": as_brave}, "results": as_searxng}
    return answer(json.dumps(body), "application/json")


@pytest.fixture
async def server() -> AsyncIterator[Origin]:
    async with origin() as made:
        yield made


def web(server: Origin, make: Make = brave) -> Web:
    return Web(server.port, provider=make(f"http://search.example:{server.port}"))


async def search(
    web: Web, query: str = "fjords", settings: WebSettings | None = None, *hosts: str
) -> tuple[str, list[ContentBlock]]:
    session = limited(*hosts) if hosts else unrestricted()
    told = await web.tools.search(facts(session), query, settings or WebSettings(), "sevt_1")
    return told.error_code, list(told.content)


def query_of(asked: Asked) -> dict[str, list[str]]:
    return parse_qs(urlsplit(asked.line.split()[1].decode()).query)


@pytest.mark.parametrize("make", [brave, searxng])
async def test_results_are_shown_with_title_url_and_summary(server: Origin, make: Make) -> None:
    server.reply = lambda _: reply(found("https://a.example/1", "https://b.example/2"))
    code, (head, *results) = await search(web(server, make))
    assert code == ""
    assert "2 results follow" in head.text.text
    assert "fjords" not in head.text.text
    assert [block.search_result.source for block in results] == [
        "https://a.example/1",
        "https://b.example/2",
    ]
    assert results[0].search_result.title == "Page 0"
    assert results[0].search_result.content[0].text == "about 0\n(age: 2 days ago)"


async def test_brave_is_asked_under_its_key_and_told_where_the_user_is(server: Origin) -> None:
    server.reply = lambda _: reply([])
    here = UserLocation(city="Tromsø", region="Troms", country="NO", timezone="Europe/Oslo")
    code, (head,) = await search(web(server), "fjords", WebSettings(user_location=here))
    assert (code, head.text.text) == ("", "Nothing was found that may be shown.")
    (asked,) = server.asked
    assert asked.line.startswith(b"GET /res/v1/web/search?")
    assert asked.field("x-subscription-token") == [KEY.encode()]
    assert asked.field("x-loc-city") == [b"Troms%C3%B8"]
    assert asked.field("x-loc-timezone") == [b"Europe/Oslo"]
    assert query_of(asked)["country"] == ["NO"]
    assert query_of(asked)["q"] == ["fjords"]


async def test_searxng_is_asked_for_json_under_a_bearer_token(server: Origin) -> None:
    server.reply = lambda _: reply([])
    await search(web(server, searxng))
    (asked,) = server.asked
    assert asked.line.startswith(b"GET /search?")
    assert asked.field("authorization") == [f"Bearer {KEY}".encode()]
    assert query_of(asked)["format"] == ["json"]


@pytest.mark.parametrize(
    ("settings", "hosts", "shown"),
    [
        (WebSettings(allowed_domains=["a.example"]), (), ["https://www.a.example/x"]),
        (WebSettings(allowed_domains=["b.example/blog"]), (), ["https://b.example/blog/1"]),
        (
            WebSettings(blocked_domains=["a.example", "b.example/blog"]),
            (),
            ["https://b.example/about", "https://b.example/blogger"],
        ),
        (WebSettings(), ("*.a.example",), ["https://www.a.example/x"]),
        (WebSettings(allowed_domains=["b.example"]), ("www.a.example",), []),
    ],
)
async def test_results_that_may_not_be_shown_are_dropped(
    server: Origin, settings: WebSettings, hosts: tuple[str, ...], shown: list[str]
) -> None:
    everything = [
        "https://www.a.example/x",
        "https://b.example/about",
        "https://b.example/blog/1",
        "https://b.example/blogger",
        "ftp://a.example/",
        "javascript:alert(1)",
        "https://user@a.example/",
    ]
    server.reply = lambda _: reply(found(*everything))
    _, blocks = await search(web(server), "x", settings, *hosts)
    assert [one.search_result.source for one in blocks if one.HasField("search_result")] == shown


async def test_allowed_domains_narrow_what_is_asked_for(server: Origin) -> None:
    server.reply = lambda _: reply([])
    settings = WebSettings(allowed_domains=["a.example", "b.example/blog"])
    await search(web(server), "x", settings)
    assert query_of(server.asked[0])["q"] == ["x (site:a.example OR site:b.example/blog)"]


@pytest.mark.parametrize(
    ("status", "code"),
    [
        (429, "too_many_requests"),
        (401, "unavailable"),
        (414, "query_too_long"),
        (500, "unavailable"),
    ],
)
async def test_a_providers_refusal_is_told_without_its_words(
    server: Origin, status: int, code: str
) -> None:
    server.reply = lambda _: answer("SECRET WORDS", "text/plain", status=status)
    told, (block,) = await search(web(server))
    assert told == code
    assert "SECRET" not in block.text.text


@pytest.mark.parametrize("body", ["[]", "{", '{"web": 7, "results": "x"}', "[" * 100_000])
@pytest.mark.parametrize("make", [brave, searxng])
async def test_an_answer_that_makes_no_sense_harms_nobody(
    server: Origin, body: str, make: Make
) -> None:
    server.reply = lambda _: answer(body, "application/json")
    code, _ = await search(web(server, make))
    assert code in {"", "unavailable"}


@pytest.mark.parametrize(
    ("query", "code"), [("", "invalid_tool_input"), (" \n", "invalid_tool_input")]
)
async def test_queries_have_something_in_them(server: Origin, query: str, code: str) -> None:
    assert (await search(web(server), query))[0] == code


async def test_too_long_a_query_is_told_so(server: Origin) -> None:
    assert (await search(web(server), "x" * 401))[0] == "query_too_long"
    assert not server.asked


async def test_without_a_provider_the_answer_says_what_is_missing() -> None:
    code, (block,) = await search(Web())
    assert code == "unavailable"
    assert "DROVER_SEARCH_PROVIDER" in block.text.text


async def test_searches_are_in_the_audit_trail_without_what_was_searched_for(
    server: Origin,
) -> None:
    server.reply = lambda _: reply([])
    tools = web(server)
    await search(tools, "something private")
    server.reply = lambda _: answer("", "", status=500)
    await search(tools, "something private")
    assert [(one.kind, one.verdict, one.host, one.reason) for one in tools.trail.entries] == [
        (Kind.WEB, Outcome.ALLOWED, "search.example", ""),
        (Kind.WEB, Outcome.FAILED, "search.example", "unavailable"),
    ]
    assert "private" not in repr(tools.trail.entries)
    assert KEY not in repr(tools.trail.entries)
