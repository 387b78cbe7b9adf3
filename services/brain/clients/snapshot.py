"""The session as it is now, for a brain that has held its lease for a while."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

import structlog

from chassis.errors import DroverError
from drover.session.v1.session_service_pb2 import GetSessionRequest
from services.brain.clients.failures import translated

if TYPE_CHECKING:
    from drover.session.v1.session_pb2 import Session
    from drover.session.v1.session_service_pb2_grpc import SessionServiceAsyncStub

DEADLINE: Final = 5.0

_log = structlog.get_logger("brain.snapshot")


class Snapshots(Protocol):
    """Newer copies of one session than the lease came with."""

    async def read(self) -> Session | None:
        """The session as it is now; `None` where it cannot be told."""
        ...


class SessionSnapshots:
    """Asks the session service."""

    def __init__(self, stub: SessionServiceAsyncStub, session_id: str) -> None:
        self._stub = stub
        self._session_id = session_id

    async def read(self) -> Session | None:
        """The session as it is now; `None` where it cannot be told."""
        request = GetSessionRequest(session_id=self._session_id)
        try:
            with translated("the session service"):
                response = await self._stub.GetSession(request, timeout=DEADLINE)
        except DroverError as error:
            # What the brain has of it will do: the lease decides whether it goes on at all.
            _log.info("session_not_read", reason=error.reason)
            return None
        return response.session
