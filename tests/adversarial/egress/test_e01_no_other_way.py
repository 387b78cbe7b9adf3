"""E1: without the proxy's variables nothing leaves, whatever protocol it speaks.

A sandbox that has a way out is tried as one that has none (CASES S13): the way out is a socket, not
an interface.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from tests.adversarial.sandbox.probes import probe
from tests.doubles.egress_sandboxes import attacked
from tests.doubles.hands_stack import KINDS, HandsStack, Sandboxes, chosen

pytestmark = pytest.mark.asyncio(loop_scope="module")
SOCKET = "/run/drover/egress/proxy.sock"


@pytest.fixture(params=KINDS, scope="module")
def kind(request: pytest.FixtureRequest) -> Sandboxes:
    return chosen(request)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def hands(
    kind: Sandboxes, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[HandsStack]:
    async with attacked(kind, tmp_path_factory.mktemp("e1")) as (stack, _):
        yield stack


async def test_programs_that_forget_the_proxy_reach_nothing(hands: HandsStack) -> None:
    for command in (
        "env -u https_proxy -u HTTPS_PROXY -u ALL_PROXY -u all_proxy curl -sS https://8.8.8.8/",
        "curl -sS --noproxy '*' http://8.8.8.8/",
        "curl -sS --noproxy '*' https://allowed.example/",
        "exec 3<>/dev/tcp/8.8.8.8/443",
        "echo x >/dev/udp/8.8.8.8/53",
        "git -c http.proxy= ls-remote https://8.8.8.8/o/r",
    ):
        result = await hands.run("bash", command=command, timeout_ms=20_000)
        assert result.is_error, command


async def test_no_protocol_has_a_route(hands: HandsStack) -> None:
    """TCP, UDP (and with it QUIC), ICMP and raw packets, to every kind of address."""
    told = await probe(
        hands,
        "import time\n"
        "began = time.monotonic()\n"
        "kinds = {'tcp': (socket.SOCK_STREAM, 0), 'udp': (socket.SOCK_DGRAM, 0),\n"
        "    'icmp': (socket.SOCK_DGRAM, 1), 'raw': (socket.SOCK_RAW, 1),\n"
        "    'sctp': (socket.SOCK_STREAM, 132)}\n"
        "def reached(family, kind, protocol, address):\n"
        "    with socket.socket(family, kind, protocol) as one:\n"
        "        one.settimeout(60)\n"
        "        one.connect((address, 443))\n"
        "        if kind != socket.SOCK_STREAM:\n"
        "            one.send(b'x' * 1200)\n"
        "found['reached'] = [(name, address)\n"
        "    for name, (kind, protocol) in kinds.items()\n"
        "    for family, address in ((2, '8.8.8.8'), (2, '10.0.0.1'), (2, '169.254.169.254'),\n"
        "        (2, '255.255.255.255'), (10, '2001:4860:4860::8888'), (10, 'fe80::1'))\n"
        "    if not failed(reached, family, kind, protocol, address)]\n"
        "found['packets'] = failed(socket.socket, 17, socket.SOCK_RAW, 3)\n"
        "found['netlink'] = failed(socket.socket, 16, socket.SOCK_RAW, 0)\n"
        "found['vsock'] = failed(socket.socket, 40, socket.SOCK_STREAM, 0)\n"
        "found['seconds'] = time.monotonic() - began\n"
        "found['links'] = [line.split(':')[0].strip() for line in\n"
        "    text('/proc/net/dev').splitlines() if ':' in line]\n"
        "found['routes'] = text('/proc/net/route').splitlines()[1:]\n",
    )
    assert told["reached"] == []
    assert told["packets"]
    assert told["netlink"]
    assert told["vsock"]
    assert told["seconds"] < 50  # it is the namespace that refuses: nothing has to time out
    assert set(told["links"]) <= {"lo"}
    assert told["routes"] == []


async def test_one_socket_is_all_that_leads_out(hands: HandsStack) -> None:
    told = await probe(
        hands,
        "import stat\n"
        "found['sockets'] = []\n"
        "for place, below, names in os.walk('/'):\n"
        "    below[:] = [name for name in below\n"
        "        if os.path.join(place, name) not in {'/proc', '/sys', '/usr'}]\n"
        "    for name in names:\n"
        "        path = os.path.join(place, name)\n"
        "        try:\n"
        "            if stat.S_ISSOCK(os.lstat(path).st_mode):\n"
        "                found['sockets'].append(path)\n"
        "        except OSError:\n"
        "            continue\n"
        "found['listening'] = sorted({int(line.split()[1].split(':')[1], 16)\n"
        "    for table in ('tcp', 'tcp6') for line in text('/proc/net/' + table).splitlines()[1:]\n"
        "    if line.split()[3] == '0A'})\n"
        "found['unix'] = [line.split()[7] for line in text('/proc/net/unix').splitlines()[1:]\n"
        "    if len(line.split()) > 7]\n",
        timeout_ms=60_000,
    )
    assert told["sockets"] == [SOCKET]
    assert told["listening"] == [3128]
    assert told["unix"] == []


async def test_sockets_of_other_sandboxes_are_out_of_reach(hands: HandsStack) -> None:
    """Each is told by its own: no name leads to another's."""
    await hands.bash("true", session_id="sesn_other")
    access = hands.pool.live()["sesn_other"].access
    assert access is not None
    other = str(access.way_out.directory)
    told = await probe(
        hands,
        f"for address in ({other + '/proxy.sock'!r}, {SOCKET!r} + '/../../' + {other!r},\n"
        f"        '/proc/1/root' + {other!r} + '/proxy.sock', '\\0drover'):\n"
        "    with socket.socket(socket.AF_UNIX) as one:\n"
        "        found[address] = failed(one.connect, address)\n"
        f"found['places'] = os.listdir('/run/drover')\n",
    )
    assert told.pop("places") == ["egress"]
    assert 0 not in told.values()


async def test_descriptors_that_a_program_sends_outside_are_dropped(hands: HandsStack) -> None:
    """They would be the hands' from then on."""
    program = (
        "one = socket.socket(socket.AF_UNIX)\n"
        f"one.connect({SOCKET!r})\n"
        "held = os.open('/usr', os.O_RDONLY)\n"
        "for _ in range(50):\n"
        "    socket.send_fds(one, [b'GET '], [held] * 8)\n"
        "one.sendall(b'/ HTTP/1.1\\r\\n\\r\\n')\n"
        "found['answer'] = one.recv(100).decode('latin-1')\n"
    )
    before = _descriptors()
    told = await probe(hands, program)
    assert told["answer"].startswith("HTTP/1.1 400 ")
    assert _descriptors() - before < 16


def _descriptors() -> int:
    with socket.socket() as one:
        return one.fileno()  # the lowest that is free


async def test_listeners_of_the_host_are_not_on_the_sandboxs_loopback(hands: HandsStack) -> None:
    reached = asyncio.Event()

    async def greet(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        reached.set()
        writer.close()

    server = await asyncio.start_server(greet, "0.0.0.0", 0)  # noqa: S104  # every way in is open
    port = server.sockets[0].getsockname()[1]
    async with server:
        told = await probe(
            hands,
            "for host in ('127.0.0.1', '127.1', '0.0.0.0', '10.0.2.2', '172.17.0.1'):\n"
            "    with socket.socket() as one:\n"
            "        one.settimeout(2)\n"
            f"        found[host] = failed(one.connect, (host, {port}))\n",
        )
    assert 0 not in told.values()
    assert not reached.is_set()
