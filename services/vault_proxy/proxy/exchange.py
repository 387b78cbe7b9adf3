"""One request and its answer, in the order that keeps the promises: decide, resolve, judge, dial
that address, put credentials in, pass on, strike them out of the answer (ARCHITECTURE §7)."""

from __future__ import annotations

import asyncio
from http import HTTPStatus
from http.client import responses
from typing import TYPE_CHECKING, Final

from services.vault_proxy.domain.refusal import Refusal, RefusedError, Why
from services.vault_proxy.proxy import parse
from services.vault_proxy.proxy.answers import CONTINUE
from services.vault_proxy.proxy.body import (
    LAST_CHUNK,
    PIECE,
    Chunked,
    Counted,
    Incoming,
    Nothing,
    UntilEnd,
    chunk,
)
from services.vault_proxy.proxy.egress import Asked
from services.vault_proxy.proxy.tunnel import PAUSE, tunnel
from services.vault_proxy.proxy.wire import LateError, LostError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from services.vault_proxy.domain.ports import Stream
    from services.vault_proxy.domain.verdict import Answer
    from services.vault_proxy.proxy.egress import Egress
    from services.vault_proxy.proxy.parse import RequestHead, ResponseHead
    from services.vault_proxy.proxy.upstream import Upstream
    from services.vault_proxy.proxy.ways import Way
    from services.vault_proxy.proxy.wire import Wire

_MAX_INTERIM: Final = 16
"""Interim answers of one request (103, and such): more are an attack."""
_MAX_COUNTED: Final = 1024 * 1024
"""Bytes of a substituted body that are held to count them; a longer one is sent in chunks."""
_REPEATABLE: Final = frozenset({"GET", "HEAD", "OPTIONS"})
_BODILESS: Final = frozenset({204, 304})
_SWITCHING: Final = 101
_END_OF_CHUNK: Final = b"\r\n"


