"""Bytes between two connections: all of them, in order, no faster than they are read."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import uvloop

from services.hands.egress.proxy import ProxyAddress
from services.hands.egress.relay import HELD, End
from tests.doubles.hands_waiting import eventually

Body = Callable[[], Coroutine[Any, Any, None]]


def on_both_loops(body: Body) -> Callable[[Callable[[Coroutine[Any, Any, None]], None]], None]:
    """A test that runs on the tests' kind of loop, and on the service's."""

    @pytest.mark.parametrize("run", [asyncio.run, uvloop.run])
    def test(run: Callable[[Coroutine[Any, Any, None]], None]) -> None:
        run(body())

    test.__name__ = body.__name__
    return test


Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


@asynccontextmanager
async def joined(passed: list[int]) -> AsyncIterator[tuple[Streams, Streams]]:
    """Two pairs of sockets, whose inner ends are one connection."""
    loop = asyncio.get_running_loop()
    ends: list[End] = []
    streams: list[Streams] = []
    for _ in range(2):
        outer, inner = socket.socketpair()
        _, end = await loop.create_connection(lambda: End(passed.append), sock=inner)
        ends.append(end)
        streams.append(await asyncio.open_connection(sock=outer))
    ends[0].join(ends[1])
    yield streams[0], streams[1]
    for _, writer in streams:
        writer.close()
    for end in ends:
        end.abort()
    await eventually(lambda: all(end.transport is None for end in ends))


@on_both_loops
async def test_what_goes_in_comes_out() -> None:
    passed: list[int] = []
    async with joined(passed) as ((left_in, left), (right_in, right)):
        for writer, reader in ((left, right_in), (right, left_in)):
            data = os.urandom(1 << 20)
            writer.write(data)
            assert await reader.readexactly(len(data)) == data
    assert sum(passed) == 2 << 20


@on_both_loops
async def test_who_has_ended_its_half_still_reads_the_other() -> None:
    async with joined([]) as ((left_in, left), (right_in, right)):
        left.write(b"question")
        left.write_eof()
        assert await right_in.read() == b"question"
        right.write(b"answer")
        right.write_eof()
        assert await left_in.read() == b"answer"


@on_both_loops
async def test_slow_reader_slows_who_writes() -> None:
    passed: list[int] = []
    async with joined(passed) as ((_, left), (right_in, _)):
        left.transport.set_write_buffer_limits(high=0)
        chunk = bytes(1 << 16)
        for _ in range(512):
            left.write(chunk)
        before = -1
        while before != sum(passed):
            before = sum(passed)
            for _ in range(100):
                await asyncio.sleep(0)
        # The sockets' own buffers, the stream's, and one read's worth beside what is held.
        assert HELD < before < 6 << 20
        received = 0
        while received < 512 << 16:
            received += len(await right_in.read(1 << 20))


@on_both_loops
async def test_end_that_is_cut_cuts_the_other() -> None:
    async with joined([]) as ((left_in, left), (_, right)):
        right.transport.abort()
        left.write(b"x")
        assert await left_in.read() == b""
        with pytest.raises(ConnectionError):
            await _write_on(left)


async def _write_on(writer: asyncio.StreamWriter) -> None:
    for _ in range(1000):
        writer.write(b"x")
        await writer.drain()
        await asyncio.sleep(0)


@on_both_loops
async def test_what_comes_before_there_is_an_other_end_is_held_and_no_more_is_read() -> None:
    loop = asyncio.get_running_loop()
    outer, inner = socket.socketpair()
    _, early = await loop.create_connection(lambda: End(lambda _: None), sock=inner)
    reader, writer = await asyncio.open_connection(sock=outer)
    writer.write(bytes(8 << 20))
    writer.write_eof()
    await eventually(lambda: early._early)
    far, near = socket.socketpair()
    _, late = await loop.create_connection(lambda: End(lambda _: None), sock=near)
    assert len(early._early) <= 1 << 18
    far_reader, far_writer = await asyncio.open_connection(sock=far)
    early.join(late)
    assert len(await far_reader.read()) == 8 << 20
    far_writer.write_eof()
    assert await reader.read() == b""
    for one in (writer, far_writer):
        one.close()


@pytest.mark.parametrize("text", ["unix:relative", "unix:", "nowhere", "host:99999", ":1"])
def test_address_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="must be"):
        ProxyAddress(text)


async def test_socket_with_a_longer_path_than_sockets_have_is_reached(tmp_path: Path) -> None:
    directory = tmp_path / ("d" * 100) / ("e" * 100)
    directory.mkdir(parents=True)
    fd = os.open(directory, os.O_PATH)
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(f"/proc/self/fd/{fd}/s")
    os.close(fd)
    listener.listen()
    end = await ProxyAddress(f"unix:{directory / 's'}").connect(lambda: End(lambda _: None))
    connection, _ = listener.accept()
    assert end.transport is not None
    end.transport.write(b"hello")
    assert await asyncio.get_running_loop().run_in_executor(None, connection.recv, 5) == b"hello"
    end.abort()
    connection.close()
    listener.close()
