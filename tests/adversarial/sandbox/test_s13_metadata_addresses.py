"""S13: the addresses of clouds' metadata services, in every spelling, and whatever else is near."""

from __future__ import annotations

import asyncio

import pytest

from tests.adversarial.sandbox.probes import probe
from tests.doubles.hands_stack import HandsStack

pytestmark = pytest.mark.asyncio(loop_scope="module")
# Dotted, decimal, octal, hexadecimal, mixed, short, and the IPv6 forms that stand for it.
SPELLINGS = (
    *("169.254.169.254", "2852039166", "0251.0376.0251.0376", "0xa9fea9fe", "0xA9.0xFE.0xA9.0xFE"),
    *("025177524776", "169.254.43518", "169.16689662", "0xa9.254.0251.0xfe"),
    *("::ffff:169.254.169.254", "::ffff:a9fe:a9fe", "::169.254.169.254", "64:ff9b::a9fe:a9fe"),
    *("2002:a9fe:a9fe::1", "fd00:ec2::254", "fe80::a9fe:a9fe", "fd20:ce::254"),
    # Others' own: ECS, Alibaba, Azure, Oracle, and this machine's neighbours.
    *("169.254.170.2", "169.254.170.23", "100.100.100.200", "168.63.129.16", "192.0.0.192"),
    *("169.254.0.1", "10.0.2.2", "172.17.0.1", "192.168.0.1", "100.64.0.1", "8.8.8.8"),
    *("224.0.0.251", "255.255.255.255", "2001:4860:4860::8888", "ff02::1"),
)
NAMES = (
    "metadata.google.internal",
    "metadata",
    "instance-data",
    "example.com",
    "host.docker.internal",
)


async def test_no_spelling_reaches_anything_and_none_waits_for_an_answer(
    shared: HandsStack,
) -> None:
    """It is the namespace that refuses: there is no way at all, so that nothing has to time out."""
    told = await probe(
        shared,
        "import time\n"
        "def reached(address, port, kind):\n"
        "    for family, _, _, _, where in socket.getaddrinfo(address, port, type=kind):\n"
        "        with socket.socket(family, kind) as one:\n"
        "            one.settimeout(60)\n"
        "            error = failed(one.connect, where)\n"
        "            if error == 0 and kind == socket.SOCK_DGRAM:\n"
        "                error = failed(one.send, b'x')\n"
        "            if error == 0:\n"
        "                return True\n"
        "    return False\n"
        "started = time.monotonic()\n"
        "found['reached'] = []\n"
        f"for address in {SPELLINGS}:\n"
        "    for port, kind in ((80, socket.SOCK_STREAM), (53, socket.SOCK_DGRAM)):\n"
        "        try:\n"
        "            if reached(address, port, kind):\n"
        "                found['reached'].append(address)\n"
        "        except socket.gaierror:\n"
        "            continue\n"
        "found['seconds'] = time.monotonic() - started\n",
    )
    assert told["reached"] == []
    assert told["seconds"] < 50  # none was waited for


async def test_there_is_no_way_out_of_the_sandbox(shared: HandsStack) -> None:
    told = await probe(
        shared,
        "found['links'] = [line.split(':')[0].strip() for line in\n"
        "    text('/proc/net/dev').splitlines() if ':' in line]\n"
        "found['routes'] = text('/proc/net/route').splitlines()[1:]\n"
        "found['routes6'] = [line for line in text('/proc/net/ipv6_route').splitlines()\n"
        "    if not line.rstrip().endswith(' lo')]\n",
    )
    assert set(told["links"]) <= {"lo"}
    assert told["routes"] == []
    assert told["routes6"] == []


async def test_names_are_not_resolved(shared: HandsStack) -> None:
    told = await probe(
        shared,
        f"for name in {NAMES}:\n"
        "    try:\n"
        "        found[name] = socket.getaddrinfo(name, 80)[0][4][0]\n"
        "    except socket.gaierror:\n"
        "        found[name] = ''\n",
    )
    assert set(told.values()) == {""}


async def test_listeners_of_the_host_are_out_of_reach(shared: HandsStack) -> None:
    reached = asyncio.Event()

    async def greet(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        reached.set()
        writer.close()

    server = await asyncio.start_server(greet, "0.0.0.0", 0)  # noqa: S104  # every way in is open
    port = server.sockets[0].getsockname()[1]
    async with server:
        told = await probe(
            shared,
            "for host in ('127.0.0.1', '127.1', '0.0.0.0', '127.255.255.254', '10.0.2.2',\n"
            "        '169.254.169.254', '172.17.0.1'):\n"
            "    with socket.socket() as one:\n"
            "        one.settimeout(2)\n"
            f"        found[host] = failed(one.connect, (host, {port}))\n",
        )
        assert 0 not in told.values()
    assert not reached.is_set()
