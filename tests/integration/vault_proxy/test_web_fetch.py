"""web_fetch against real HTTP servers: what is shown, what is refused, and what is sent."""

from __future__ import annotations

import asyncio
import base64
import ssl
from collections.abc import AsyncIterator

import pytest

from drover.agent.v1.tool_pb2 import WebSettings
from drover.session.v1.session_pb2 import Session
from services.vault_proxy.domain.audit import Kind, Outcome
from services.vault_proxy.web import fetching
from services.vault_proxy.web.tools import OF_A_SESSION
from tests.doubles.certificates import Authority
from tests.doubles.hands_waiting import eventually
from tests.doubles.origin import Origin, origin, read_request
from tests.doubles.web_outside import (
    Web,
    always,
    answer,
    facts,
    limited,
    moved,
    pages,
    unrestricted,
)

PNG = b"\x89PNG\r\n\x1a\n" + b"0" * 20


def self_hosted() -> Session:
    """A session whose tools run elsewhere."""
    session = Session(id="sesn_1")
    session.environment.self_hosted.SetInParent()
    return session


@pytest.fixture
async def server() -> AsyncIterator[Origin]:
    async with origin() as made:
        yield made


async def test_a_page_is_shown_as_text_with_links_that_can_be_followed(server: Origin) -> None:
    html = (
        "<html><head><title>News</title><script>no()</script></head><body><h1>Today</h1>"
        "<p>It is <b>mild</b>. <a href='../more?x=1'>More</a></p><p hidden>unseen</p></body>"
    )
    server.reply = pages({"/a/b": answer(html, "text/html; charset=utf-8")})
    web = Web(server.port)
    code, text = await web.fetch(f"http://a.example:{server.port}/a/b#part")
    assert code == ""
    head, _, page = text.partition("\n")
    assert head.startswith(f"Content of http://a.example:{server.port}/a/b. It is a stranger's")
    assert page == (
        "<web_content_mark1>\nNews\n\n# Today\n\nIt is mild. "
        f"[More](http://a.example:{server.port}/more?x=1)\n</web_content_mark1>"
    )


async def test_no_request_carries_anything_but_what_it_asks_for(server: Origin) -> None:
    first = answer("", "", "Location: /b", "Set-Cookie: a=b; Path=/", status=303)
    server.reply = pages({"/a": first, "/b": answer("hello", "text/plain")})
    assert (await Web(server.port).fetch(f"http://a.example:{server.port}/a"))[0] == ""
    for asked in server.asked:
        names = {line.partition(b":")[0].lower() for line in asked.lines[1:]}
        known = {b"host", b"user-agent", b"accept", b"accept-encoding", b"accept-language"}
        assert names <= known | {b"connection"}
    assert [asked.line for asked in server.asked] == [b"GET /a HTTP/1.1", b"GET /b HTTP/1.1"]


@pytest.mark.parametrize(
    ("body", "kind", "shown"),
    [
        (b'{"a": 1}', "application/json", '{"a": 1}'),
        (b"<r/>", "application/atom+xml", "<r/>"),
        ("Grüße".encode("latin-1"), "text/plain; charset=iso-8859-1", "Grüße"),
        ("Grüße".encode("latin-1"), "text/plain", "Grüße"),
        ("Привет".encode("koi8-r"), "text/plain; charset=KOI8-R", "Привет"),
        ("日本".encode("utf-16"), "text/plain", "日本"),
        ("<meta charset=shift_jis>日本".encode("shift_jis"), "text/html", "日本"),
        (b"<!doctype html><p>bare", "", "bare"),
        (b"a\xe2\x80\xaeb\xe2\x80\x8bc", "text/plain", "abc"),
        (b"x", "text/plain; charset=rot13", "x"),
    ],
)
async def test_texts_of_all_sorts_are_read(
    server: Origin, body: bytes, kind: str, shown: str
) -> None:
    server.reply = lambda _: answer(body, kind)
    code, text = await Web(server.port).fetch(f"http://a.example:{server.port}/")
    assert code == ""
    assert text.split("\n", 2)[2] == f"{shown}\n</web_content_mark1>"


