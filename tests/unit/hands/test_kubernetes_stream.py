"""A container's stream over a WebSocket, whatever the server does with its frames."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from services.hands.backends.kubernetes import stream
from services.hands.backends.kubernetes.connection import Endpoint
from services.hands.backends.kubernetes.errors import ClusterAway, ClusterRefused
from tests.doubles.hands_waiting import eventually
from tests.doubles.kubernetes_socket import Closed, accepting, frame, received

V5, V4 = stream.PROTOCOLS
Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


def upgrades(then: Serve, protocol: str = V5) -> Serve:
    """Says yes, then does something."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        key = head.split("Sec-WebSocket-Key: ")[1].split("\r\n")[0]
        writer.write(accepting(key, protocol))
        await then(reader, writer)

    return serve


def says(answer: bytes) -> Serve:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(answer)

    return serve


@asynccontextmanager
async def attached(serve: Serve) -> AsyncIterator[tuple[asyncio.StreamReader, Any, Any]]:
    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await serve(reader, writer)
        finally:
            writer.close()

    server = await asyncio.start_server(handle, "127.0.0.1", 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        endpoint = Endpoint("127.0.0.1", port, None, "", {"Authorization": "Bearer x"}, "")
        opened = await stream.opened(endpoint, "/attach?stdin=true", seconds=30)
        try:
            yield opened
        finally:
            opened[1].transport.abort()
            await opened[2].ended.wait()


async def test_output_comes_whole_however_it_is_cut_into_frames_and_pieces() -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        fragment = bytearray(frame(b"\x01one "))
        fragment[0] &= 0x7F  # more of it comes
        pieces = bytes(fragment) + frame(b"two ", 0)
        pieces += frame(b"", 9) + frame(b"\x01") + frame(b"\x01" + b"x" * 70_000)
        for start in range(0, len(pieces), 997):
            writer.write(pieces[start : start + 997])
            await writer.drain()
        writer.write(frame(b"\x03{}") + frame((1000).to_bytes(2, "big"), 8))
        await reader.read()  # whoever closes without reading resets the connection

    async with attached(upgrades(serve)) as (reader, _, channels):
        assert await reader.read() == b"one two " + b"x" * 70_000
        await channels.ended.wait()


async def test_errors_are_heard_until_there_is_output_and_no_longer() -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for piece in (b"\x02complaint ", b"\x01said ", b"\x02unheard ", b"\x01again"):
            writer.write(frame(piece))
        writer.write(frame(b"", 8))
        await reader.read()

    async with attached(upgrades(serve)) as (reader, _, _):
        assert await reader.read() == b"complaint said again"


@pytest.mark.parametrize("protocol", [V5, V4])
async def test_input_is_masked_and_its_end_is_told(protocol: str) -> None:
    heard: list[tuple[int, bytes]] = []
    done = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, _writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                heard.append(await received(reader))
        except Closed:
            done.set()

    async with attached(upgrades(serve, protocol)) as (_, writer, _):
        writer.write(b"x" * 50_000)
        writer.write(memoryview(b"end"))
        await writer.drain()
        writer.close()
        async with asyncio.timeout(30):
            await done.wait()
    pieces = [payload for opcode, payload in heard if opcode == 2]
    assert b"".join(piece[1:] for piece in pieces if piece[0] == 0) == b"x" * 50_000 + b"end"
    assert (b"\xff\x00" in pieces) == (protocol == V5)
    assert heard[-1] == (8, (1000).to_bytes(2, "big"))


@pytest.mark.parametrize(
    "sent",
    [
        b"\x82\x7f" + (1 << 40).to_bytes(8, "big"),  # more than any server sends
        b"\x82\x81\x00\x00\x00\x00x",  # masked, which a server's is not
    ],
)
async def test_what_no_server_sends_ends_the_stream(sent: bytes) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(sent)
        await reader.read()

    async with attached(upgrades(serve)) as (reader, _, channels):
        async with asyncio.timeout(30):
            await channels.ended.wait()
        assert await reader.read() == b""


async def test_server_that_is_silent_is_let_go_of(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream, "_PING_SECONDS", 0.02)

    async def serve(reader: asyncio.StreamReader, _writer: asyncio.StreamWriter) -> None:
        await reader.read()

    async with attached(upgrades(serve)) as (_, _, channels):
        async with asyncio.timeout(30):
            await channels.ended.wait()


async def test_server_that_answers_pings_is_kept() -> None:
    pings = 0

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal pings
        while pings < 10:
            opcode, payload = await received(reader)
            pings += opcode == 9
            writer.write(frame(payload, 10))
        writer.write(frame(b"\x01done") + frame(b"", 8))
        await reader.read()

    async with attached(upgrades(serve)) as (reader, _, channels):
        for number in range(1, 10):  # the first goes out by itself
            await eventually(lambda number=number: pings == number and not channels._silent)
            channels._tick()  # not by the clock: an answer takes as long as the machine has it
        assert await reader.read() == b"done"


@pytest.mark.parametrize(
    ("answer", "error", "text"),
    [
        (
            b'HTTP/1.1 403 X\r\nContent-Length: 21\r\n\r\n{"message":"not you"}',
            ClusterRefused,
            "the cluster attaches nobody: not you",
        ),
        (b"HTTP/1.1 502 X\r\nContent-Length: 3\r\n\r\nbad", ClusterRefused, "nobody: bad"),
        (b"HTTP/1.1 404 X\r\n\r\n", ClusterRefused, "nobody: HTTP status 404"),
        (
            b"HTTP/1.1 101 X\r\nSec-WebSocket-Accept: wrong\r\n\r\n",
            ClusterRefused,
            "by a protocol that is known",
        ),
        (b"", ClusterAway, "let go of a connection"),
        (b"nonsense\r\n\r\n", ClusterAway, "let go of a connection"),
    ],
)
async def test_whoever_does_not_attach_is_told_why(
    answer: bytes, error: type[Exception], text: str
) -> None:
    with pytest.raises(error, match=text):
        async with attached(says(answer)):
            pass


async def test_nobody_there_is_told() -> None:
    endpoint = Endpoint("127.0.0.1", 1, None, "", {}, "")
    with pytest.raises(ClusterAway, match="does not answer"):
        await stream.opened(endpoint, "/attach", seconds=30)
