"""Asks over TCP and HTTP whether a process is there, without any of its libraries."""

from __future__ import annotations

import asyncio
from contextlib import suppress

_INTERVAL = 0.02  # s between attempts
_PATIENCE = 2.0  # s for one answer


def split(address: str) -> tuple[str, int]:
    """Host and port of `host:port`."""
    host, _, port = address.rpartition(":")
    return host.strip("[]"), int(port)


async def listens(address: str) -> None:
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


async def get(address: str, path: str) -> tuple[int, str]:
    """Status and body of an HTTP answer. Raises `OSError` without one, `TimeoutError` when late."""
    host, port = split(address)
    async with asyncio.timeout(_PATIENCE):
        reader, writer = await asyncio.open_connection(host, port)
        try:
            request = f"GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n"
            writer.write(request.encode())
            answer = await reader.read()
        finally:
            writer.close()
            with suppress(OSError):
                await writer.wait_closed()
    head, _, body = answer.decode(errors="replace").partition("\r\n\r\n")
    status = head.split(" ", 2)[1:2]
    if not status or not status[0].isdigit():
        msg = f"{address} does not speak HTTP"
        raise OSError(msg)
    return int(status[0]), body


async def ready(address: str) -> None:
    """Returns once `/readyz` answers 200: every service is healthy now."""
    while True:
        with suppress(OSError, TimeoutError):
            status, _ = await get(address, "/readyz")
            if status == 200:  # noqa: PLR2004
                return
        await asyncio.sleep(_INTERVAL)
