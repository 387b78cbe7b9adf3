"""Many readers of event streams, as cheap as readers can be: they count frames.

A process of its own (`python -m bench.readers`), told by JSON lines on stdin; it answers each with
one on stdout.
"""

from __future__ import annotations

import asyncio
import json
import re
import socket
import sys
import time
from dataclasses import dataclass, field
from typing import Any, Final

import uvloop

_ID: Final = b"\nid: "
_TOLD: Final = re.compile(rb"told=(\d+\.\d+);")
"""What a frame says of when its event was told, in seconds of the monotonic clock."""

_STUCK_BUFFER: Final = 4 * 1024


def mark() -> str:
    """What an event says of when it was told."""
    return f"told={time.monotonic():.6f};"


@dataclass(slots=True)
class _Tally:
    """What all readers together have received since it was last asked for."""

    waiting: int = 0
    frames: int = 0
    size: int = 0
    latencies: list[float] = field(default_factory=list)
    done: asyncio.Event = field(default_factory=asyncio.Event)


class _Reader(asyncio.Protocol):
    """Counts the frames of one stream."""

    def __init__(self, request: bytes, tally: _Tally) -> None:
        self._request = request
        self._tally = tally
        self._left = 0
        self._tail = b""
        self.opened = asyncio.Event()
        self.timed = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport: Any = transport
        self.transport.write(self._request)

    def data_received(self, data: bytes) -> None:
        if not self.opened.is_set():
            if b" 200 " not in data[:20]:
                msg = data.decode()
                raise RuntimeError(msg)
            self.opened.set()
        count = (self._tail + data).count(_ID)
        self._tail = data[1 - len(_ID) :]
        tally = self._tally
        tally.frames += count
        tally.size += len(data)
        if self.timed and count:
            now = time.monotonic()
            tally.latencies += [(now - float(told)) * 1_000 for told in _TOLD.findall(data)]
        if self._left > 0:
            self._left -= count
            if self._left <= 0:
                tally.waiting -= 1
                if not tally.waiting:
                    tally.done.set()

    def expect(self, frames: int) -> None:
        """Waits for so many frames from now on."""
        self._left += frames


class Readers:
    """The readers of one stream."""

    def __init__(self, port: int, request: bytes) -> None:
        self._port = port
        self._request = request
        self._tally = _Tally()
        self._readers: list[_Reader] = []
        self._stuck: socket.socket | None = None

    async def open(self, count: int) -> None:
        """Opens streams, until the first byte of each."""
        loop = asyncio.get_running_loop()
        for _ in range(count):
            _, reader = await loop.create_connection(
                lambda: _Reader(self._request, self._tally), "127.0.0.1", self._port
            )
            self._readers.append(reader)
            await reader.opened.wait()

    async def open_stuck(self) -> None:
        """Opens a stream that is never read."""
        self._stuck = socket.socket()
        self._stuck.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _STUCK_BUFFER)
        self._stuck.setblocking(False)
        loop = asyncio.get_running_loop()
        await loop.sock_connect(self._stuck, ("127.0.0.1", self._port))
        await loop.sock_sendall(self._stuck, self._request)

    def close_stuck(self) -> None:
        """Closes it."""
        if self._stuck is not None:
            self._stuck.close()

    def expect(self, frames: int, *, timed: bool) -> None:
        """From now on everybody is to receive so many frames."""
        tally = self._tally
        tally.frames, tally.size, tally.latencies = 0, 0, []
        tally.waiting = len(self._readers)
        tally.done.clear()
        for reader in self._readers:
            reader.timed = timed
            reader.expect(frames)

    async def received(self) -> dict[str, Any]:
        """What was received, once everybody has."""
        tally = self._tally
        await tally.done.wait()
        return {
            "at": time.monotonic(),
            "frames": tally.frames,
            "bytes": tally.size,
            "latencies": tally.latencies,
        }


async def _serve() -> None:
    """Does what the lines on stdin say, until there are no more."""
    loop = asyncio.get_running_loop()
    lines = asyncio.StreamReader(limit=1 << 26)
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(lines), sys.stdin)
    groups: dict[str, Readers] = {}
    while line := await lines.readline():
        told = json.loads(line)
        name, answer = told["group"], {}
        if told["do"] == "open":
            readers = groups[name] = Readers(told["port"], told["request"].encode())
            await readers.open(told["count"])
        elif told["do"] == "open_stuck":
            await groups[name].open_stuck()
        elif told["do"] == "close_stuck":
            groups[name].close_stuck()
        elif told["do"] == "expect":
            groups[name].expect(told["frames"], timed=told["timed"])
        else:
            answer = await groups[name].received()
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    uvloop.run(_serve())
