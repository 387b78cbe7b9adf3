"""A client's connection: requests one after another, each understood, judged, and said again."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

import h11
import structlog

from chassis.errors import DroverError, Reason
from services.engine_proxy.domain import bodies
from services.engine_proxy.domain.refusal import malformed
from services.engine_proxy.link import LinkLostError

if TYPE_CHECKING:
    from services.engine_proxy.engine import Answer, Engine
    from services.engine_proxy.judge import Judge, Passed
    from services.engine_proxy.link import Link

_HEAD_BYTES: Final = 16 * 1024
_BODY_BYTES: Final = 1024 * 1024
_REQUEST_SECONDS: Final = 30.0
_JSON: Final = b"application/json"
_SUCCESS: Final = range(200, 300)

_log = structlog.get_logger("engine_proxy.connection")


class _GoneError(Exception):
    """The client says nothing more."""


class Connection:
    """Serves one client until it is gone."""

    def __init__(self, link: Link, engine: Engine, judge: Judge) -> None:
        self._link = link
        self._engine = engine
        self._judge = judge
        self._conn = h11.Connection(h11.SERVER, max_incomplete_event_size=_HEAD_BYTES)
        self._streams = False

    async def run(self) -> None:
        """Until the client has gone, or what it says is no HTTP."""
        try:
            while await self._one():
                self._conn.start_next_cycle()
        except (_GoneError, LinkLostError, TimeoutError):
            return
        except h11.RemoteProtocolError as error:
            _log.warning("not_understood", reason=str(error))
            if self._conn.our_state in {h11.IDLE, h11.SEND_RESPONSE}:
                text = f"the engine proxy does not understand: {error}"
                await self._tell(error.error_status_hint, text)

    async def _one(self) -> bool:
        """Serves a request; whether another may follow."""
        if not self._conn.trailing_data[0]:
            self._conn.receive_data(await self._received())
        async with asyncio.timeout(_REQUEST_SECONDS):
            request, body = await self._request()
        method, target = request.method.decode("ascii"), request.target.decode("ascii")
        try:
            passed = await self._passed(request, method, target, body)
            if await self._serve(passed):
                return False
        except DroverError as refusal:
            if refusal.reason is not Reason.NOT_FOUND:
                path = target.partition("?")[0][:200]
                _log.warning("refused", method=method, path=path, reason=refusal.message)
            if self._conn.our_state is not h11.SEND_RESPONSE:
                raise LinkLostError from refusal  # an answer that has begun cannot be taken back
            await self._tell(refusal.rule.http, refusal.message)
        return self._conn.our_state is h11.DONE and self._conn.their_state is h11.DONE

    async def _received(self) -> bytes:
        data = await self._link.receive()
        if not data:
            raise _GoneError
        return data

    async def _request(self) -> tuple[h11.Request, bytes]:
        """A whole request. What is too large of its body is read, and not kept."""
        request, body, read = None, b"", 0
        while True:
            event = self._conn.next_event()
            if event is h11.NEED_DATA:
                self._conn.receive_data(await self._received())
            elif isinstance(event, h11.Request):
                request = event
            elif isinstance(event, h11.Data):
                read += len(event.data)
                if read <= _BODY_BYTES + 1:
                    body += bytes(event.data)
                elif read > 8 * _BODY_BYTES:
                    raise _GoneError
            elif isinstance(event, h11.EndOfMessage) and request is not None:
                return request, body if read <= _BODY_BYTES else b" " * (_BODY_BYTES + 1)
            else:
                raise _GoneError

    async def _passed(self, request: h11.Request, method: str, target: str, body: bytes) -> Passed:
        if len(body) > _BODY_BYTES:
            msg = f"the engine proxy takes {_BODY_BYTES} bytes at most"
            raise DroverError(Reason.REQUEST_TOO_LARGE, msg)
        passed = await self._judge.passed(method, target, body)
        if passed.request.upgrade and not any(name == b"upgrade" for name, _ in request.headers):
            raise malformed("a stream that is asked for without an upgrade to it")
        return passed

    async def _serve(self, passed: Passed) -> bool:
        """Passes the answer on; true if it became a stream, which has ended."""
        serving = asyncio.ensure_future(self._answered(passed))
        gone = asyncio.ensure_future(self._link.ended())
        try:
            await asyncio.wait({serving, gone}, return_when=asyncio.FIRST_COMPLETED)
            if not serving.done() and not self._streams:
                raise _GoneError  # nobody waits for the answer
            return await serving
        finally:
            for task in (serving, gone):
                task.cancel()
            await asyncio.wait({serving, gone})

    async def _answered(self, passed: Passed) -> bool:
        async with self._engine.asked(passed.request) as answer:
            if answer.upgraded:
                await self._stream(answer)
                return True
            if passed.read is not None and answer.status in _SUCCESS:
                told = passed.read(bodies.read(await answer.whole()))
                await self._say(answer.status, bodies.written(told))
            else:
                await self._relay(answer)
        return False

    async def _stream(self, answer: Answer) -> None:
        """Bytes both ways from here on, unread."""
        self._streams = True
        head = h11.InformationalResponse(
            status_code=answer.status,
            reason=b"UPGRADED",
            headers=[
                (b"Content-Type", answer.content_type),
                (b"Connection", b"Upgrade"),
                (b"Upgrade", b"tcp"),
            ],
        )
        await self._send(head)
        early, late = self._conn.trailing_data[0], answer.conn.trailing_data[0]
        await self._link.joined(answer.link, early=early, late=late)

    async def _relay(self, answer: Answer) -> None:
        headers = [(b"Content-Type", answer.content_type)]
        if answer.length is not None:
            headers.append((b"Content-Length", answer.length))
        await self._send(h11.Response(status_code=answer.status, headers=headers))
        async for piece in answer.pieces():
            await self._send(h11.Data(data=piece))
        await self._send(h11.EndOfMessage())

    async def _tell(self, status: int, text: str) -> None:
        """An error as the engine words them."""
        await self._say(status, bodies.written({"message": text}))

    async def _say(self, status: int, body: bytes) -> None:
        length = str(len(body)).encode()
        headers = [(b"Content-Type", _JSON), (b"Content-Length", length)]
        await self._send(h11.Response(status_code=status, headers=headers))
        await self._send(h11.Data(data=body))
        await self._send(h11.EndOfMessage())

    async def _send(self, event: h11.Event) -> None:
        data = self._conn.send(event)
        if data:
            await self._link.send(data)
