"""What operators ask of the session service: one session works."""

from __future__ import annotations

from drover.session.v1 import operations_service_pb2 as pb
from drover.session.v1 import session_pb2
from drover.session.v1.operations_service_pb2_grpc import OperationsServiceServicer
from tests.doubles.asked import Asked, stamp


class Operations(Asked, OperationsServiceServicer):
    def __init__(self) -> None:
        super().__init__()
        self.working = pb.ActiveSession(
            id="sesn_1",
            agent_id="agent_1",
            agent_name="Shepherd [bold]",
            status=session_pb2.SESSION_STATUS_RUNNING,
            brain="brain-1",
            waits_for="its tools",
            last_event="agent.tool_use",
            created_at=stamp(),
            last_event_at=stamp(),
        )

    async def ListActiveSessions(self, request, context):
        self.note(request)
        return pb.ListActiveSessionsResponse(data=[self.working])