async def test_pictures_and_pdf_files_are_shown_as_such(server: Origin) -> None:
    web = Web(server.port)
    for body, kind in ((PNG, "image/png"), (b"%PDF-1.7 x", "application/pdf")):
        server.reply = always(answer(body, kind))
        url = f"http://a.example:{server.port}/"
        told = await web.tools.fetch(facts(), url, WebSettings(max_content_tokens=1), "sevt_1")
        block = told.content[1]
        source = (block.image if kind == "image/png" else block.document).source.base64
        assert (source.media_type, base64.b64decode(source.data)) == (kind, body)


@pytest.mark.parametrize(
    ("reply", "code"),
    [
        (answer("x", "video/mp4"), "unsupported_content_type"),
        (answer("not one", "image/png"), "unsupported_content_type"),
        (answer(b"\0\1\2", ""), "unsupported_content_type"),
        (answer("gone", "text/plain", status=410), "url_not_accessible"),
        (answer("no", "text/plain", status=401), "url_not_accessible"),
        (answer("wait", "text/plain", status=429), "too_many_requests"),
        (answer("x" * (5 * 1024 * 1024 + 1), "text/plain"), "content_too_large"),
        (b"SSH-2.0-nothing\r\n\r\n", "url_not_accessible"),
        (answer("", "", "Location: /again", status=302), "url_not_accessible"),
        (answer("", "", "Location: file:///etc/passwd", status=302), "url_not_accessible"),
        (answer("", "", "Location: http://u:p@a.example/", status=302), "url_not_accessible"),
    ],
    ids=range(11),
)
async def test_what_cannot_be_shown_is_told_by_its_code(
    server: Origin, reply: bytes, code: str
) -> None:
    server.reply = lambda _: reply
    got, text = await Web(server.port).fetch(f"http://a.example:{server.port}/")
    assert got == code
    assert text.startswith(f"web_fetch failed: {code}. ")


@pytest.mark.parametrize(
    ("url", "code"),
    [
        ("a.example", "invalid_tool_input"),
        ("file:///etc/passwd", "invalid_tool_input"),
        ("http://user:pass@a.example/", "invalid_tool_input"),
        ("http://2130706433/", "invalid_tool_input"),
        ("http://127.1/", "invalid_tool_input"),
        ("http://a.example/" + "x" * 2048, "url_too_long"),
        ("http://a.example:1/", "url_not_allowed"),
        ("http://127.0.0.1/", "url_not_allowed"),
        ("http://[::1]/", "url_not_allowed"),
        ("http://169.254.169.254/latest/meta-data/", "url_not_allowed"),
        ("http://metadata.example/", "url_not_allowed"),
        ("http://intranet.example/", "url_not_allowed"),
    ],
)
async def test_urls_that_lead_nowhere_good_are_not_asked_for(
    server: Origin, url: str, code: str
) -> None:
    assert (await Web(server.port).fetch(url))[0] == code
    assert not server.asked


async def test_nobody_listening_is_told_as_not_accessible() -> None:
    async with origin() as other:
        port = other.port
    assert (await Web(port).fetch(f"http://a.example:{port}/"))[0] == "url_not_accessible"


async def test_a_certificate_of_somebody_elses_is_not_accepted() -> None:
    authority, other = Authority("Ours"), Authority("Theirs")
    trust = ssl.create_default_context(cadata=authority.certificate)
    async with origin("a.example", authority=authority) as good:
        good.reply = lambda _: answer("hello", "text/plain")
        web = Web(good.port, trust=trust)
        assert (await web.fetch(f"https://a.example:{good.port}/"))[0] == ""
        # A good certificate, of another name.
        code, _ = await web.fetch(f"https://b.example:{good.port}/")
        assert code == "url_not_accessible"
    async with origin("a.example", authority=other) as bad:
        code, _ = await Web(bad.port, trust=trust).fetch(f"https://a.example:{bad.port}/")
    assert code == "url_not_accessible"


