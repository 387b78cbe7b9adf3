"""The server's side of "attach": channels over a WebSocket."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import json
from contextlib import suppress

_GUID = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"


class Closed(Exception):  # noqa: N818  # a thing that happens
    """The client has let go."""


def accepting(key: str, protocol: str) -> bytes:
    """The answer that makes a connection one of frames."""
    digest = base64.b64encode(
        hashlib.sha1(f"{key}{_GUID}".encode(), usedforsecurity=False).digest()
    ).decode()
    return (
        "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        f"Sec-WebSocket-Accept: {digest}\r\nSec-WebSocket-Protocol: {protocol}\r\n\r\n"
    ).encode()


async def received(reader: asyncio.StreamReader) -> tuple[int, bytes]:
    """The next frame's opcode and payload; a client's must be masked. Raises `Closed`."""
    try:
        first, second = await reader.readexactly(2)
        length = second & 0x7F
        if length >= 126:
            length = int.from_bytes(await reader.readexactly(2 if length == 126 else 8), "big")
        if not second & 0x80:
            raise Closed
        key = await reader.readexactly(4)
        data = await reader.readexactly(length)
    except (asyncio.IncompleteReadError, OSError) as error:
        raise Closed from error
    over = (key * (length // 4 + 1))[:length]
    plain = int.from_bytes(data, "big") ^ int.from_bytes(over, "big")
    return first & 0x0F, plain.to_bytes(length, "big")


def frame(payload: bytes, opcode: int = 2) -> bytes:
    size = len(payload)
    if size < 126:
        return bytes((0x80 | opcode, size)) + payload
    if size <= 0xFFFF:
        return bytes((0x80 | opcode, 126)) + size.to_bytes(2, "big") + payload
    return bytes((0x80 | opcode, 127)) + size.to_bytes(8, "big") + payload


async def serve(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, process: asyncio.subprocess.Process,
    protocol: str, heard: asyncio.Queue[tuple[int, bytes] | None],
) -> None:  # fmt: skip
    """Carries input to a process, and what `heard` has of it to the client, until one ends."""
    tasks = {
        asyncio.ensure_future(_inward(reader, writer, process, protocol)),
        asyncio.ensure_future(_outward(writer, heard)),
    }
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)


async def _inward(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter,
    process: asyncio.subprocess.Process, protocol: str,
) -> None:  # fmt: skip
    assert process.stdin is not None
    with suppress(Closed, OSError):
        while True:
            opcode, payload = await received(reader)
            if opcode == 9:
                writer.write(frame(payload, 10))
            elif opcode == 8:
                return
            elif opcode == 2 and payload[0] == 0:
                process.stdin.write(payload[1:])
                await process.stdin.drain()
            elif opcode == 2 and payload[0] == 255 and protocol.startswith("v5"):
                process.stdin.close()


async def _outward(
    writer: asyncio.StreamWriter, heard: asyncio.Queue[tuple[int, bytes] | None]
) -> None:
    with suppress(OSError):
        while (piece := await heard.get()) is not None:
            channel, data = piece
            writer.write(frame(bytes((channel,)) + data))
            await writer.drain()
        status = {"metadata": {}, "status": "Success"}
        writer.write(frame(b"\x03" + json.dumps(status).encode()))
        writer.write(frame((1000).to_bytes(2, "big"), 8))
        await writer.drain()
