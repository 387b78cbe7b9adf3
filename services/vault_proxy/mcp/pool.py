"""Connections that are kept between a session's calls. None is ever another session's."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from services.vault_proxy.mcp.connection import Connection
from services.vault_proxy.mcp.exchange import Failure, Fault, McpError

if TYPE_CHECKING:
    from services.vault_proxy.mcp.bearer import SessionBearer
    from services.vault_proxy.mcp.limits import Limits


@dataclass(frozen=True, slots=True)
class Whose:
    """Who talks to which server as whom: the session, the server's URL, the credential."""

    workspace_id: str
    session_id: str
    url: str
    credential_id: str


@dataclass(slots=True)
class _Kept:
    connection: Connection
    bearer: SessionBearer
    users: int = 0
    expiry: asyncio.TimerHandle | None = None


Connect = Callable[[Whose, "SessionBearer"], Connection]


class Connections:
    """Opens connections when they are needed, and closes those that nobody uses any more."""

    def __init__(self, connect: Connect, tasks: asyncio.TaskGroup, limits: Limits) -> None:
        self._connect = connect
        self._tasks = tasks
        self._limits = limits
        self._kept: dict[Whose, _Kept] = {}
        self._running: set[asyncio.Task[None]] = set()

    @asynccontextmanager
    async def use(
        self, whose: Whose, bearer: Callable[[], SessionBearer]
    ) -> AsyncIterator[tuple[Connection, SessionBearer]]:
        """A connection that is open, with its bearer. Raises `McpError`.

        `bearer` makes one for a new connection.
        """
        kept = self._found(whose) or self._new(whose, bearer())
        kept.users += 1
        if kept.expiry is not None:
            kept.expiry.cancel()
            kept.expiry = None
        try:
            yield kept.connection, kept.bearer
        finally:
            kept.users -= 1
            if kept.connection.ended.done():
                self._forget(whose, kept)
            elif not kept.users:
                kept.expiry = asyncio.get_running_loop().call_later(
                    self._limits.unused_seconds, self._drop, whose, kept
                )

    def discard(self, whose: Whose, connection: Connection) -> None:
        """Has the next call open another connection."""
        kept = self._kept.get(whose)
        if kept is not None and kept.connection is connection:
            self._drop(whose, kept)

    async def close(self) -> None:
        """Closes all connections, calls or not."""
        for whose, kept in tuple(self._kept.items()):
            self._drop(whose, kept)
        if self._running:
            await asyncio.wait(self._running, timeout=self._limits.close_seconds)
        for task in self._running:
            task.cancel()

    def __len__(self) -> int:
        return len(self._kept)

    def _found(self, whose: Whose) -> _Kept | None:
        kept = self._kept.get(whose)
        if kept is not None and kept.connection.ended.done():
            self._forget(whose, kept)
            return None
        return kept

    def _new(self, whose: Whose, bearer: SessionBearer) -> _Kept:
        if len(self._kept) >= self._limits.connections:
            self._make_room()
        kept = _Kept(self._connect(whose, bearer), bearer)
        self._kept[whose] = kept
        task = self._tasks.create_task(kept.connection.run(self._tasks))
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        return kept

    def _make_room(self) -> None:
        """Closes the connection that has been unused longest."""
        for whose, kept in self._kept.items():
            if not kept.users:
                self._drop(whose, kept)
                return
        message = f"{self._limits.connections} connections to MCP servers are in use: try later"
        raise McpError(Failure(Fault.UNREACHABLE, message))

    def _drop(self, whose: Whose, kept: _Kept) -> None:
        self._forget(whose, kept)
        kept.connection.close()

    def _forget(self, whose: Whose, kept: _Kept) -> None:
        if kept.expiry is not None:
            kept.expiry.cancel()
            kept.expiry = None
        if self._kept.get(whose) is kept:
            del self._kept[whose]