def only(**settings: list[str]) -> WebSettings:
    return WebSettings(**settings)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("settings", "session", "host", "code"),
    [
        (only(allowed_domains=["a.example"]), unrestricted(), "a.example", ""),
        (only(allowed_domains=["a.example"]), unrestricted(), "www.a.example", ""),
        (only(allowed_domains=["a.example"]), unrestricted(), "aa.example", "url_not_allowed"),
        (only(allowed_domains=["a.example"]), unrestricted(), "127.0.0.1", "url_not_allowed"),
        (only(blocked_domains=["a.example"]), unrestricted(), "b.example", ""),
        (only(blocked_domains=["a.example"]), unrestricted(), "A.EXAMPLE", "url_not_allowed"),
        (only(blocked_domains=["a.example"]), unrestricted(), "x.a.example", "url_not_allowed"),
        (only(blocked_domains=["a.example"]), unrestricted(), "127.0.0.1", "url_not_allowed"),
        (only(), limited("a.example"), "a.example", ""),
        (only(), limited("*.a.example"), "x.a.example", ""),
        (only(), limited("a.example"), "x.a.example", "url_not_allowed"),
        (only(), limited(), "a.example", "url_not_allowed"),
        (only(), limited("a.example"), "127.0.0.1", "url_not_allowed"),
        (only(allowed_domains=["a.example"]), limited("b.example"), "a.example", "url_not_allowed"),
        (only(), self_hosted(), "a.example", ""),
        # Whose networking cannot be read reaches nothing (case E14).
        (only(), Session(id="sesn_1"), "a.example", "url_not_allowed"),
        (only(allowed_domains=["a.example"]), Session(), "a.example", "url_not_allowed"),
    ],
)
async def test_domains_and_limited_networking_bind_the_tool(
    server: Origin, settings: WebSettings, session: Session, host: str, code: str
) -> None:
    server.reply = lambda _: answer("hello", "text/plain")
    web = Web(server.port)
    assert (await web.fetch(f"http://{host}:{server.port}/", settings, session))[0] == code
    assert bool(server.asked) == (not code)


@pytest.mark.parametrize(
    ("location", "settings", "session"),
    [
        ("http://evil.example:{}/", only(allowed_domains=["a.example"]), unrestricted()),
        ("http://evil.example:{}/", only(blocked_domains=["evil.example"]), unrestricted()),
        ("//evil.example:{}/", only(), limited("a.example")),
        ("http://169.254.169.254/latest/", only(), unrestricted()),
        ("http://metadata.example/", only(), unrestricted()),
        ("http://127.0.0.1:1/", only(), unrestricted()),
    ],
)
async def test_every_redirect_is_judged_by_itself(
    server: Origin, location: str, settings: WebSettings, session: Session
) -> None:
    server.reply = pages({"/": moved(location.format(server.port))})
    web = Web(server.port)
    code, _ = await web.fetch(f"http://a.example:{server.port}/", settings, session)
    assert code == "url_not_allowed"
    assert len(server.asked) == 1
    assert [entry.verdict for entry in web.trail.entries] == [Outcome.ALLOWED, Outcome.DENIED]


async def test_redirects_are_followed_to_a_bound_and_the_last_url_is_told(server: Origin) -> None:
    hops = {f"/{hop}": moved(f"http://b.example:{server.port}/{hop + 1}", 307) for hop in range(9)}
    server.reply = pages(hops | {"/5": answer("there", "text/plain")})
    web = Web(server.port)
    code, text = await web.fetch(f"http://a.example:{server.port}/0")
    assert code == ""
    assert text.startswith(f"Content of http://b.example:{server.port}/5. ")
    server.reply = pages(hops)
    code, _ = await web.fetch(f"http://a.example:{server.port}/0")
    assert code == "url_not_accessible"
    assert len(server.asked) == 2 * fetching.MAX_HOPS


