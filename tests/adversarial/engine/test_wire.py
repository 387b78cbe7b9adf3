"""Requests within requests, and streams: the proxy and the engine never read one differently."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.doubles.engine_peer import OURS, Peer, client_of, raw
from tests.doubles.hands_waiting import eventually

HIDDEN = b"POST /v1.41/volumes/create HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n"
START = f"POST /v1.41/containers/{OURS}/start HTTP/1.1\r\nHost: x\r\n".encode()
ATTACH = f"POST /v1.41/containers/{OURS}/attach?stream=1&stdin=1 HTTP/1.1\r\nHost: x\r\n".encode()
UPGRADE = b"Connection: Upgrade\r\nUpgrade: tcp\r\n\r\n"


@pytest.mark.parametrize(
    "sent",
    [
        START + b"Content-Length: 5\r\nContent-Length: 0\r\n\r\n" + HIDDEN,
        START + b"Content-Length: 0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + HIDDEN,
        START + b"Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n\r\n" + HIDDEN,
        START + b"Transfer-Encoding : chunked\r\n\r\n" + HIDDEN,
        START + b"Transfer-Encoding: xchunked\r\n\r\n" + HIDDEN,
        START + b"Content-Length: +0\r\n\r\n" + HIDDEN,
        START + b"X: y\r\n folded\r\nContent-Length: 0\r\n\r\n" + HIDDEN,
        START + b"X: y\nContent-Length: 99\r\n\r\n" + HIDDEN,
        START + b"Connection: Upgrade\r\nUpgrade: h2c\r\n\r\n" + HIDDEN,
        START + b"Connection: Upgrade\r\nUpgrade: tcp\r\n\r\n" + HIDDEN,
        START + b"Expect: 100-continue\r\nContent-Length: 0\r\n\r\n" + HIDDEN,
        START + b"Content-Length: 0\r\n\r\n" + HIDDEN,
        ATTACH + b"Content-Length: 0\r\n\r\n" + HIDDEN,
        ATTACH + b"Content-Length: 70\r\n" + UPGRADE + HIDDEN,
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + HIDDEN,
        b"GET /_ping HTTP/0.9\r\n\r\n" + HIDDEN,
        b"GET /_ping\r\n" + HIDDEN,
        b"\r\n\r\n\r\n" + HIDDEN,
        b"GET /_ping HTTP/1.1\r\nX: " + b"y" * 70_000 + b"\r\n\r\n" + HIDDEN,
        b"CONNECT /var/run/docker.sock HTTP/1.1\r\nHost: x\r\n\r\n" + HIDDEN,
        b"\x16\x03\x01\x02\x00\x01\x00\x01" + HIDDEN,
    ],
)
async def test_request_that_is_hidden_in_another_is_none(
    proxy: Path, peer: Peer, sent: bytes
) -> None:
    await raw(proxy, sent)
    hidden = [line for line in peer.asked if "volumes/create" in line]
    assert hidden == []
    assert all(body == b"" for body in peer.bodies)


async def test_refusal_leaves_the_connection_to_the_next_request(proxy: Path) -> None:
    async with client_of(proxy) as client:
        for _ in range(3):
            assert (await client.ask("GET", "/networks"))[0] == 403
            assert (await client.ask("GET", "/_ping"))[0] == 200


async def test_bytes_go_both_ways_until_both_ends_have_ended(proxy: Path, peer: Peer) -> None:
    reader, writer = await asyncio.open_unix_connection(proxy)
    writer.write(ATTACH + UPGRADE + b"early")
    head = await reader.readuntil(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 101 ")
    far_reader, far_writer = peer.streams[0]
    assert await far_reader.readexactly(5) == b"early"
    # More than all buffers on the way hold: whoever is slow makes the others wait.
    much = bytes(range(256)) * 16_384
    far_writer.write(much)
    assert await reader.readexactly(len(much)) == much
    writer.write(HIDDEN)
    assert await far_reader.readexactly(len(HIDDEN)) == HIDDEN
    writer.write_eof()
    assert await far_reader.read() == b""
    far_writer.write(b"late")
    far_writer.close()
    assert await reader.read() == b"late"
    writer.close()
    assert len(peer.streams) == 1


async def test_engine_that_lets_go_of_a_stream_ends_it(proxy: Path, peer: Peer) -> None:
    reader, writer = await asyncio.open_unix_connection(proxy)
    writer.write(ATTACH + UPGRADE)
    await reader.readuntil(b"\r\n\r\n")
    peer.streams[0][1].transport.abort()
    assert await reader.read() == b""
    writer.close()


async def test_client_that_is_gone_is_asked_for_nothing_any_more(proxy: Path, peer: Peer) -> None:
    peer.held = asyncio.Event()
    _, writer = await asyncio.open_unix_connection(proxy)
    wait = f"POST /v1.41/containers/{OURS}/wait HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n"
    writer.write(wait.encode())
    await eventually(lambda: any("/wait" in line for line in peer.asked))
    writer.close()
    await eventually(lambda: peer.left)


async def test_engine_that_is_away_is_told(proxy: Path, tmp_path: Path) -> None:
    (tmp_path / "engine").unlink()
    async with client_of(proxy) as client:
        status, told = await client.ask("GET", "/_ping")
    assert status == 503
    assert told["message"].startswith("the engine proxy reaches no container engine: ")