class Exchange:
    """A request that was allowed, on its way."""

    def __init__(
        self,
        *,
        egress: Egress,
        client: Wire,
        head: RequestHead,
        origin_form: str,
        way: Way,
        asked: Asked,
        still_allowed: Callable[[], Awaitable[bool]],
    ) -> None:
        self._egress = egress
        self._limits = egress.limits
        self._client = client
        self._head = head
        self._origin_form = origin_form
        self._way = way
        self._asked = asked
        self._still_allowed = still_allowed
        self._loop = asyncio.get_running_loop()
        self._begun = self._loop.time()
        self._recorded = 0
        self._incoming = _request_body(head, client)
        self._stream: Stream | None = None
        self._upload_error: Exception | None = None
        self.answered = False
        """Whether the client has been sent the beginning of an answer."""

    @property
    def body_read(self) -> bool:
        """Whether the client has nothing more of this request to send."""
        return self._incoming.done

    async def run(self) -> bool:
        """Does it all; whether the client's connection may carry another request.

        Raises `RefusedError`, and `LostError` and `LateError` where an answer was cut short.
        """
        upstream = await self._egress.upstreams.get(self._way.place)
        whole = False
        try:
            fields, self._stream = await self._way.out(self._head)
            await self._record(first=True)
            beginning = await self._beginning(fields)
            upstream, answer, upload = await self._asking(upstream, beginning)
            keep, sent = False, False
            try:
                if answer.status == _SWITCHING:
                    await self._switch(upstream, answer)
                else:
                    keep, whole = await self._relay(upstream, answer)
            finally:
                sent = upload is None or upload.done()
                if upload is not None:
                    await _ended(upload)
                await self._record()
            whole = whole and sent and self._upload_error is None
            return keep and sent and self.body_read
        finally:
            self._client.on_gone = None
            if whole:
                self._egress.upstreams.keep(upstream)
            else:
                upstream.wire.abort()

    # ---- the request ----

    async def _beginning(self, fields: parse.Fields) -> bytes:
        """The request's head, and of its body what is there and short."""
        head, framing, body = self._head, b"", b""
        if head.expects and head.has_body:
            self._client.write(CONTINUE)
        if head.chunked:
            framing = b"Transfer-Encoding: chunked\r\n"
        elif head.length is not None:
            if self._stream is not None and head.length > _MAX_COUNTED:
                framing = b"Transfer-Encoding: chunked\r\n"
            else:
                body = await self._short_body(head.length)
                length = len(body) if self._stream is not None else head.length
                framing = b"Content-Length: %d\r\n" % length
        if head.upgrade is not None:
            framing = b"Connection: Upgrade\r\nUpgrade: %b\r\n" % head.upgrade
        lines = b"".join([b"%b: %b\r\n" % field for field in fields])
        line = f"{head.method} {self._origin_form} HTTP/1.1\r\n".encode()
        return b"%b%b%b\r\n%b" % (line, lines, framing, body)

    async def _short_body(self, length: int) -> bytes:
        """A body that is substituted, all of it; another if it has come already."""
        if self._stream is None and (length > PIECE or len(self._client.waiting) < length):
            return b""
        pieces = []
        while piece := await self._read():
            pieces.append(piece if self._stream is None else self._stream.feed(piece))
        if self._stream is not None:
            pieces.append(self._stream.finish())
        return b"".join(pieces)

    async def _read(self) -> bytes:
        try:
            return await self._incoming.read(self._loop.time() + self._limits.piece_seconds)
        except LateError:
            message = "the request's body stopped coming: send it without pauses"
            raise RefusedError(Refusal(Why.TIMEOUT, message, 408)) from None

    async def _asking(
        self, upstream: Upstream, beginning: bytes
    ) -> tuple[Upstream, ResponseHead, asyncio.Task[None] | None]:
        """Sends, and waits for the answer's head; once more where a kept connection was stale."""
        try:
            return await self._ask(upstream, beginning)
        except LostError:
            if self._client.gone:
                raise
            repeatable = self._head.method in _REPEATABLE and not self._head.has_body
            if not (repeatable and upstream.reused):
                raise self._broken("closed the connection without an answer") from None
        upstream.wire.abort()
        upstream = await self._egress.upstreams.get(self._way.place, fresh=True)
        try:
            return await self._ask(upstream, beginning)
        except BaseException as error:
            upstream.wire.abort()
            if isinstance(error, LostError) and not self._client.gone:
                raise self._broken("closed the connection without an answer") from None
            raise

    async def _ask(
        self, upstream: Upstream, beginning: bytes
    ) -> tuple[Upstream, ResponseHead, asyncio.Task[None] | None]:
        wire, upload = upstream.wire, None
        self._client.on_gone = wire.abort
        wire.write(beginning)
        if not self.body_read:
            upload = asyncio.create_task(self._upload(wire))
        try:
            answer = await self._answer_head(wire, upload)
        except BaseException as error:
            if upload is not None:
                await _ended(upload)
            if self._upload_error is not None and isinstance(error, LostError):
                raise self._upload_error from None
            raise
        self._egress.meter.answered(self._loop.time() - self._begun)
        return upstream, answer, upload

    async def _upload(self, wire: Wire) -> None:
        """Passes on the rest of the body. A server that takes no more may have answered."""
        try:
            chunked = self._head.chunked or self._stream is not None
            while piece := await self._read():
                if self._stream is not None:
                    piece = self._stream.feed(piece)
                await self._pass_up(wire, chunk(piece) if chunked and piece else piece)
            if self._stream is not None and (piece := self._stream.finish()):
                await self._pass_up(wire, chunk(piece))
            if chunked:
                await self._pass_up(wire, LAST_CHUNK)
        except _ServerGoneError:
            return
        except (RefusedError, LostError) as error:
            self._upload_error = error
            wire.abort()

    async def _pass_up(self, wire: Wire, data: bytes) -> None:
        try:
            wire.write(data)
            await wire.drain(self._loop.time() + self._limits.answer_seconds)
        except (LostError, LateError) as error:
            raise _ServerGoneError from error

    # ---- the answer ----

    async def _answer_head(self, wire: Wire, upload: asyncio.Task[None] | None) -> ResponseHead:
        for _ in range(_MAX_INTERIM):
            try:
                answer = parse.response(await self._raw_head(wire, upload))
            except RefusedError as error:
                raise self._broken(f"answered what is no HTTP: {error.refusal.message}") from None
            except LateError:
                message = f"{self._way.place.host} did not answer in time: try again later"
                raise RefusedError(Refusal(Why.HOST_TIMEOUT, message, 504)) from None
            if answer.status >= HTTPStatus.OK or answer.status == _SWITCHING:
                return answer
        raise self._broken("sent interim answers without end")

    async def _raw_head(self, wire: Wire, upload: asyncio.Task[None] | None) -> bytes:
        """The answer's head. Raises `LostError` and `LateError`, `RefusedError` for a long one."""
        waiting, seen = wire.waiting, 0
        until = self._loop.time() + self._limits.answer_seconds
        while (end := waiting.find(b"\r\n\r\n", max(0, seen - 3), parse.MAX_HEAD)) < 0:
            if len(waiting) >= parse.MAX_HEAD:
                raise parse.malformed(f"a head longer than {parse.MAX_HEAD} bytes")
            seen = len(waiting)
            try:
                if not await wire.more(until):
                    raise LostError
            except LateError:
                if upload is None or upload.done():
                    raise
                until += self._limits.answer_seconds  # it is still being asked
        return wire.take(end + 4)

    async def _relay(self, upstream: Upstream, answer: ResponseHead) -> tuple[bool, bool]:
        """Passes the answer on; whether the client's and the server's connections may be kept."""
        told = self._way.answer(answer)
        bodiless = self._head.method == "HEAD" or answer.status in _BODILESS
        incoming = _answer_body(answer, upstream.wire, bodiless=bodiless)
        if told.body is not None:
            incoming = Nothing()
        length = answer.length if told.body is None else len(told.body)
        keep, chunked, framing = self._framing(answer.status, length, bodiless=bodiless)
        self.answered = True
        beginning = _head(told, framing)
        if told.body is not None and not bodiless:
            beginning += told.body
        if not (incoming.done or upstream.wire.waiting):
            self._client.write(beginning)  # the body may be long in coming
            beginning = b""
        await self._pass_down(beginning, incoming, upstream.wire, chunked=chunked)
        # a body where there is none to be would be taken for the next answer
        odd = answer.status in _BODILESS and (answer.chunked or bool(answer.length))
        return keep, incoming.done and answer.keep and told.body is None and not odd

    def _framing(
        self, status: int, length: int | None, *, bodiless: bool
    ) -> tuple[bool, bool, bytes]:
        """Whether the client's connection is kept, whether the body is chunked, and its fields."""
        keep, chunked, framing = self._head.keep, False, b""
        if length is not None and status not in _BODILESS:
            framing = b"Content-Length: %d\r\n" % length
        elif not bodiless:
            chunked = self._head.minor > 0
            keep = keep and chunked
            framing = b"Transfer-Encoding: chunked\r\n" if chunked else b""
        if not keep:
            framing += b"Connection: close\r\n"
        elif self._head.minor == 0:
            framing += b"Connection: keep-alive\r\n"
        return keep, chunked, framing

    async def _pass_down(
        self, beginning: bytes, incoming: Incoming, server: Wire, *, chunked: bool
    ) -> None:
        """Sends what there is of the beginning together with the first piece."""
        stream = None if isinstance(incoming, Nothing) else self._way.redaction()
        client, limits, time = self._client, self._limits, self._loop.time
        try:
            while piece := await incoming.read(time() + limits.answer_seconds):
                if stream is not None:
                    piece = stream.feed(piece)
                if piece:
                    client.write(beginning + (chunk(piece) if chunked else piece))
                    beginning = b""
                    await client.drain(time() + limits.piece_seconds)
                if stream is None or not stream.holding or incoming.done:
                    continue
                if await _pauses(server, time()):
                    piece = stream.finish()
                    client.write(beginning + (chunk(piece) if chunked else piece))
                    beginning = b""
        except RefusedError as error:  # its framing: too late to tell
            raise LostError from error
        if stream is not None and (piece := stream.finish()):
            beginning += chunk(piece) if chunked else piece
        if chunked:
            beginning += LAST_CHUNK
        if beginning:
            client.write(beginning)
            await client.drain(time() + limits.piece_seconds)

    async def _switch(self, upstream: Upstream, answer: ResponseHead) -> None:
        """Goes on as a WebSocket's tunnel."""
        if self._head.upgrade is None or answer.upgrade != self._head.upgrade:
            raise self._broken("switched to a protocol that nobody asked for")
        told = self._way.answer(answer)
        framing = b"Connection: Upgrade\r\nUpgrade: %b\r\n" % self._head.upgrade
        self.answered = True
        self._client.write(_head(told, framing))
        await tunnel(
            self._client, upstream.wire, self._limits, self._still_allowed, self._way.redaction
        )

    # ---- around both ----

    async def _record(self, *, first: bool = False) -> None:
        """Records what was used since the last time, or was not put in; and the request itself,
        which goes out all the same."""
        uses = self._way.uses
        if first and all(used.reason for used in uses):
            await self._egress.allowed(self._asked)
        for used in uses[self._recorded :]:
            await self._egress.allowed(self._asked, used)
        self._recorded = len(uses)

    def _broken(self, what: str) -> RefusedError:
        message = f"{self._way.place.host} {what}: the fault is the server's"
        return RefusedError(Refusal(Why.HOST_BROKEN, message, 502))