@pytest.mark.parametrize(("tokens", "characters"), [(0, 100_000), (10, 40), (10**9, 400_000)])
async def test_as_much_of_a_page_is_shown_as_the_agent_allows(
    server: Origin, tokens: int, characters: int
) -> None:
    web = Web(server.port)
    for kind in ("text/plain", "text/html"):
        server.reply = always(answer("word " * 100_000, kind))
        url = f"http://a.example:{server.port}/"
        _, text = await web.fetch(url, WebSettings(max_content_tokens=tokens))
        shown = text.split("\n")[2]
        assert characters - 5 <= len(shown) <= characters
        assert "It is longer than what is shown here" in text
    server.reply = always(answer("語" * 100_000, "text/plain"))
    _, text = await web.fetch(url, WebSettings(max_content_tokens=10))
    assert text.split("\n")[2] == "語" * 10


async def test_a_server_that_never_answers_is_given_up(
    server: Origin, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def silence(_reader: asyncio.StreamReader, _writer: asyncio.StreamWriter) -> None:
        await asyncio.Event().wait()

    monkeypatch.setattr(fetching, "SECONDS", 0.2)
    server.talk = silence
    code, _ = await Web(server.port).fetch(f"http://a.example:{server.port}/")
    assert code == "url_not_accessible"


async def test_a_session_waits_for_its_own_pages_and_keeps_nobody_else_waiting() -> None:
    go, open_now, most = asyncio.Event(), 0, 0

    async def slow(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal open_now, most
        asked = await read_request(reader)
        open_now += 1
        most = max(most, open_now)
        if b"/slow" in asked.line:
            await go.wait()
        open_now -= 1
        writer.write(answer("hello", "text/plain"))

    async with origin() as server:
        server.talk = slow
        web, url = Web(server.port), f"http://a.example:{server.port}"
        other = unrestricted()
        other.id = "sesn_2"
        async with asyncio.TaskGroup() as tasks:
            mine = [tasks.create_task(web.fetch(f"{url}/slow")) for _ in range(20)]
            await eventually(lambda: open_now == OF_A_SESSION)
            assert (await web.fetch(f"{url}/", session=other))[0] == ""
            go.set()
        assert [task.result()[0] for task in mine] == [""] * 20
        assert most == OF_A_SESSION + 1


async def test_calls_are_counted_by_what_became_of_them(server: Origin) -> None:
    server.reply = pages({"/a": answer("hello", "text/plain")})
    web = Web(server.port)
    for path in ("/a", "/a", "/none"):
        await web.fetch(f"http://a.example:{server.port}{path}")
    for outcome, calls in (("ok", 2), ("url_not_accessible", 1)):
        labels = {"tool": "web_fetch", "outcome": outcome}
        assert web.registry.get_sample_value("drover_web_calls_total", labels) == calls
    timed = {"tool": "web_fetch"}
    assert web.registry.get_sample_value("drover_web_call_seconds_count", timed) == 3


async def test_every_hop_is_in_the_audit_trail_without_its_query(server: Origin) -> None:
    server.reply = pages({"/a?key=secret": moved("/b"), "/b": answer("hello", "text/plain")})
    web = Web(server.port)
    await web.fetch(f"http://a.example:{server.port}/a?key=secret")
    told = [
        (entry.kind, entry.verdict, entry.method, entry.host, entry.port, entry.path, entry.reason)
        for entry in web.trail.entries
    ]
    port = server.port
    assert told == [
        (Kind.WEB, Outcome.ALLOWED, "GET", "a.example", port, "/a", "status_302"),
        (Kind.WEB, Outcome.ALLOWED, "GET", "a.example", port, "/b", "status_200"),
    ]
    assert {(entry.workspace_id, entry.session_id, entry.hand_id) for entry in web.trail.entries}
    assert "secret" not in repr(web.trail.entries)
