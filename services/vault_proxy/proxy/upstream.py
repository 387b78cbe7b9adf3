"""Connections to servers, kept for the next request of the same session to the same place."""

from __future__ import annotations

import asyncio
import socket
import ssl
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple
from weakref import WeakValueDictionary

from services.vault_proxy.domain.refusal import Refusal, RefusedError, Why
from services.vault_proxy.proxy.dial import AddressDeniedError, UnreachableError
from services.vault_proxy.proxy.wire import LateError, LostError, Wire

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from services.vault_proxy.proxy.dial import Dialler

_IDLE_SECONDS: Final = 4.0
"""Shorter than servers commonly keep an idle connection (Node: 5), so that none is sent into one
that is being closed."""
_KEPT: Final = 1024
_KEPT_PER_PLACE: Final = 32


_AT_ONCE: Final = 8
"""Connections of one session that are being made: a name that is slow to be resolved keeps a thread
of the resolver's, of which no session is to have all."""


class Place(NamedTuple):
    """Where a connection leads, and for whom: nothing is shared across sessions.

    `operators`: the address is the operator's word, as a git host's is.
    """

    session_id: str
    host: str
    port: int
    secure: bool
    operators: bool = False


@dataclass(slots=True, eq=False)
class Upstream:
    """A connection to a server. `reused`: it has carried a request before."""

    place: Place
    wire: Wire
    reused: bool = False
    kept_until: float = 0.0


class Upstreams:
    """Opens connections and keeps idle ones, for seconds."""

    def __init__(
        self, judged: Dialler, operators: Dialler, trust: ssl.SSLContext, *, connect_seconds: float
    ) -> None:
        self._judged = judged
        self._operators = operators
        self._trust = trust
        self._seconds = connect_seconds
        self._loop = asyncio.get_running_loop()
        self._idle: dict[Place, list[Upstream]] = {}
        self._turns: WeakValueDictionary[str, asyncio.Semaphore] = WeakValueDictionary()
        self._count = 0
        self._sweep: asyncio.TimerHandle | None = None

    async def get(self, place: Place, *, fresh: bool = False) -> Upstream:
        """A connection. Raises `RefusedError` where there is none to be had."""
        idle = self._idle.get(place)
        while idle and not fresh:
            kept = idle.pop()
            self._count -= 1
            if kept.wire.idle and kept.kept_until > self._loop.time():
                kept.reused = True
                return kept
            kept.wire.close()
        return Upstream(place, await self._open(place))

    def keep(self, upstream: Upstream) -> None:
        """Takes back a connection whose last answer was read to its end."""
        idle = self._idle.setdefault(upstream.place, [])
        if not upstream.wire.idle or len(idle) >= _KEPT_PER_PLACE or self._count >= _KEPT:
            upstream.wire.close()
            return
        upstream.kept_until = self._loop.time() + _IDLE_SECONDS
        idle.append(upstream)
        self._count += 1
        if self._sweep is None:
            self._sweep = self._loop.call_later(_IDLE_SECONDS, self._close_old)

    def close(self) -> None:
        """Closes all that are idle."""
        if self._sweep is not None:
            self._sweep.cancel()
        for idle in self._idle.values():
            for upstream in idle:
                upstream.wire.close()
        self._idle.clear()

    def _close_old(self) -> None:
        now = self._loop.time()
        for place, idle in list(self._idle.items()):
            while idle and idle[0].kept_until <= now:  # the last one in is the first one out
                idle.pop(0).wire.close()
                self._count -= 1
            if not idle:
                del self._idle[place]
        pause = _IDLE_SECONDS / 4
        self._sweep = self._loop.call_later(pause, self._close_old) if self._idle else None

    @asynccontextmanager
    async def _turn(self, session_id: str, until: float) -> AsyncIterator[None]:
        """Waits until it is a connection's turn. Raises `TimeoutError`."""
        turns = self._turns.get(session_id)
        if turns is None:
            turns = self._turns[session_id] = asyncio.Semaphore(_AT_ONCE)
        async with asyncio.timeout_at(until):
            await turns.acquire()
        try:
            yield
        finally:
            turns.release()

    async def _open(self, place: Place) -> Wire:
        dialler = self._operators if place.operators else self._judged
        until = self._loop.time() + self._seconds
        try:
            async with self._turn(place.session_id, until):
                within = until - self._loop.time()
                connected = await dialler.connect(place.host, place.port, within=within)
        except TimeoutError:
            message = f"the session opens {_AT_ONCE} connections at once: try again later"
            raise RefusedError(Refusal(Why.LIMIT_EXCEEDED, message, 503)) from None
        except AddressDeniedError as error:
            raise RefusedError(Refusal(error.reason, error.message)) from error
        except UnreachableError as error:
            status = 504 if error.late else 502
            raise RefusedError(Refusal(error.reason, error.message, status)) from error
        wire = await _wire(connected)
        if place.secure:
            try:
                await wire.secure(self._trust, until, server_hostname=place.host)
            except BaseException as error:
                wire.abort()
                if (refusal := _handshake_refusal(error, place)) is not None:
                    raise RefusedError(refusal) from error
                raise
        return wire


async def _wire(connected: socket.socket) -> Wire:
    try:
        _, wire = await asyncio.get_running_loop().create_connection(Wire, sock=connected)
    except BaseException:
        connected.close()
        raise
    return wire


def _handshake_refusal(error: BaseException, place: Place) -> Refusal | None:
    if isinstance(error, ssl.SSLCertVerificationError):
        return Refusal(
            Why.HOST_UNTRUSTED,
            f"the certificate of {place.host} is not trusted ({error.verify_message}): the "
            "operator can add its authority with DROVER_EGRESS_CA_FILE",
            502,
        )
    if isinstance(error, ssl.SSLError):
        what = error.reason or "it broke off"
        message = f"no TLS came about with {place.host} ({what}): see whether it speaks TLS there"
        return Refusal(Why.HOST_UNREACHABLE, message, 502)
    if isinstance(error, LateError):
        message = f"{place.host} did not finish its TLS handshake in time: try again later"
        return Refusal(Why.HOST_TIMEOUT, message, 504)
    if isinstance(error, LostError):
        message = f"{place.host} broke off the TLS handshake: see whether it speaks TLS there"
        return Refusal(Why.HOST_UNREACHABLE, message, 502)
    return None
