"""Free loopback ports that stay free while a service is restarted."""

from __future__ import annotations

import errno
import random
import socket
from pathlib import Path

LOOPBACK = "127.0.0.1"
# Addresses that stand for all of a machine's own, and one of them.
_REACHABLE = {"0.0.0.0": LOOPBACK, "[::]": "[::1]"}  # noqa: S104
_LOWEST = 10_000
_RANGE_FILE = Path("/proc/sys/net/ipv4/ip_local_port_range")
_ATTEMPTS = 1000


def is_free(host: str, port: int) -> bool:
    """Whether a server could listen there now."""
    return not obstacle(host, port)


def obstacle(host: str, port: int) -> str:
    """Why no server can listen there now and what to do about it; empty if one can."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        with socket.socket(family) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind((host, port))
            probe.listen()
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            return f"{host}:{port} is in use: choose another port with --port"
        return f"cannot listen at {host}:{port}: {error.strerror}: choose another --host or --port"
    return ""


def url_of(address: str) -> str:
    """Where clients on this machine find a server that listens at `address`."""
    host, _, port = address.rpartition(":")
    return f"http://{_REACHABLE.get(host, host)}:{port}"


def choose(count: int) -> list[int]:
    """So many distinct free ports on loopback.

    They lie below the range from which the kernel takes ports for outgoing connections: between the
    death of a service and its next start no connection can take its port. Raises `OSError` if there
    are not enough.
    """
    highest = lowest_outgoing()
    chosen: list[int] = []
    for _ in range(_ATTEMPTS):
        if len(chosen) == count:
            return chosen
        port = random.randrange(_LOWEST, highest)  # noqa: S311  # not a secret
        if port not in chosen and is_free(LOOPBACK, port):
            chosen.append(port)
    msg = f"fewer than {count} free ports between {_LOWEST} and {highest}"
    raise OSError(msg)


def lowest_outgoing() -> int:
    """The first port that the kernel may take for an outgoing connection."""
    try:
        lowest = int(_RANGE_FILE.read_text(encoding="ascii").split()[0])
    except (OSError, ValueError, IndexError):
        lowest = 32_768
    return lowest if lowest > _LOWEST + _ATTEMPTS else 65_536
