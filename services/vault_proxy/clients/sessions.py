"""SessionService, as far as the vault proxy asks it what a session may do."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import grpc
import grpc.aio

from chassis.context import CallContext, call_context, current_call
from chassis.grpc.status import from_rpc_error
from drover.session.v1 import session_service_pb2
from drover.session.v1.session_service_pb2_grpc import SessionServiceStub

if TYPE_CHECKING:
    from drover.session.v1.session_pb2 import Session

_DEADLINE: Final = 2.0


class SessionClient:
    """See `domain.ports.SessionReader`."""

    def __init__(self, channel: grpc.aio.Channel) -> None:
        self._stub = SessionServiceStub(channel)

    async def get(self, workspace_id: str, session_id: str) -> Session:
        """The session as it is now. Raises `DroverError`."""
        request = session_service_pb2.GetSessionRequest(session_id=session_id)
        with call_context(CallContext(workspace_id, current_call().request_id)):
            call = self._stub.GetSession(request, timeout=_DEADLINE)
        try:
            answer: session_service_pb2.GetSessionResponse = await call
        except grpc.RpcError as error:
            raise from_rpc_error(error, "the session service") from error
        return answer.session
