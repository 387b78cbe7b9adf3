"""The egress proxy's listener."""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
import traceback
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

import structlog

from catalogue.host_list import HostList
from chassis.errors import CannotStartError
from chassis.settings import host_and_port
from identity.link import below
from identity.names import name_of
from identity.table import Caller
from services.vault_proxy.proxy.connection import Connection
from services.vault_proxy.proxy.dial import AnyAddress, JudgingDialler
from services.vault_proxy.proxy.egress import Egress
from services.vault_proxy.proxy.limits import Limits
from services.vault_proxy.proxy.meter import Meter
from services.vault_proxy.proxy.tls import PROTOCOLS, Leaves
from services.vault_proxy.proxy.upstream import Upstreams
from services.vault_proxy.proxy.wire import Wire

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from prometheus_client import CollectorRegistry

    from chassis.clock import Clock
    from services.vault_proxy.domain.ports import Addresses, Audit, GitProxy, Sessions
    from services.vault_proxy.proxy.dial import Resolve

UNIX: Final = "unix:"
_BACKLOG: Final = 512

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Parts:
    """What the proxy is made of, besides its own wires."""

    sessions: Sessions
    addresses: Addresses
    audit: Audit
    git: GitProxy
    resolve: Resolve
    trust: ssl.SSLContext
    """What servers' certificates are verified with; used by nothing else."""
    opaque: HostList
    registry: CollectorRegistry
    clock: Clock
    limits: Limits = field(default_factory=Limits)
    tls: ssl.SSLContext | None = None
    """What hands are shown that come over TCP, and that they are verified with."""


@asynccontextmanager
async def serving(listen: str, parts: Parts) -> AsyncIterator[str]:
    """Serves sandboxes at `host:port` or `unix:/path` until it is left; gives the address.

    Connections that are open then are cut: what is not finished was not done. Raises
    `CannotStartError` for an address that cannot be listened on.
    """
    parts.trust.set_alpn_protocols(PROTOCOLS)
    upstreams = Upstreams(
        JudgingDialler(parts.addresses, parts.resolve),
        JudgingDialler(AnyAddress(), parts.resolve),
        parts.trust,
        connect_seconds=parts.limits.connect_seconds,
    )
    egress = Egress(
        sessions=parts.sessions,
        git=parts.git,
        audit=parts.audit,
        upstreams=upstreams,
        leaves=Leaves(parts.clock.now),
        opaque=parts.opaque,
        limits=parts.limits,
        meter=Meter(parts.registry),
        now=parts.clock.now,
    )
    connections: set[asyncio.Task[None]] = set()
    async with asyncio.TaskGroup() as group:

        def begin(wire: Wire) -> None:
            if len(connections) >= parts.limits.connections:
                _log.warning("too_many_connections", most=parts.limits.connections)
                wire.abort()
                return
            task = group.create_task(_serve(wire, egress))
            connections.add(task)
            task.add_done_callback(connections.discard)

        made: Callable[[], asyncio.Protocol] = lambda: Wire(begin)  # noqa: E731
        if parts.tls is not None and not listen.startswith(UNIX):
            made = below(parts.tls, name_of(Caller.HANDS), made)
        server, address = await _listen(listen, made)
        try:
            yield address
        finally:
            server.close()
            for task in connections:
                task.cancel()
            upstreams.close()
            if listen.startswith(UNIX):
                Path(listen.removeprefix(UNIX)).unlink(missing_ok=True)  # noqa: ASYNC240


async def _serve(wire: Wire, egress: Egress) -> None:
    egress.meter.opened(1)
    try:
        await Connection(wire, egress).run()
    except Exception as error:  # noqa: BLE001  # one connection's, and not the others'
        # Where, and not with which words: these could quote what was sent.
        where = traceback.format_tb(error.__traceback__)
        _log.error("connection_failed", error=type(error).__name__, where="".join(where))
        wire.abort()
    finally:
        wire.close()
        egress.meter.opened(-1)


async def _listen(
    listen: str, wire: Callable[[], asyncio.Protocol]
) -> tuple[asyncio.AbstractServer, str]:
    loop = asyncio.get_running_loop()
    try:
        if listen.startswith(UNIX):
            path = Path(listen.removeprefix(UNIX))
            server = await loop.create_unix_server(wire, sock=_bound(path), backlog=_BACKLOG)
            return server, listen
        host, port = host_and_port(listen)
        server = await loop.create_server(wire, host.strip("[]"), port, backlog=_BACKLOG)
        name = server.sockets[0].getsockname()
    except OSError as error:
        msg = (
            f"sandboxes cannot be served at {listen} ({error.strerror}): "
            "DROVER_EGRESS_LISTEN names another address"
        )
        raise CannotStartError(msg) from error
    return server, f"{host}:{name[1]}"


def _bound(path: Path) -> socket.socket:
    """A socket at `path`, in place of one that a process which died has left there."""
    made = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    directory = os.open(path.parent, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        path.unlink(missing_ok=True)
        # By the directory's descriptor: a socket's path may have 107 bytes, however deep it is.
        made.bind(f"/proc/self/fd/{directory}/{path.name}")
        path.chmod(0o600)  # whoever can connect still needs a grant
    except BaseException:
        made.close()
        raise
    finally:
        os.close(directory)
    return made
