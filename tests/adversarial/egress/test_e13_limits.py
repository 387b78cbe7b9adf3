"""E13: what is too long, too slow or without end is stopped, and costs no memory."""

from __future__ import annotations

import asyncio
import resource
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import pytest

from services.vault_proxy.proxy.dial import Address
from services.vault_proxy.proxy.limits import Limits
from tests.doubles.egress import session
from tests.doubles.egress_proxy import GRANT, World, proxied
from tests.doubles.origin import Asked, Origin, read_request

ALLOWED = "allowed.example"
_MIB = 1 << 20


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (b"X: y\r\n" * 100_000, 431),
        (b"X: " + b"a" * 4 * _MIB, 431),
        (b"X: y\r\n" * 200 + b"\r\n", 431),
    ],
)
async def test_a_long_head_is_refused_where_it_becomes_too_long(
    world: World, server: Origin, sent: bytes, status: int
) -> None:
    sandbox = await world.sandbox()
    at = f"{ALLOWED}:{server.port}"
    sandbox.send(f"GET http://{at}/ HTTP/1.1\r\nHost: {at}\r\n".encode())
    answered = await sandbox.ask(sent)
    assert (answered.status, answered.why) == (status, "limit_exceeded")
    assert server.connections == 0


async def test_a_long_url_is_refused(world: World, server: Origin) -> None:
    sandbox = await world.sandbox()
    at = f"{ALLOWED}:{server.port}"
    answered = await sandbox.ask(
        f"GET http://{at}/{'a' * 20_000} HTTP/1.1\r\nHost: {at}\r\n\r\n".encode()
    )
    assert (answered.status, answered.why) == (414, "limit_exceeded")


@pytest.fixture
async def hasty(server: Origin) -> World:
    made = World(
        sessions={GRANT: session(allowed=[ALLOWED])},
        limits=Limits(
            preamble_seconds=0.2,
            head_seconds=0.2,
            idle_seconds=0.2,
            piece_seconds=0.2,
            answer_seconds=0.2,
            connections_per_session=3,
        ),
    )
    made.open(ALLOWED, port=server.port)
    return made


async def test_a_slow_client_is_ended_wherever_it_stops(hasty: World, server: Origin) -> None:
    at = f"{ALLOWED}:{server.port}"
    head = f"POST http://{at}/ HTTP/1.1\r\nHost: {at}\r\n".encode()
    async with proxied(hasty):
        silent = await hasty.sandbox()
        assert await silent.ended()
        slow = await hasty.sandbox()
        answered = await slow.ask(head)
        assert (answered.status, answered.why) == (408, "timeout")
        stuck = await hasty.sandbox()
        answered = await stuck.ask(head + b"Content-Length: 500000\r\n\r\nabc", method=b"POST")
        assert (answered.status, answered.why) == (408, "timeout")
        tunnel = await hasty.sandbox()
        assert await tunnel.tunnel(at) is None
        assert await tunnel.ended()


async def test_a_slow_server_is_given_up(hasty: World, server: Origin) -> None:
    stop = asyncio.Event()

    async def silent(reader: asyncio.StreamReader, _: asyncio.StreamWriter) -> None:
        await read_request(reader)
        await stop.wait()

    server.talk = silent
    async with proxied(hasty):
        sandbox = await hasty.sandbox()
        at = f"{ALLOWED}:{server.port}"
        answered = await sandbox.ask(f"GET http://{at}/ HTTP/1.1\r\nHost: {at}\r\n\r\n".encode())
        assert (answered.status, answered.why) == (504, "host_timeout")
        stop.set()


async def test_a_session_has_so_many_connections_and_no_more(hasty: World) -> None:
    hasty.limits = Limits(connections_per_session=3)
    async with proxied(hasty):
        three = [await hasty.sandbox() for _ in range(3)]
        for sandbox in three:  # the proxy knows them by now
            assert (await sandbox.ask(b"GET http://x.example/ HTTP/1.0\r\n\r\n")).status == 403
        three += [await hasty.sandbox() for _ in range(3)]
        for sandbox in three[3:]:
            answered = await sandbox.answer()
            assert (answered.status, answered.why) == (503, "limit_exceeded")


