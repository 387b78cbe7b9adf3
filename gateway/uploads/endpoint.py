"""The endpoint of every upload: a form in, one streamed RPC, JSON out."""

from __future__ import annotations

from contextlib import aclosing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from starlette.responses import Response

from chassis.errors import DroverError, Reason
from gateway import idempotency
from gateway.body import IDLE_SECONDS, Pieces, check_head, too_large
from gateway.errors import JSON
from gateway.transcode.form import HEADER
from gateway.uploads.filling import filling
from gateway.uploads.form import FormReader

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Mapping

    from google.protobuf.message import Message
    from starlette.requests import Request

    from gateway.room import Room
    from gateway.transcode.encode import ObjectEncoder
    from gateway.transcode.form import Form
    from gateway.transcode.routes import Route
    from gateway.transfer import Sending, Upload
    from gateway.watch import Watches

_FORM_BYTES: Final = 4 * 1024 * 1024
"""What a form may have beside the bytes of its files."""
_HEADER: Final = f"{HEADER}."


@dataclass(frozen=True, slots=True)
class Bounds:
    """How much an upload may bring, in bytes of its files, and how long its client may pause."""

    file_bytes: int
    idle_seconds: float = IDLE_SECONDS

    @property
    def body_bytes(self) -> int:
        """The longest body."""
        return self.file_bytes + _FORM_BYTES


class UploadEndpoint:
    """Serves one upload, while there is `room` for it: each piece goes on before the next is read.

    What is refused, broken off, not sent in time or not before its key has ended leaves nothing:
    the RPC is cancelled.
    """

    def __init__(
        self,
        route: Route,
        form: Form,
        call: Upload,
        encoder: ObjectEncoder,
        bounds: Bounds,
        *,
        room: Room,
        watches: Watches,
    ) -> None:
        self._route = route
        self._form = form
        self._call = call
        self._encoder = encoder
        self._bounds = bounds
        self._room = room
        self._watches = watches

    async def __call__(self, request: Request, path: Mapping[str, str]) -> Response:
        """The answer. Raises `DroverError`."""
        with self._room:
            return await self._watches.outlast(request.state.caller, self._serve(request, path))

    async def _serve(self, request: Request, path: Mapping[str, str]) -> Response:
        sending: Sending | None = None
        try:
            async with aclosing(self._messages(request, path)) as messages:
                async for message in messages:
                    if sending is None:  # what is refused at once reaches no service
                        sending = self._call()
                    await sending.write(message)
            if sending is None:
                raise AssertionError  # noqa: TRY301  # a form ends with a message
            answer = await sending.finish()
        except BaseException as error:
            if sending is not None:
                sending.cancel()
            if isinstance(error, DroverError):  # a form's fields are beside its files
                error.message = error.message.removeprefix(_HEADER)
            raise
        answer = getattr(answer, self._route.shown)
        return Response(self._encoder.encode(answer), media_type=JSON)

    async def _messages(
        self, request: Request, path: Mapping[str, str]
    ) -> AsyncGenerator[Message, None]:
        """What to send. Raises `DroverError`."""
        route, bounds, headers = self._route, self._bounds, request.headers
        header = route.request.decode(path, request.scope["query_string"], headers, b"")
        check_head(request, bounds.body_bytes, bounds.file_bytes)
        if idempotency.HEADER in headers:
            raise DroverError(
                Reason.INVALID_ARGUMENT,
                f"{idempotency.HEADER}: is not taken by uploads: no bytes are kept to compare",
            )
        form = FormReader(headers.get("content-type", ""), self._form.names)
        messages = filling(route, self._form, header, bounds.file_bytes)
        left = bounds.body_bytes
        async for piece in Pieces(request, bounds.idle_seconds):
            left -= len(piece)
            if left < 0:
                raise too_large(bounds.file_bytes)
            for event in form.feed(piece):
                for message in messages.take(event):
                    yield message
        form.end()
        for message in messages.end():
            yield message
