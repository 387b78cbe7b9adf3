"""What is held back of an answer, lest a value pass in two pieces, goes on when nothing comes."""

from __future__ import annotations

import asyncio

from tests.doubles.egress import CANARY, credential, holdings
from tests.doubles.egress_proxy import World, proxied
from tests.doubles.origin import origin, read_request

HOST = "api.example.com"
_RAW = CANARY.encode()


async def test_a_stream_whose_last_word_is_held_back_does_not_wait_for_the_next_one() -> None:
    heard = asyncio.Event()

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)
        writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        for piece in (b"the first sk-can", _RAW[:9], _RAW[9:] + b" and the last word"):
            writer.write(b"%x\r\n%b\r\n" % (len(piece), piece))
            if piece is not _RAW[:9]:
                await writer.drain()
            if piece.startswith(b"the first"):
                await heard.wait()
        writer.write(b"0\r\n\r\n")
        await writer.drain()
        await reader.read()

    async with origin() as server:
        server.talk = talk
        world = World(holdings=holdings(credential(hosts=[HOST])))
        world.open(HOST, port=server.port)
        async with proxied(world):
            sandbox = await world.sandbox()
            at = f"{HOST}:{server.port}"
            sandbox.send(f"GET http://{at}/ HTTP/1.1\r\nHost: {at}\r\n\r\n".encode())
            seen = b""
            while b"sk-can" not in seen:
                seen += await sandbox.reader.read(1 << 16)
            heard.set()
            while not seen.endswith(b"0\r\n\r\n"):
                seen += await sandbox.reader.read(1 << 16)
    assert _RAW not in seen
    assert b"*" * len(_RAW) in seen
    assert b"and the last " in seen
