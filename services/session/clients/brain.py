"""A brain: woken, and at work for as long as the call is open."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import grpc
import grpc.aio

from chassis.context import CallContext, call_context, current_call
from chassis.errors import DroverError, Reason
from chassis.grpc.status import from_rpc_error
from drover.brain.v1 import brain_service_pb2
from drover.brain.v1.brain_service_pb2_grpc import BrainServiceStub

if TYPE_CHECKING:
    from services.session.domain.session import SessionRef

# A brain works for as long as its session has work; past this its lease alone says that it lives.
_DEADLINE: Final = 24 * 3600.0


class BrainClient:
    """BrainService at one address."""

    def __init__(self, address: str, channel: grpc.aio.Channel) -> None:
        self._address = address
        self._channel = channel
        self._stub = BrainServiceStub(channel)
        self._calls = 0
        self._closed = False

    @property
    def address(self) -> str:
        """Where it listens."""
        return self._address

    @property
    def is_busy(self) -> bool:
        """Whether it was woken from here and has not stopped yet."""
        return self._calls > 0

    async def wake(self, ref: SessionRef) -> None:
        """Has it be the session's brain. Raises `DroverError`: UNAVAILABLE once it is closed."""
        if self._closed:  # it was there when the brains to ask were listed
            raise DroverError(Reason.UNAVAILABLE, "a brain is no more")
        request = brain_service_pb2.WakeRequest(session_id=ref.session_id)
        self._calls += 1
        try:
            with call_context(CallContext(ref.workspace_id, current_call().request_id)):
                call = self._stub.Wake(request, timeout=_DEADLINE)
            await call
        except grpc.RpcError as error:
            raise from_rpc_error(error, "a brain") from error
        finally:
            self._calls -= 1

    async def close(self) -> None:
        """Ends its calls, and the connection."""
        self._closed = True
        await self._channel.close(None)
