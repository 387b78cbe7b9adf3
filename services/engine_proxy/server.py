"""The proxy's own socket."""

from __future__ import annotations

import asyncio
import os
import resource
import socket
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

import structlog

from chassis.errors import CannotStartError
from services.engine_proxy.connection import Connection
from services.engine_proxy.link import Link

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from services.engine_proxy.engine import Engine
    from services.engine_proxy.judge import Judge

_BACKLOG: Final = 512
_OTHER_FILES: Final = 64
_MODE: Final = 0o660

_log = structlog.get_logger("engine_proxy.server")


@asynccontextmanager
async def serving(
    path: Path, group_id: int | None, engine: Engine, judge: Judge
) -> AsyncIterator[None]:
    """Serves at a socket until it is left; connections that are open then are cut.

    Only the socket's owner and group may connect. Raises `CannotStartError`.
    """
    try:
        listener = _bound(path, group_id)
    except OSError as error:
        msg = (
            f"the hands cannot be served at {path} ({error.strerror}): DROVER_ENGINE_LISTEN "
            "names another place, and DROVER_ENGINE_GROUP a group that this process is in"
        )
        raise CannotStartError(msg) from error
    connections: set[asyncio.Task[None]] = set()
    # Each has two files at most: its own, and one to the engine.
    most = max(1, (resource.getrlimit(resource.RLIMIT_NOFILE)[0] - _OTHER_FILES) // 2)
    async with asyncio.TaskGroup() as group:

        def begin(link: Link) -> None:
            if len(connections) >= most:
                _log.warning("too_many_connections", most=most)
                link.abort()
                return
            task = group.create_task(_serve(link, engine, judge))
            connections.add(task)
            task.add_done_callback(connections.discard)

        loop = asyncio.get_running_loop()
        server = await loop.create_unix_server(lambda: Link(begin), sock=listener, backlog=_BACKLOG)
        try:
            yield
        finally:
            server.close()
            for task in connections:
                task.cancel()
            path.unlink(missing_ok=True)  # noqa: ASYNC240


async def _serve(link: Link, engine: Engine, judge: Judge) -> None:
    try:
        await Connection(link, engine, judge).run()
    except Exception:  # noqa: BLE001  # one connection's, and not the others'
        _log.exception("connection_failed")
        link.abort()
    finally:
        link.close()


def _bound(path: Path, group_id: int | None) -> socket.socket:
    """A socket at `path`, in place of one that a process which died has left there."""
    made = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        directory = os.open(path.parent, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            path.unlink(missing_ok=True)
            # By the directory's descriptor: a socket's path may have 107 bytes, however deep it is.
            made.bind(f"/proc/self/fd/{directory}/{path.name}")
        finally:
            os.close(directory)
        if group_id is not None:
            os.chown(path, -1, group_id)
        path.chmod(_MODE)  # nobody is listening yet
    except BaseException:
        made.close()
        raise
    return made
