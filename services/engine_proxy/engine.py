"""The engine, asked by requests that are written here from beginning to end.

Nothing of a client's request is copied: its method, path, query and body have been understood, and
are said again in the one way that this library has.
"""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from dataclasses import dataclass
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote, urlencode

import h11

from chassis.errors import CannotStartError, DroverError, Reason
from services.engine_proxy.domain import bodies
from services.engine_proxy.domain.places import Places, Volume, is_plain
from services.engine_proxy.link import Link, LinkLostError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping
    from pathlib import Path

_CONNECT_SECONDS: Final = 5.0
_ASK_SECONDS: Final = 20.0
_MOST_TOLD: Final = 4 * 1024 * 1024
_HEAD_BYTES: Final = 64 * 1024
_SUBPATHS: Final = (1, 45)
_UPGRADED: Final = HTTPStatus.SWITCHING_PROTOCOLS


@dataclass(frozen=True, slots=True)
class Request:
    """What the engine is asked. `upgrade`: its answer is to be a stream both ways."""

    method: str
    path: str
    query: Mapping[str, str]
    body: bytes | None = None
    upgrade: bool = False


@dataclass(slots=True)
class Answer:
    """The engine's answer, which goes on in `events`. `link` is a stream where it upgraded."""

    status: int
    content_type: bytes
    length: bytes | None
    link: Link
    conn: h11.Connection

    @property
    def upgraded(self) -> bool:
        """Whether the rest is a stream of bytes, both ways."""
        return self.status == _UPGRADED

    async def pieces(self) -> AsyncIterator[bytes]:
        """The rest of its body. Raises `DroverError` for one that is cut off."""
        while True:
            event = await _event(self.conn, self.link)
            if isinstance(event, h11.EndOfMessage):
                return
            if isinstance(event, h11.Data):
                yield bytes(event.data)

    async def whole(self) -> bytes:
        """Its body. Raises `DroverError`."""
        found = b""
        async for piece in self.pieces():
            found += piece
            if len(found) > _MOST_TOLD:
                raise _away("it said too much")
        return found


class Engine:
    """The engine behind a unix socket. Each request has a connection of its own."""

    def __init__(self, socket: Path) -> None:
        self._socket = socket
        self._version = ""

    @asynccontextmanager
    async def asked(self, request: Request) -> AsyncIterator[Answer]:
        """The answer's beginning; what is left of it is given up at the end.

        Raises `DroverError` where there is no engine, or none that speaks HTTP.
        """
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(_CONNECT_SECONDS):
                _, link = await loop.create_unix_connection(Link, str(self._socket))
        except OSError as error:
            raise _away(error.strerror or "it does not answer") from error
        try:
            conn = h11.Connection(h11.CLIENT, max_incomplete_event_size=_HEAD_BYTES)
            await _send(conn, link, self._said(request), request.body)
            yield await _begun(conn, link)
        finally:
            link.abort()

    async def told(self, path: str) -> dict[str, Any] | None:
        """What it says of something; None where there is no such thing. Raises `DroverError`."""
        try:
            async with (
                asyncio.timeout(_ASK_SECONDS),
                self.asked(Request("GET", path, {})) as answer,
            ):
                body = await answer.whole()
        except TimeoutError as error:
            raise _away("it does not answer") from error
        if answer.status == HTTPStatus.NOT_FOUND:
            return None
        if answer.status != HTTPStatus.OK:
            raise _away(f"it answers {answer.status}")
        return bodies.read(body)

    async def places(self, roots: tuple[str, ...], volume: str) -> Places:
        """Where containers may be given directories. Raises `CannotStartError`."""
        try:
            version = await self.told("/version")
            found = await self.told(f"/volumes/{volume}") if volume else None
        except DroverError as error:
            msg = (
                f"{error.message}: mount its socket, name it in DROVER_ENGINE_SOCKET, and run as a "
                "user or group that may connect to it"
            )
            raise CannotStartError(msg) from error
        self._version = str((version or {}).get("ApiVersion", ""))
        if not volume:
            return Places(roots)
        place = str((found or {}).get("Mountpoint", ""))
        if not is_plain(place) or place == "/":
            msg = (
                f"the engine has no volume {volume} with a place on its machine: name the hands' "
                "data in DROVER_ENGINE_DATA_VOLUME as `docker volume ls` does, or their directory "
                "in DROVER_ENGINE_BIND_ROOTS"
            )
            raise CannotStartError(msg)
        return Places(roots, Volume(volume, place), by_subpath=self.version >= _SUBPATHS)

    @property
    def version(self) -> tuple[int, ...]:
        """Of its API."""
        return tuple(int(part) for part in self._version.split(".") if part.isdigit())

    def _said(self, request: Request) -> h11.Request:
        path = quote(request.path, safe="/:")
        if self._version:
            path = f"/v{self._version}{path}"
        query = urlencode(request.query)
        headers = [("Host", "engine")]
        if request.upgrade:
            headers += [("Connection", "Upgrade"), ("Upgrade", "tcp")]
        else:
            headers.append(("Connection", "close"))
        if request.body is not None:
            headers.append(("Content-Type", "application/json"))
        if request.body is not None or request.method == "POST":
            headers.append(("Content-Length", str(len(request.body or b""))))
        target = f"{path}?{query}" if query else path
        return h11.Request(method=request.method, target=target, headers=headers)


async def _send(conn: h11.Connection, link: Link, head: h11.Request, body: bytes | None) -> None:
    data = conn.send(head) or b""
    if body:
        data += conn.send(h11.Data(data=body)) or b""
    data += conn.send(h11.EndOfMessage()) or b""
    try:
        await link.send(data)
    except LinkLostError as error:
        raise _away("it ended in the middle") from error


async def _begun(conn: h11.Connection, link: Link) -> Answer:
    while True:
        event = await _event(conn, link)
        if isinstance(event, h11.Response) or (
            isinstance(event, h11.InformationalResponse) and event.status_code == _UPGRADED
        ):
            headers = dict(event.headers)
            kind = headers.get(b"content-type", b"application/json")
            return Answer(event.status_code, kind, headers.get(b"content-length"), link, conn)


async def _event(conn: h11.Connection, link: Link) -> object:
    while True:
        try:
            event = conn.next_event()
        except h11.RemoteProtocolError as error:
            raise _away("what it says is no HTTP") from error
        if event is h11.NEED_DATA:
            conn.receive_data(await link.receive())
            continue
        if event is h11.PAUSED or isinstance(event, h11.ConnectionClosed):
            raise _away("it ended in the middle")
        return event


def _away(why: str) -> DroverError:
    return DroverError(Reason.UNAVAILABLE, f"the engine proxy reaches no container engine: {why}")
