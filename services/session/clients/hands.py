"""The hands service, as far as sessions end."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import grpc
import grpc.aio

from chassis.context import CallContext, call_context, current_call
from chassis.grpc.status import from_rpc_error
from drover.hands.v1 import hands_service_pb2
from drover.hands.v1.hands_service_pb2_grpc import HandsServiceStub

if TYPE_CHECKING:
    from services.session.domain.session import SessionRef

_DEADLINE: Final = 30.0


class HandsClient:
    """HandsService over gRPC."""

    def __init__(self, channel: grpc.aio.Channel) -> None:
        self._stub = HandsServiceStub(channel)

    async def release(self, ref: SessionRef, generation: int, *, purge: bool) -> None:
        """Ends a session's hand for good; `generation` is the last lease.

        With `purge` its workspace goes too. Raises `DroverError`.
        """
        request = hands_service_pb2.ReleaseRequest(
            session_id=ref.session_id, generation=generation, purge=purge
        )
        with call_context(CallContext(ref.workspace_id, current_call().request_id)):
            call = self._stub.Release(request, timeout=_DEADLINE)
        try:
            await call
        except grpc.RpcError as error:
            raise from_rpc_error(error, "the hands service") from error
