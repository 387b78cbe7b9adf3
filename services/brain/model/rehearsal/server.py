"""The rehearsal model's HTTP server: `POST /v1/messages` on loopback, for one process's own use."""

from __future__ import annotations

import asyncio
import socket
from contextlib import asynccontextmanager, contextmanager
from typing import TYPE_CHECKING, Any

import orjson
import uvicorn
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from services.brain.model.rehearsal import encoding
from services.brain.model.rehearsal.actor import answer
from services.brain.model.rehearsal.conversation import InvalidRequestError, read_conversation
from services.brain.model.rehearsal.judging import is_for_judge, judgement
from services.brain.model.rehearsal.summarising import is_for_summary, summary

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator, Mapping

    from starlette.requests import Request

_STOP_TIMEOUT = 1
_BACKLOG = 512


@asynccontextmanager
async def rehearsal_server() -> AsyncIterator[str]:
    """Serve the rehearsal model on a free loopback port; the value is its base URL.

    Connections are accepted from the first moment: the socket listens before it is served.
    """
    listener = socket.create_server(("127.0.0.1", 0), backlog=_BACKLOG)
    server = _EmbeddedServer(
        uvicorn.Config(
            rehearsal_application(),
            lifespan="off",
            ws="none",
            log_config=None,
            access_log=False,
            timeout_graceful_shutdown=_STOP_TIMEOUT,
        )
    )
    failure: Exception | None = None
    with listener:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(server.serve(sockets=[listener]), name="rehearsal-model")
            try:
                yield f"http://127.0.0.1:{listener.getsockname()[1]}"
            except Exception as error:  # noqa: BLE001  # the task group would wrap it
                failure = error
            finally:
                server.should_exit = True
    if failure is not None:
        raise failure


def rehearsal_application() -> Starlette:
    """The Messages API as an ASGI application."""
    return Starlette(
        routes=[Route("/v1/messages", _messages, methods=["POST"])],
        exception_handlers={
            InvalidRequestError: _refused,
            HTTPException: _not_served,
        },
    )


class _EmbeddedServer(uvicorn.Server):
    """A uvicorn server that leaves the signals to the process it runs in."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


async def _messages(request: Request) -> Response:
    body = _checked(await request.body())
    whole = await asyncio.to_thread(_answered, body)
    if body.get("stream"):
        return StreamingResponse(_frames(whole), media_type="text/event-stream")
    return _json(whole)


def _answered(body: Mapping[str, Any]) -> dict[str, Any]:
    """Off the loop: a large table takes a while to read, and the brain has leases to renew."""
    if is_for_judge(body):
        said = judgement(body)
    elif is_for_summary(body):
        said = summary(body)
    else:
        said = answer(read_conversation(body))
    return encoding.message(said, body)


async def _frames(whole: Mapping[str, Any]) -> AsyncIterator[bytes]:
    for frame in encoding.stream(whole):
        yield frame


def _checked(raw: bytes) -> dict[str, Any]:
    """The request's JSON, with what every script needs of it; raises InvalidRequestError."""
    try:
        body = orjson.loads(raw)
    except orjson.JSONDecodeError as error:
        raise InvalidRequestError("the body is not JSON") from error
    if not isinstance(body, dict):
        raise InvalidRequestError("the body must be a JSON object")
    if not isinstance(body.get("model"), str):
        raise InvalidRequestError("model: must be a string")
    limit = body.get("max_tokens")
    if not isinstance(limit, int) or isinstance(limit, bool) or limit < 1:
        raise InvalidRequestError("max_tokens: must be a number above 0")
    if body.get("stop_sequences"):
        raise InvalidRequestError("stop_sequences: the rehearsal model has none")
    return body


def _refused(_request: Request, error: Exception) -> Response:
    return _json(encoding.error("invalid_request_error", str(error)), status=400)


def _not_served(request: Request, error: Exception) -> Response:
    status = error.status_code if isinstance(error, HTTPException) else 500
    text = f"the rehearsal model does not serve {request.method} {request.url.path}"
    return _json(encoding.error("not_found_error", text), status=status)


def _json(content: Mapping[str, Any], status: int = 200) -> Response:
    return Response(orjson.dumps(content), status, media_type="application/json")
