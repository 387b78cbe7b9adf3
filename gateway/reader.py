"""A stream's response: how one reader follows its session to the end."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from gateway.sse import HEADERS
from gateway.view import View
from gateway.wire import WIRE

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable
    from contextlib import AbstractContextManager

    from starlette.types import Receive, Scope, Send

    from gateway.fanout import Fanout, Hub
    from gateway.subscription import Subscription
    from gateway.wire import Wire


class ReaderGoneError(Exception):
    """The reader has closed its connection, or has stopped to read."""


class Reader:
    """One reader of a hub, and the connection that it is written to.

    It is owed what has come `since`. While it is paused, `cursor` is the batch that it has to be
    written next, and `view` what it was written so far.
    """

    def __init__(self, wire: Wire, stall_seconds: float) -> None:
        self.hub: Hub | None = None
        self.since = 0.0
        self.cursor = 0
        self.view = View()
        self.write = wire.write
        self._wire = wire
        self._stall_seconds = stall_seconds
        self._unsent = 0
        self._timer: asyncio.TimerHandle | None = None
        self._told = asyncio.Event()
        self._is_gone = False
        self._is_behind = False
        self._error: Exception | None = None

    @property
    def is_paused(self) -> bool:
        """Whether it has yet to take what it was written."""
        return self._wire.is_paused

    async def has_fallen_behind(self) -> bool:
        """Waits until it has; false once nothing more will come.

        Raises `ReaderGoneError`, and what the frames ended with.
        """
        await self._told.wait()
        self._told.clear()
        if self._is_gone:
            raise ReaderGoneError
        if self._error is not None:
            raise self._error
        behind, self._is_behind = self._is_behind, False
        return behind

    def end(self, error: Exception | None) -> None:
        """Nothing more will come, but for an error."""
        self._error = error
        self._told.set()

    def fall_behind(self) -> None:
        """It has to be followed up from its view."""
        self._is_behind = True
        self._told.set()

    def paused(self) -> None:
        """Waits for the reader to take something."""
        if self.hub is not None:
            self.hub.pause(self)
        self._watch()

    def resumed(self) -> None:
        """Goes on."""
        self._rest()
        if self.hub is not None:
            self.hub.resume(self)

    def lost(self) -> None:
        """Ends with its connection."""
        self._rest()
        self._is_gone = True
        self._told.set()

    def listen(self) -> None:
        """Begins to follow its connection."""
        self._wire.listen(self)
        if self._wire.is_closed:
            self.lost()
        elif self._wire.is_paused:
            self._watch()

    def close(self) -> None:
        """Takes no more notice of its connection."""
        self._rest()
        self._wire.listen(None)

    def _watch(self) -> None:
        self._unsent = self._wire.unsent
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(self._stall_seconds, self._look)

    def _look(self) -> None:
        """Gives up a reader that has taken nothing at all."""
        if self._wire.unsent < self._unsent:
            self._watch()
        else:
            self.lost()

    def _rest(self) -> None:
        if self._timer is not None:
            self._timer.cancel()


class EventStream:
    """The response that has a reader follow `key` until that ends or the reader is gone.

    It begins with `subscription`, and goes on with one made by `again` whenever the reader has
    fallen behind. What the frames end with is sent as an `error` event, made by `explain`.
    `open_while` is held as long as the stream is open, and so is what `watched` makes of the way to
    end it with an error.
    """

    def __init__(
        self,
        fanout: Fanout,
        key: Hashable,
        subscription: Subscription,
        again: Callable[[View], Subscription],
        *,
        stall_seconds: float,
        explain: Callable[[Exception], bytes],
        open_while: AbstractContextManager[object],
        watched: Callable[[Callable[[Exception], None]], AbstractContextManager[object]],
    ) -> None:
        self._fanout = fanout
        self._key = key
        self._subscription = subscription
        self._again = again
        self._stall_seconds = stall_seconds
        self._explain = explain
        self._open_while = open_while
        self._watched = watched

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Writes the response."""
        wire: Wire = scope["extensions"][WIRE]["wire"]
        try:
            await send({"type": "http.response.start", "status": 200, "headers": [*HEADERS]})
        except BaseException:
            self._subscription.close()
            raise
        try:
            with self._open_while:
                last = b""
                if scope["method"] == "HEAD":
                    self._subscription.close()
                else:
                    last = await self._follow_to_the_end(wire)
            async with asyncio.timeout(self._stall_seconds):
                await send({"type": "http.response.body", "body": last, "more_body": False})
        except (ReaderGoneError, TimeoutError):
            wire.abort()
            while (await receive())["type"] != "http.disconnect":
                pass

    async def _follow_to_the_end(self, wire: Wire) -> bytes:
        """Has all frames written but the last, which tells of a failure; empty without one."""
        reader = Reader(wire, self._stall_seconds)
        reader.listen()
        try:
            self._fanout.join(reader, self._key, self._subscription)
            with self._watched(reader.end):
                while await reader.has_fallen_behind():
                    if reader.view.position is None:
                        raise ReaderGoneError  # noqa: TRY301  # it has to know where to go on
                    self._fanout.join(reader, self._key, self._again(reader.view))
        except ReaderGoneError:
            raise
        except Exception as error:  # noqa: BLE001  # mapped, logged and sent
            return b"event: error\ndata: %b\n\n" % self._explain(error)
        finally:
            self._fanout.leave(reader)
            reader.close()
        return b""
