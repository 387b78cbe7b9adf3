"""E15: Drover's own services are out of a sandbox's reach, by whatever way, whatever is listed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from ipaddress import ip_address

import pytest
import pytest_asyncio

from chassis.grpc.server import GrpcServer
from chassis.secret import Secret
from drover.session.v1.session_pb2 import Session
from services.vault_proxy.domain.addresses import AddressRules, OwnAddress, openings
from services.vault_proxy.domain.refusal import Refusal
from services.vault_proxy.proxy.dial import Address
from tests.adversarial.sandbox.probes import probe
from tests.doubles.egress import session
from tests.doubles.egress_proxy import GRANT, World
from tests.doubles.egress_sandboxes import attacked
from tests.doubles.hands_stack import KINDS, HandsStack, Sandboxes, chosen

pytestmark = pytest.mark.asyncio(loop_scope="module")


class House(World):
    """A world in which the operator has opened loopback, where Drover's parts listen too."""

    def __init__(self, sessions: dict[str, Session]) -> None:
        super().__init__(sessions=sessions)
        self.judged: list[int] = []

    def judge(self, address: Address, port: int) -> Refusal | None:
        self.judged.append(port)
        own = [OwnAddress(int(text), ip_address("127.0.0.1")) for text in self.own]
        rules = AddressRules(openings(self.private), own, [ip_address("127.0.0.1")])
        return rules.judge(address, port)


@pytest.fixture(params=KINDS, scope="module")
def kind(request: pytest.FixtureRequest) -> Sandboxes:
    return chosen(request)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def attack(
    kind: Sandboxes, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[tuple[HandsStack, House, int, list[bytes]]]:
    """Hands, a service of Drover's, and what reached a port of its database."""
    world = House({GRANT: session()})
    service = GrpcServer("127.0.0.1:0", Secret("the installation's"))
    await service.start()
    reached: list[bytes] = []

    async def database(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        reached.append(await reader.read(1000))
        writer.close()

    other = await asyncio.start_server(database, "127.0.0.1", 0)
    port = int(service.address.rpartition(":")[2])
    rows = other.sockets[0].getsockname()[1]
    async with other, attacked(kind, tmp_path_factory.mktemp("e15"), world) as (hands, _):
        proxy = world.address.rpartition(":")[2]
        world.own = [str(port), str(rows), proxy]
        for each in world.own:
            world.open("localhost.example", port=int(each))
        yield hands, world, port, reached
    await service.stop()


@pytest.mark.parametrize(
    "host", ["127.0.0.1", "localhost", "[::1]", "[::ffff:127.0.0.1]", "127.1", "localhost.example"]
)
async def test_no_part_of_drover_is_reached_through_the_proxy(
    attack: tuple[HandsStack, House, int, list[bytes]], host: str
) -> None:
    hands, world, _, reached = attack
    for port in world.own:
        for scheme in ("http", "https"):
            url = f"{scheme}://{host}:{port}/"
            ran = await hands.run("bash", command=f"curl -gsS --noproxy '' --fail {url}")
            assert ran.is_error, url
    assert reached == []


async def test_tunnel_to_the_internal_calls_is_refused(
    attack: tuple[HandsStack, House, int, list[bytes]],
) -> None:
    """What is in one is looked at: bytes that are no TLS go nowhere, and TLS to the proxy alone."""
    hands, world, _, reached = attack
    world.judged.clear()
    told = await probe(
        hands,
        "import ssl\n"
        "context = ssl._create_unverified_context()\n"
        "def answer(one):\n"
        "    received = b''\n"
        "    while data := one.recv(1000):\n"
        "        received += data\n"
        "    return received.decode('latin-1')\n"
        "def opened(port):\n"
        "    one = socket.create_connection(('127.0.0.1', 3128))\n"
        "    one.settimeout(20)\n"
        "    one.sendall(b'CONNECT localhost.example:%d HTTP/1.1\\r\\n'\n"
        "        b'Host: localhost.example:%d\\r\\n\\r\\n' % (port, port))\n"
        "    one.recv(1000)\n"
        "    return one\n"
        f"for port in {[*map(int, world.own)]}:\n"
        "    with opened(port) as one:\n"
        "        one.sendall(b'PRI * HTTP/2.0\\r\\n\\r\\nSM\\r\\n\\r\\n')\n"
        "        found[f'{port} plain'] = answer(one)\n"
        "    with context.wrap_socket(opened(port), server_hostname='localhost.example') as one:\n"
        "        one.sendall(b'GET / HTTP/1.1\\r\\nHost: localhost.example:%d\\r\\n'\n"
        "            b'Connection: close\\r\\n\\r\\n' % port)\n"
        "        found[f'{port} tls'] = answer(one)\n",
    )
    assert len(told) == 6
    for port in world.own:
        assert told[f"{port} plain"].startswith("HTTP/1.1 400 ")
        assert "own_address" in told[f"{port} tls"]
    assert set(world.judged) == set(map(int, world.own))
    assert reached == []


async def test_internal_calls_are_not_answered_without_the_installations_secret(
    attack: tuple[HandsStack, House, int, list[bytes]],
) -> None:
    """Where the network fails, identity does not: nothing inside a sandbox has the secret."""
    hands, _, _, _ = attack
    told = await probe(
        hands,
        "found['env'] = [line for pid in pids()\n"
        "    for line in text(f'/proc/{pid}/environ').split('\\0') if 'installation' in line]\n"
        "found['token'] = [path for path in ('/run/token', '/run/drover/token',\n"
        "    '/run/drover/egress/token') if os.path.exists(path)]\n",
    )
    assert told == {"env": [], "token": []}


async def test_port_of_the_proxy_has_no_other_than_the_sandboxs_use(
    attack: tuple[HandsStack, House, int, list[bytes]],
) -> None:
    """Neither a second preamble nor an administrator's page is anything but a malformed request."""
    hands, _, _, _ = attack
    told = await probe(
        hands,
        "for words in (b'DROVER/1 x\\n', b'GET / HTTP/1.1\\r\\nHost: 127.0.0.1:3128\\r\\n\\r\\n',\n"
        "        b'GET /metrics HTTP/1.1\\r\\n', b'\\x05\\x01\\x00', b'PRI * HTTP/2.0\\r\\n'):\n"
        "    with socket.create_connection(('127.0.0.1', 3128)) as one:\n"
        "        one.settimeout(20)\n"
        "        one.sendall(words + b'\\r\\n\\r\\n')\n"
        "        found[repr(words)] = one.recv(1000).decode('latin-1').split('\\r\\n')[0]\n",
    )
    assert len(told) == 5
    for answer in told.values():
        assert answer.split()[1] in {"400", "403"}, answer
