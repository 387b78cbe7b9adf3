"""Which URLs of a text count as shown, and in what spelling."""

from __future__ import annotations

import pytest

from drover.agent.v1.tool_pb2 import (
    URL_SOURCE_TYPE_EXCEPT,
    URL_SOURCE_TYPE_NONE,
    URL_SOURCE_TYPE_ONLY,
    ToolReference,
    UrlSource,
    UrlSources,
)
from drover.event.v1.content_pb2 import ContentBlock, SearchResultBlock, SearchResultContent
from services.brain.domain import events
from services.brain.domain.links import MAX_LINKS, Links, canonical_url

NONE = UrlSource(type=URL_SOURCE_TYPE_NONE)


def said(text: str) -> Links:
    links = Links()
    links.user([events.text(text)])
    return links


def knows(links: Links, url: str, sources: UrlSources | None = None) -> bool:
    return links.known(canonical_url(url), sources)


@pytest.mark.parametrize(
    ("text", "url"),
    [
        ("Read https://example.com/a?b=1.", "https://example.com/a?b=1"),
        ("(see https://example.com/a)", "https://example.com/a"),
        ("https://en.example/wiki/A_(b) it is", "https://en.example/wiki/A_(b)"),
        ("[one](https://a.example/x), [two](https://b.example/y)", "https://b.example/y"),
        ("https://a.example](https://b.example)", "https://b.example"),
        ("https://a.example/?f[x]=1", "https://a.example/?f[x]=1"),
        ('<a href="https://a.example/q">', "https://a.example/q"),
        ("<https://a.example/q>", "https://a.example/q"),
        ("HTTPS://EXAMPLE.com:443", "https://example.com/"),
        ("http://example.com:80/A#top", "http://example.com/A"),
        ("https://a.example/Übung", "https://a.example/%C3%9Cbung"),
        ("look at example.com/docs, please", "https://example.com/docs"),
        ("look at example.com/docs, please", "http://example.com/docs"),
        ("www.example.com", "https://www.example.com/"),
    ],
)
def test_a_url_in_a_users_text_is_known_however_it_stands_there(text: str, url: str) -> None:
    assert knows(said(text), url)


@pytest.mark.parametrize(
    ("text", "url"),
    [
        ("https://example.com/a", "https://example.com/A"),
        ("https://example.com/a", "https://example.com/a/"),
        ("https://example.com/a", "https://example.com/a?x=secret"),
        ("https://example.com/a", "http://example.com/a"),
        ("https://example.com/a", "https://evil.example/?u=https://example.com/a"),
        ("https://example.com/?u=https://b.example/", "https://b.example/"),
        ("https://example.com/a", "https://example.com.evil.example/a"),
        ("https://example.com/a", "https://example.com@evil.example/a"),
        ("https://example.com/a", "https://example.com:8443/a"),
        ("write to me@mail.example", "https://mail.example/"),
        ("nothing", "https://example.com/"),
    ],
)
def test_a_url_that_nobody_wrote_whole_is_not_known(text: str, url: str) -> None:
    assert not knows(said(text), url)


def test_a_bare_name_is_a_url_in_the_users_text_alone() -> None:
    links = Links()
    links.server("web_fetch", [events.text("see example.com")])
    assert not knows(links, "https://example.com/")


def test_search_results_show_their_urls() -> None:
    links = Links()
    found = SearchResultBlock(
        source="https://a.example/1",
        title="A",
        content=[SearchResultContent(text="more at https://a.example/2")],
    )
    links.server("web_search", [ContentBlock(search_result=found)])
    assert knows(links, "https://a.example/1")
    assert knows(links, "https://a.example/2")


def only(*names: str) -> UrlSource:
    return UrlSource(type=URL_SOURCE_TYPE_ONLY, tools=[ToolReference(name=name) for name in names])


def except_for(*names: str) -> UrlSource:
    return UrlSource(
        type=URL_SOURCE_TYPE_EXCEPT, tools=[ToolReference(name=name) for name in names]
    )


@pytest.mark.parametrize(
    ("sources", "known"),
    [
        (None, "user client search fetch"),
        (UrlSources(), "user client search fetch"),
        (UrlSources(user_input=NONE), "client search fetch"),
        (UrlSources(client_tool_results=NONE), "user search fetch"),
        (UrlSources(client_tool_results=only("other")), "user search fetch"),
        (UrlSources(client_tool_results=except_for("other")), "user client search fetch"),
        (UrlSources(server_tool_results=NONE), "user client"),
        (UrlSources(server_tool_results=only("web_search")), "user client search"),
        (UrlSources(server_tool_results=except_for("web_search")), "user client fetch"),
    ],
)
def test_only_the_sources_that_the_agent_names_contribute(
    sources: UrlSources | None, known: str
) -> None:
    links = Links()
    links.user([events.text("https://user.example/")])
    links.client("crm", [events.text("https://client.example/")])
    links.server("web_search", [events.text("https://search.example/")])
    links.server("web_fetch", [events.text("https://fetch.example/")])
    found = [
        name
        for name in ("user", "client", "search", "fetch")
        if knows(links, f"https://{name}.example/", sources)
    ]
    assert found == known.split()


def test_a_url_counts_while_one_of_those_who_showed_it_does() -> None:
    links = said("https://a.example/")
    links.server("web_search", [events.text("https://a.example/")])
    assert knows(links, "https://a.example/", UrlSources(user_input=NONE))


def test_the_oldest_urls_are_forgotten_past_a_bound() -> None:
    links = Links()
    text = " ".join(f"https://a.example/{number}" for number in range(MAX_LINKS + 1))
    links.server("web_fetch", [events.text(text)])
    assert len(links.seen) == MAX_LINKS
    assert not knows(links, "https://a.example/0")
    assert knows(links, f"https://a.example/{MAX_LINKS}")


def test_what_is_no_url_has_no_spelling() -> None:
    for text in ("", "example.com", "ftp://a.example", "https://", "file:///etc/passwd"):
        assert canonical_url(text) == ""
    assert canonical_url("https://a.example/" + "a" * 2048) == ""
