"""Asks over TCP and HTTP whether a process is there, without any of its libraries."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from http import HTTPStatus
from typing import Protocol

_INTERVAL = 0.02  # s between attempts
# The gateway asks every service. Those that are asked are starting, and need the processor more.
_REST = 3  # times what an answer took, between one and the next
_LONGEST_REST = 0.2  # s
_PATIENCE = 2.0  # s for one answer


class Probe(Protocol):
    """How a supervisor knows that its services are there."""

    async def listens(self, address: str) -> None:
        """Returns once connections to `address` are accepted."""
        ...

    async def ready(self, address: str) -> None:
        """Returns once the gateway at `address` finds every service healthy."""
        ...


class NetworkProbe:
    """Asks over loopback."""

    async def listens(self, address: str) -> None:
        """Returns once connections to `address` are accepted."""
        host, port = split(address)
        while True:
            try:
                _, writer = await asyncio.open_connection(host, port)
            except OSError:
                await asyncio.sleep(_INTERVAL)
                continue
            writer.close()
            with suppress(OSError):
                await writer.wait_closed()
            return

    async def ready(self, address: str) -> None:
        """Returns once `/readyz` answers 200."""
        loop = asyncio.get_running_loop()
        while True:
            asked = loop.time()
            with suppress(OSError, TimeoutError):
                if await get_status(address, "/readyz") == HTTPStatus.OK:
                    return
            took = loop.time() - asked
            await asyncio.sleep(min(max(_INTERVAL, _REST * took), _LONGEST_REST))


def split(address: str) -> tuple[str, int]:
    """Host and port of `host:port`."""
    host, _, port = address.rpartition(":")
    return host.strip("[]"), int(port)


async def get_status(address: str, path: str) -> int:
    """Status of an HTTP answer. Raises `OSError` without one, `TimeoutError` when it is late."""
    host, port = split(address)
    async with asyncio.timeout(_PATIENCE):
        reader, writer = await asyncio.open_connection(host, port)
        try:
            request = f"GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n"
            writer.write(request.encode())
            status_line = await reader.readline()
        finally:
            writer.close()
            with suppress(OSError):
                await writer.wait_closed()
    status = status_line.split(b" ", 2)[1:2]
    if not status or not status[0].isdigit():
        msg = f"{address} does not speak HTTP"
        raise OSError(msg)
    return int(status[0])
