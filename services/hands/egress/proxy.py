"""Where the vault proxy takes the sandboxes' connections."""

from __future__ import annotations

import asyncio
import os
import socket
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

from chassis.settings import host_and_port
from identity.link import dial
from identity.names import name_of
from identity.table import Caller

if TYPE_CHECKING:
    from collections.abc import Callable

    from identity.credentials import Credentials

P = TypeVar("P", bound=asyncio.Protocol)

UNIX: Final = "unix:"
PREAMBLE: Final = "DROVER/1"
"""The first word of a connection, before its grant: version 1 of what is agreed on (ADR 21)."""


class ProxyAddress:
    """`host:port`, or `unix:` and a path. Raises `ValueError` for anything else.

    With `tls` the vault proxy shows that it is there, and is shown whose hands these are.
    """

    def __init__(self, text: str, tls: Credentials | None = None) -> None:
        self._context = None if tls is None else tls.client_context()
        self._path: Path | None = None
        self._host, self._port = "", 0
        if text.startswith(UNIX):
            self._path = Path(text.removeprefix(UNIX))
            if not self._path.is_absolute():
                msg = "must be host:port, or unix: and an absolute path"
                raise ValueError(msg)
        else:
            self._host, self._port = host_and_port(text)

    async def connect(self, protocol: Callable[[], P]) -> P:
        """A new connection to it. Raises `OSError`."""
        loop = asyncio.get_running_loop()
        made: tuple[Any, P]
        if self._path is None and self._context is not None:
            name = name_of(Caller.VAULT_PROXY)
            return cast("P", await dial(self._host, self._port, self._context, name, protocol))
        if self._path is None:
            made = await loop.create_connection(protocol, self._host, self._port)
        else:
            made = await loop.create_unix_connection(protocol, sock=_connected(self._path))
        return made[1]


def _connected(path: Path) -> socket.socket:
    """To a local socket a connection is made at once, or not at all."""
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    connection.setblocking(False)
    try:
        directory = os.open(path.parent, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            # By the directory's descriptor: a socket's path may have 107 bytes, however deep it is.
            connection.connect(f"/proc/self/fd/{directory}/{path.name}")
        finally:
            os.close(directory)
    except BaseException:
        connection.close()
        raise
    return connection