class _ServerGoneError(Exception):
    """The server takes no more of a body."""


async def _pauses(server: Wire, now: float) -> bool:
    """Whether the server sends nothing for a moment, so that what is held back should go on."""
    try:
        return len(server.waiting) <= len(_END_OF_CHUNK) and not await server.more(now + PAUSE)
    except LateError:
        return True


def _request_body(head: RequestHead, client: Wire) -> Incoming:
    if head.chunked:
        return Chunked(client, strict=True)
    return Counted(client, head.length) if head.length else Nothing()


def _answer_body(answer: ResponseHead, wire: Wire, *, bodiless: bool) -> Incoming:
    if bodiless:
        return Nothing()
    if answer.chunked:
        return Chunked(wire, strict=False)
    return UntilEnd(wire) if answer.length is None else Counted(wire, answer.length)


def _head(told: Answer, framing: bytes) -> bytes:
    lines = b"".join([b"%b: %b\r\n" % field for field in told.headers])
    phrase = told.phrase or responses.get(told.status, "").encode()
    return b"HTTP/1.1 %d %b\r\n%b%b\r\n" % (told.status, phrase, lines, framing)


async def _ended(task: asyncio.Task[None]) -> None:
    """Ends a task of this exchange, and waits until it has."""
    task.cancel()
    await asyncio.wait((task,))
    if not task.cancelled():
        task.result()
