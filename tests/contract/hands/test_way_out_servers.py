"""Programs of a sandbox, the real egress proxy, and HTTPS servers with their own authority."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from tests.doubles.egress import CANARY, credential, holdings, session
from tests.doubles.egress_proxy import GRANT, World
from tests.doubles.egress_whole import Whole, whole
from tests.doubles.hands_stack import KINDS, HandsStack, Sandboxes, chosen, text
from tests.doubles.origin import Asked, Origin, origin

pytestmark = pytest.mark.asyncio(loop_scope="module")
HOST = "api.example.com"


@pytest.fixture(params=KINDS, scope="module")
def kind(request: pytest.FixtureRequest) -> Sandboxes:
    return chosen(request)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def outside() -> AsyncIterator[Whole]:
    world = World(
        sessions={GRANT: session(allowed=[HOST])}, holdings=holdings(credential(hosts=[HOST]))
    )
    async with whole(world) as running:
        yield running


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def server(outside: Whole) -> AsyncIterator[Origin]:
    """It sends back what it was sent."""
    async with origin(HOST, authority=outside.world.outside) as made:
        made.reply = _echo
        outside.world.open(HOST, "denied.example", port=made.port)
        yield made


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def hands(
    kind: Sandboxes,
    outside: Whole,
    server: Origin,
    tmp_path_factory: pytest.TempPathFactory,
) -> AsyncIterator[HandsStack]:
    place = tmp_path_factory.mktemp("servers")
    async with kind.stack(place, outside=outside) as stack:
        assert server.port
        yield stack


def _echo(asked: Asked) -> bytes:
    lines = [line.decode("utf-8", "surrogateescape") for line in asked.lines]
    body = json.dumps({"lines": lines}, ensure_ascii=False).encode("utf-8", "surrogateescape")
    return b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body)


async def test_credential_arrives_at_its_host_and_does_not_come_back(
    hands: HandsStack, server: Origin
) -> None:
    url = f"https://{HOST}:{server.port}/v1"
    shown = await hands.bash(f'curl -sS {url} -H "Authorization: Bearer $KEY_cred_1"')
    sent = server.asked[-1].field("authorization")
    assert sent == [b"Bearer " + CANARY.encode()]
    assert json.loads(shown)["lines"][0] == "GET /v1 HTTP/1.1"
    assert CANARY not in shown
    assert CANARY not in await hands.bash("env; cat /proc/*/environ 2>/dev/null | tr '\\0' '\\n'")


@pytest.mark.parametrize(
    "client",
    [
        "curl -sS {}",
        "python3 -c 'import sys, urllib.request as u; print(u.urlopen(sys.argv[1]).read())' {}",
    ],
    ids=["curl", "python"],
)
async def test_programs_trust_what_they_are_shown(
    hands: HandsStack, server: Origin, client: str
) -> None:
    before = len(server.asked)
    await hands.bash(client.format(f"https://{HOST}:{server.port}/"))
    assert len(server.asked) == before + 1
    assert server.names[-1] == HOST


async def test_refusal_says_what_would_allow_it(hands: HandsStack, server: Origin) -> None:
    shown = await hands.bash(f"curl -sS http://denied.example:{server.port}/")
    error = json.loads(shown)["error"]
    assert (error["type"], error["reason"]) == ("egress_denied", "host_not_allowed")
    assert "allowed_hosts" in error["message"]
    tunnel = await hands.run("bash", command=f"curl -sS https://denied.example:{server.port}/")
    assert "403" in text(tunnel)
    verbose = f"curl -sSv https://denied.example:{server.port}/ 2>&1 | grep -i x-drover-egress"
    assert "host_not_allowed" in await hands.bash(verbose)


async def test_revoked_grant_lets_nothing_out_any_more(
    hands: HandsStack, outside: Whole, server: Origin
) -> None:
    """What is open already, too: each request is decided anew."""
    allowed = outside.world.sessions.pop(GRANT)
    before = len(server.asked)
    try:
        shown = await hands.bash(f"curl -sS http://{HOST}:{server.port}/")
    finally:
        outside.world.sessions[GRANT] = allowed
    assert json.loads(shown)["error"]["reason"] == "grant_invalid"
    assert len(server.asked) == before
