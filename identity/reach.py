"""Where an address leads: whether what is sent there could be read on its way, and to whom."""

from __future__ import annotations

import asyncio
import socket
from ipaddress import ip_address


def stays_here(addresses: str) -> bool:
    """Whether nothing sent to gRPC targets, one or several, leaves this machine."""
    return all(_is_local(one.strip()) for one in addresses.split(","))


def _is_local(address: str) -> bool:
    if address.startswith("unix:"):
        return True
    host = address.removeprefix("dns:").lstrip("/").rpartition(":")[0].strip("[]")
    if host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


async def look_up(host: str, port: int) -> list[str]:
    """The address of each replica that a name stands for, in an order that stays.

    Raises `OSError`.
    """
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    hosts = sorted({str(address[0]) for *_, address in found})
    return [f"[{one}]:{port}" if ":" in one else f"{one}:{port}" for one in hosts]