def _memory() -> float:
    """MiB that this process has now: the proxy is in it, and so is the server."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize() / _MIB


async def test_an_endless_answer_waits_for_who_reads_it(world: World, server: Origin) -> None:
    sent = 0

    async def endless(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal sent
        await read_request(reader)
        writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
        while True:
            writer.write(bytes(65_536))
            await writer.drain()
            sent += 65_536

    server.talk = endless
    sandbox = await world.sandbox()
    at = f"{ALLOWED}:{server.port}"
    sandbox.send(f"GET http://{at}/ HTTP/1.1\r\nHost: {at}\r\n\r\n".encode())
    before = _memory()
    got = 0
    while got < 64 * _MIB:
        got += len(await sandbox.reader.read(_MIB))
    assert _memory() - before < 24
    stalled = -1
    while stalled != sent:  # nobody reads: the server is made to wait
        stalled = sent
        await asyncio.sleep(0.05)
    assert sent - got < 24 * _MIB


async def test_an_endless_body_is_streamed(world: World, server: Origin) -> None:
    taken = asyncio.Event()
    total = 0

    async def taking(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal total
        await reader.readuntil(b"\r\n\r\n")
        while total < 64 * _MIB:
            total += len(await reader.read(_MIB))
        taken.set()
        writer.write(b"HTTP/1.1 413 Enough\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
        while await reader.read(_MIB):  # closed over unread bytes, the answer would be lost
            pass

    server.talk = taking
    sandbox = await world.sandbox()
    at = f"{ALLOWED}:{server.port}"
    sandbox.send(
        f"POST http://{at}/ HTTP/1.1\r\nHost: {at}\r\nTransfer-Encoding: chunked\r\n\r\n".encode()
    )
    before = _memory()
    piece = b"10000\r\n" + bytes(65_536) + b"\r\n"
    while not taken.is_set():
        sandbox.send(piece)
        await sandbox.writer.drain()
    assert (await sandbox.answer(method=b"POST")).status == 413
    assert _memory() - before < 24


async def test_what_is_packed_is_passed_on_packed(world: World, server: Origin) -> None:
    """A decompression bomb is whoever's who unpacks it."""
    bomb = bytes(1000)

    def reply(_: Asked) -> bytes:
        head = f"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: {len(bomb)}\r\n\r\n"
        return head.encode() + bomb

    server.reply = reply
    sandbox = await world.sandbox()
    at = f"{ALLOWED}:{server.port}"
    answered = await sandbox.ask(f"GET http://{at}/ HTTP/1.1\r\nHost: {at}\r\n\r\n".encode())
    assert answered.body == bomb


async def test_a_preamble_without_end_is_ended(world: World) -> None:
    host, _, port = world.address.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(b"DROVER/1 " + b"a" * 20_000)
    with suppress(ConnectionError):
        assert await reader.read() == b""
    writer.close()


class Slow(World):
    """Whose `allowed.example` is not resolved before `answer`."""

    waiting = 0
    answer: asyncio.Event

    async def resolve(self, name: str) -> Sequence[Address]:
        if name == ALLOWED:
            Slow.waiting += 1
            await Slow.answer.wait()
        return await super().resolve(name)


async def test_names_that_are_slow_to_be_resolved_keep_no_other_session_waiting(
    server: Origin,
) -> None:
    Slow.answer = asyncio.Event()
    world = Slow(sessions={GRANT: session(allowed=[ALLOWED])})
    world.open(ALLOWED, "other.example", port=server.port)
    world.sessions["grant-2"] = session(allowed=["other.example"])
    world.sessions["grant-2"].id = "sesn_2"
    async with proxied(world), asyncio.timeout(30):
        asking = []
        for _ in range(12):
            sandbox = await world.sandbox()
            asking.append(asyncio.create_task(sandbox.ask(_get(ALLOWED, server.port))))
        while Slow.waiting < 8:  # noqa: ASYNC110  # over real sockets
            await asyncio.sleep(0)
        sandbox = await world.sandbox("grant-2")
        assert (await sandbox.ask(_get("other.example", server.port))).status == 200
        assert Slow.waiting == 8
        Slow.answer.set()
        answers = await asyncio.gather(*asking)
    assert {answered.status for answered in answers} == {200}


def _get(host: str, port: int) -> bytes:
    return f"GET http://{host}:{port}/ HTTP/1.1\r\nHost: {host}:{port}\r\n\r\n".encode()
