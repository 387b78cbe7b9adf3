"""RPCs that carry files: no deadline for the whole, but one for every step.

Each step waits until the other side takes or gives a message, so that no more of a file is held
than gRPC's own buffers.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final, Protocol

import grpc
from google.protobuf.message import Message

from chassis.errors import DroverError, Reason
from chassis.grpc.status import from_rpc_error
from gateway.cancellation import cancellation

if TYPE_CHECKING:
    from collections.abc import Awaitable

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
            async with asyncio.timeout(self._step_seconds):
                return await step
        except TimeoutError:
            raise DroverError(
                Reason.DEADLINE_EXCEEDED, f"{self._callee} did not answer in time"
            ) from None
        except grpc.RpcError as error:
            raise from_rpc_error(error, self._callee) from error
        except asyncio.CancelledError as error:
            raise cancellation(error) from None


class Sending(Transfer):
    """A request that is streamed, for one answer."""

    async def write(self, message: Message) -> None:
        """Sends a message when there is room for it. Raises what the service refuses it with."""
        try:
            await self._step(self._call.write(message))
        except asyncio.InvalidStateError:  # it has ended already: that is what it ended with
            await self.answer()
            raise DroverError(Reason.INTERNAL, f"{self._callee} answered too early") from None

    async def finish(self) -> Any:  # noqa: ANN401  # of the call's own type
        """The answer to what was sent. Raises `DroverError`."""
        await self._step(self._call.done_writing())
        return await self.answer()

    async def answer(self) -> Any:  # noqa: ANN401  # of the call's own type
        """The answer, without saying that the request has ended."""
        return await self._step(self._call)


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
