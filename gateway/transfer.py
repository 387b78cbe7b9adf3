"""RPCs that carry files: no deadline for the whole, but one for every step.

Each step waits until the other side takes or gives a message, so that no more of a file is held
than gRPC's own buffers.
"""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any, Final, Protocol

import grpc
import grpc.aio
from google.protobuf.message import Message

from chassis.errors import DroverError, Reason
from chassis.grpc.status import from_rpc_error
from gateway.cancellation import cancellation

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Coroutine

_WRITTEN_TOO_LATE: Final = "Internal error from Core"

LONGEST_SECONDS: Final = 24 * 3600.0
"""When even a transfer that goes on is given up."""


class Transfer:
    """One RPC of `callee`, whose steps may take `step_seconds` each."""

    def __init__(self, call: Any, callee: str, step_seconds: float) -> None:  # noqa: ANN401
        self._call = call
        self._callee = callee
        self._step_seconds = step_seconds

    def cancel(self) -> None:
        """Gives up: nothing remains of it on the other side. Nothing happens once it has ended."""
        self._call.cancel()

    async def _step(self, step: Awaitable[Any]) -> Any:  # noqa: ANN401  # of the call's own type
        """What a step of the call gives. Raises `DroverError`."""
        try:
            async with self._patience():
                return await step
        except grpc.RpcError as error:
            raise self._error(error) from error
        except asyncio.CancelledError as error:
            raise cancellation(error) from None

    @asynccontextmanager
    async def _patience(self) -> AsyncIterator[None]:
        try:
            async with asyncio.timeout(self._step_seconds):
                yield
        except TimeoutError:
            raise DroverError(
                Reason.DEADLINE_EXCEEDED, f"{self._callee} did not answer in time"
            ) from None

    def _error(self, error: grpc.RpcError) -> DroverError:
        return from_rpc_error(error, self._callee)


class Sending(Transfer):
    """A request that is streamed, for one answer."""

    def __init__(self, call: Any, callee: str, step_seconds: float) -> None:  # noqa: ANN401
        super().__init__(call, callee, step_seconds)
        self._ended: grpc.RpcError | None = None
        call.add_done_callback(self._end)

    async def write(self, message: Message) -> None:
        """Sends a message when there is room for it. Raises what the service refuses it with."""
        try:
            async with self._patience():
                await self._call.write(message)
                return
        except (asyncio.InvalidStateError, grpc.RpcError):
            pass  # it has ended, and a write does not know with what
        except asyncio.CancelledError as error:
            raise cancellation(error) from None
        await self.answer()
        raise DroverError(Reason.INTERNAL, f"{self._callee} answered too early")

    async def finish(self) -> Any:  # noqa: ANN401  # of the call's own type
        """The answer to what was sent. Raises `DroverError`."""
        with suppress(grpc.aio.InternalError):  # it has ended by itself: see what with
            await self._step(self._call.done_writing())
        return await self.answer()

    async def answer(self) -> Any:  # noqa: ANN401  # of the call's own type
        """The answer, without saying that the request has ended."""
        return await self._step(self._call)

    def _error(self, error: grpc.RpcError) -> DroverError:
        """What the call ended with.

        gRPC sets an end of its own for a write that comes after the peer's, sometimes before it
        knows of that, and sometimes in its place.
        """
        if self._ended is not None and _details(error) == _WRITTEN_TOO_LATE:
            error = self._ended
        return super()._error(error)

    def _end(self, call: Any) -> None:  # noqa: ANN401  # gRPC's own
        told = [_at_once(one()) for one in (call.code, call.details, call.trailing_metadata)]
        code, details, trailers = told
        if isinstance(code, grpc.StatusCode):
            nothing = grpc.aio.Metadata()
            self._ended = grpc.aio.AioRpcError(code, nothing, trailers or nothing, details, None)


class Receiving(Transfer):
    """An answer that is streamed."""

    async def read(self) -> Any:  # noqa: ANN401  # of the call's own type
        """The next message, `None` at the end. Raises `DroverError`."""
        message = await self._step(self._call.read())
        return message if isinstance(message, Message) else None  # gRPC's own mark of the end


class Upload(Protocol):
    """Begins to stream a request."""

    def __call__(self) -> Sending:
        """The call."""
        ...


class Download(Protocol):
    """Asks for an answer that is streamed."""

    def __call__(self, request: Message) -> Receiving:
        """The call."""
        ...


def _details(error: grpc.RpcError) -> object:
    return error.details() if isinstance(error, grpc.aio.AioRpcError) else None


def _at_once(question: Coroutine[Any, Any, Any]) -> Any:  # noqa: ANN401  # of the question's type
    """The answer to a question that need not be waited for; `None` if it would have to be."""
    try:
        question.send(None)
    except StopIteration as answered:
        return answered.value
    question.close()
    return None
