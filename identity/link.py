"""TLS below a protocol of asyncio's, for connections between processes that do not speak gRPC.

The loop's own TLS closes a connection as a whole. This keeps what a plain one has: either side may
say that this was all and go on to read, which programs in sandboxes do. A protocol that is given to
`below` finds a transport like any other, once the peer has shown who it is.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from typing import TYPE_CHECKING, Any, Final, cast

if TYPE_CHECKING:
    from collections.abc import Callable

_PIECE: Final = 256 * 1024
HANDSHAKE_SECONDS: Final = 10.0


class PeerError(ConnectionError):
    """Whoever is there has not shown who it is."""


class Link(asyncio.Protocol):
    """One connection. It is over before it began unless the peer's certificate has the name `peer`.

    `made` is called with the connection's protocol once it is there, or not at all. `failed` is
    told why, where it comes to nothing. Who dials is `client`.
    """

    def __init__(
        self,
        context: ssl.SSLContext,
        peer: str,
        inner: Callable[[], asyncio.Protocol],
        *,
        client: bool,
        made: Callable[[asyncio.Protocol], None] = lambda _: None,
        failed: Callable[[Exception], None] = lambda _: None,
    ) -> None:
        self._peer, self._made, self._failed = peer, made, failed
        self._make = inner
        self._inner: asyncio.Protocol | None = None
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(
            self._incoming,
            self._outgoing,
            server_side=not client,
            server_hostname=peer if client else None,
        )
        self.transport: asyncio.Transport | None = None
        self._alarm: asyncio.TimerHandle | None = None
        self._early = bytearray()
        self.paused = False
        self._heard_all = self._told_end = self._said_all = False

    # ---- what the loop tells ----

    def connection_made(self, transport: asyncio.BaseTransport) -> None:  # noqa: D102
        self.transport = cast("asyncio.Transport", transport)
        loop = asyncio.get_running_loop()
        self._alarm = loop.call_later(HANDSHAKE_SECONDS, self._fail, PeerError("no handshake"))
        self._shake()

    def data_received(self, data: bytes) -> None:  # noqa: D102
        if self._heard_all:
            return  # nothing follows an end, and nobody would read it
        self._incoming.write(data)
        if self._inner is None:
            self._shake()
        else:
            self._read()

    def eof_received(self) -> bool:  # noqa: D102
        if not self._heard_all:
            self._fail(ConnectionError("the connection was cut off"))
        return True  # it ends when it is closed, here or there

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: D102
        if self._alarm is not None:
            self._alarm.cancel()
        if self._inner is not None:
            self._inner.connection_lost(exc)
        else:
            self._failed(exc or PeerError("the peer has closed the connection"))

    def pause_writing(self) -> None:  # noqa: D102
        if self._inner is not None:
            self._inner.pause_writing()

    def resume_writing(self) -> None:  # noqa: D102
        if self._inner is not None:
            self._inner.resume_writing()

    # ---- what the protocol above does ----

    def write(self, data: bytes) -> None:
        """Sends; nothing any more once the connection closes, as a plain one has it."""
        if self.transport is None or self.transport.is_closing():
            return
        left = memoryview(data)
        while left and not self._said_all:
            left = left[self._tls.write(left) :]
        self._flush()

    def say_all(self) -> None:
        """Says that no more will be sent."""
        if self._said_all or self.transport is None or self.transport.is_closing():
            return
        # What waits to be read must not be in the way of the farewell.
        if not self._take_in():
            return
        self._said_all = True
        with contextlib.suppress(ssl.SSLError):  # the peer may go on: nobody waits for its own
            self._tls.unwrap()
        self._flush()

    def read_on(self) -> None:
        """Goes on to read, unless that was taken back meanwhile."""
        if not self.paused and self.transport is not None and not self.transport.is_closing():
            self.transport.resume_reading()
            self._read()

    # ---- how ----

    def _shake(self) -> None:
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            self._flush()
            return
        except ssl.SSLError as error:
            self._flush()  # an alert
            self._fail(PeerError(f"no TLS with {self._peer}: {error.reason or error}"))
            return
        self._flush()
        if (shown := _name(self._tls.getpeercert())) != self._peer:
            self._fail(PeerError(f"{shown or 'nobody'} is not {self._peer}"))
            return
        if self._alarm is not None:
            self._alarm.cancel()
        self._inner = self._make()
        self._inner.connection_made(_Transport(self))
        self._made(self._inner)
        self._read()

    def _take_in(self) -> bool:
        """Decrypts all that has come in; false if the connection is over because of that."""
        if self._heard_all:
            return True
        try:
            while piece := self._tls.read(_PIECE):
                self._early += piece
            self._heard_all = True
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLZeroReturnError:
            self._heard_all = True
        except ssl.SSLError as error:  # it is no TLS
            self._fail(error)
            return False
        self._flush()
        return True

    def _read(self) -> None:
        if self._inner is None or self.paused:
            return
        if not self._take_in():
            return
        if self._early:
            data, self._early = bytes(self._early), bytearray()
            self._inner.data_received(data)
        if self._heard_all and not self._told_end and not self.paused:
            self._told_end = True
            if not self._inner.eof_received() and self.transport is not None:
                self.say_all()
                self.transport.close()

    def _flush(self) -> None:
        if self.transport is not None and (data := self._outgoing.read()):
            self.transport.write(data)

    def _fail(self, error: Exception) -> None:
        inner, self._inner = self._inner, None
        if self.transport is not None:
            self.transport.abort()
        if inner is not None:
            inner.connection_lost(error)
        else:
            self._failed(error)
        self._failed = lambda _: None


class _Transport(asyncio.Transport):
    """What a protocol sees of its link."""

    def __init__(self, link: Link) -> None:
        super().__init__()
        self._link = link

    @property
    def _below(self) -> asyncio.Transport:
        return cast("asyncio.Transport", self._link.transport)

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self._link.write(bytes(data))

    def can_write_eof(self) -> bool:
        return True

    def write_eof(self) -> None:
        self._link.say_all()

    def pause_reading(self) -> None:
        self._link.paused = True
        if not self.is_closing():
            self._below.pause_reading()

    def resume_reading(self) -> None:
        self._link.paused = False
        asyncio.get_running_loop().call_soon(self._link.read_on)

    def is_closing(self) -> bool:
        return self._below.is_closing()

    def close(self) -> None:
        if not self.is_closing():
            self._link.say_all()
            self._below.close()

    def abort(self) -> None:
        self._below.abort()

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self._below.set_write_buffer_limits(high, low)

    def get_extra_info(self, name: str, default: Any = None) -> Any:  # noqa: ANN401
        return self._below.get_extra_info(name, default)


async def dial(
    host: str, port: int, context: ssl.SSLContext, peer: str, inner: Callable[[], asyncio.Protocol]
) -> asyncio.Protocol:
    """A protocol over a connection to `peer`, which has shown that it is. Raises `OSError`."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[asyncio.Protocol] = loop.create_future()

    def made(protocol: asyncio.Protocol) -> None:
        if not done.done():
            done.set_result(protocol)

    def failed(error: Exception) -> None:
        if not done.done():
            done.set_exception(error if isinstance(error, OSError) else PeerError(str(error)))

    transport, _ = await loop.create_connection(
        lambda: Link(context, peer, inner, client=True, made=made, failed=failed), host, port
    )
    try:
        return await done
    except BaseException:
        transport.abort()
        raise


def below(
    context: ssl.SSLContext, peer: str, inner: Callable[[], asyncio.Protocol]
) -> Callable[[], Link]:
    """What a server is given so that `inner` serves connections of `peer` alone."""
    return lambda: Link(context, peer, inner, client=False)


def _name(certificate: Any) -> str:  # noqa: ANN401  # as the library describes it
    names = (certificate or {}).get("subjectAltName", ())
    return names[0][1] if len(names) == 1 and names[0][0] == "DNS" else ""
