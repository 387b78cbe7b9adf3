"""The endpoints of downloads: a streamed answer becomes a file, piece by piece.

What is downloaded may be anything that somebody has uploaded, or an agent has made: it is served to
be saved and never to be shown, so that no browser takes it for a page of this server.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import structlog

from chassis.errors import DroverError, Reason
from gateway.transcode.shape import ContractError
from gateway.uploads.disposition import OCTETS, attachment, safe_type
from gateway.wire import WIRE

if TYPE_CHECKING:
    from collections.abc import Awaitable, Coroutine

    from starlette.requests import Request
    from starlette.types import Receive, Scope, Send

    from gateway.room import Room
    from gateway.transcode.routes import Route
    from gateway.transfer import Download, Receiving
    from gateway.watch import Watches
    from gateway.wire import Wire

ZIP: Final = "application/zip"
_INERT: Final = {
    "x-content-type-options": "nosniff",
    "content-security-policy": "default-src 'none'; sandbox",
}
_SLICE_BYTES: Final = 64 * 1024
_log = structlog.get_logger("gateway.downloads")


def file_headers(file: Any) -> dict[str, str]:  # noqa: ANN401  # of drover.file.v1
    """What is said of a `File`. One of a session has a path for its name."""
    return {
        "content-type": safe_type(file.mime_type),
        "content-length": str(file.size_bytes),
        "content-disposition": attachment(file.filename.rpartition("/")[-1]),
    }


def archive_headers(version: Any) -> dict[str, str]:  # noqa: ANN401  # of drover.skill.v1
    """What is said of the archive of a `SkillVersion`, whose size only its end tells."""
    return {"content-type": ZIP, "content-disposition": attachment(f"{version.name}.zip")}


@dataclass(frozen=True, slots=True)
class Content:
    """What a download serves: the headers that its metadata makes, and how it is described."""

    headers: Callable[[Any], dict[str, str]]
    media_type: str
    description: str


_CONTENTS: Final[Mapping[str, Content]] = {
    "drover.file.v1.File": Content(file_headers, OCTETS, "The file, under its own type."),
    "drover.skill.v1.SkillVersion": Content(archive_headers, ZIP, "The files, as an archive."),
}


def content_of(route: Route) -> Content:
    """What a route downloads. Raises `ContractError` if nothing is known of it."""
    for field in route.method.output_type.fields:
        message = field.message_type
        if message is not None and message.full_name in _CONTENTS:
            return _CONTENTS[message.full_name]
    msg = f"{route.template}: nothing is known of what it downloads"
    raise ContractError(msg)


class DownloadEndpoint:
    """Serves one download, while there is `room` for it.

    A reader that takes less than some 64 KiB in `stall_seconds` is given up, and so is one whose
    key has ended.
    """

    def __init__(
        self, route: Route, call: Download, room: Room, watches: Watches, stall_seconds: float
    ) -> None:
        self._route = route
        self._call = call
        self._room = room
        self._watches = watches
        self._stall_seconds = stall_seconds
        self._headers = content_of(route).headers

    async def __call__(self, request: Request, path: Mapping[str, str]) -> FileResponse:
        """The response, once there is something to send. Raises `DroverError`."""
        query = request.scope["query_string"]
        message = self._route.request.decode(path, query, request.headers, b"")
        self._room.enter()
        receiving = self._call(message)
        try:
            headers = self._headers(_metadata(await receiving.read()))
        except BaseException:
            receiving.cancel()
            self._room.leave()
            raise
        watched = partial(self._watches.outlast, request.state.caller)
        return FileResponse(headers, receiving, self._room, watched, self._stall_seconds)


class FileResponse:
    """Writes what is received, and leaves the room.

    What breaks midway cuts the connection: it must not look whole.
    """

    def __init__(
        self,
        headers: Mapping[str, str],
        receiving: Receiving,
        room: Room,
        watched: Callable[[Coroutine[Any, Any, bytes]], Awaitable[bytes]],
        stall_seconds: float,
    ) -> None:
        self._headers = {**headers, **_INERT}
        self._receiving = receiving
        self._room = room
        self._watched = watched
        self._stall_seconds = stall_seconds

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Sends the response."""
        wire: Wire = scope["extensions"][WIRE]["wire"]
        head = [(name.encode(), value.encode()) for name, value in self._headers.items()]
        try:
            await send({"type": "http.response.start", "status": 200, "headers": head})
            last = b""
            if scope["method"] != "HEAD":
                last = await self._watched(self._write(wire, send))
            await self._send(send, last, more=False)
        except (DroverError, _CutError) as error:
            if not wire.is_closed:
                _log.warning("download_cut", why=str(error))
            wire.abort()
            while (await receive())["type"] != "http.disconnect":
                pass
        finally:
            self._receiving.cancel()
            self._room.leave()

    async def _write(self, wire: Wire, send: Send) -> bytes:
        """Writes all but the last bytes, which are held until it is known that all is well."""
        size = self._headers.get("content-length")
        left = None if size is None else int(size)
        held = b""
        while (message := await self._receiving.read()) is not None:
            if left is not None and (left := left - len(message.data)) < 0:
                raise _CutError("there is more of it than was said")
            for at in range(0, len(message.data), _SLICE_BYTES):
                if wire.is_closed:
                    raise _CutError("its reader is gone")
                if held:
                    await self._send(send, held, more=True)
                held = message.data[at : at + _SLICE_BYTES]
        if left:
            raise _CutError("there is less of it than was said")
        return held

    async def _send(self, send: Send, data: bytes, *, more: bool) -> None:
        # A send waits until the connection has taken all but 64 KiB, and then all but 16.
        try:
            async with asyncio.timeout(self._stall_seconds):
                await send({"type": "http.response.body", "body": data, "more_body": more})
        except TimeoutError:
            raise _CutError("its reader takes next to nothing") from None


class _CutError(Exception):
    """The response cannot go on."""


def _metadata(first: Any) -> Any:  # noqa: ANN401  # of any download
    """What the first message of a download says it is."""
    kind = None if first is None else first.WhichOneof("part")
    if kind in {None, "data"}:
        raise DroverError(Reason.INTERNAL, "a download does not say what it is")
    return getattr(first, kind)
