"""SessionService as far as the vault proxy asks it: one session, as a test makes it."""

from __future__ import annotations

from drover.agent.v1.tool_pb2 import McpServer
from drover.session.v1 import session_service_pb2
from drover.session.v1.session_pb2 import SESSION_STATUS_IDLE, Session
from drover.session.v1.session_service_pb2_grpc import SessionServiceServicer


class OneSession(SessionServiceServicer):
    """Answers for every id with the one session that there is."""

    def __init__(self) -> None:
        self.session = Session(id="sesn_1", status=SESSION_STATUS_IDLE)
        self.session.environment.cloud.networking.unrestricted.SetInParent()

    def add_server(self, name: str, url: str) -> None:
        """Has its agent have an MCP server."""
        self.session.agent.mcp_servers.append(McpServer(name=name, url=url))

    async def GetSession(
        self, _request: object, _context: object
    ) -> session_service_pb2.GetSessionResponse:
        """The session."""
        return session_service_pb2.GetSessionResponse(session=self.session)
