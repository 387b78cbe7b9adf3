"""CredentialProxyService: what the proxy does with credentials for others."""

# ruff: noqa: N802  # gRPC calls methods by the contract's names

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from chassis.context import current_call
from chassis.errors import DroverError, Reason
from drover.vault.v1 import credential_proxy_service_pb2 as pb
from drover.vault.v1.credential_proxy_service_pb2_grpc import CredentialProxyServiceServicer
from services.vault_proxy.domain.grant import INVALID
from services.vault_proxy.domain.refusal import RefusedError, Why

if TYPE_CHECKING:
    from services.vault_proxy.domain.ports import Sessions, ToolServers
    from services.vault_proxy.domain.refusal import Refusal
    from services.vault_proxy.domain.session import SessionFacts
    from services.vault_proxy.grants.giving import Giving
    from services.vault_proxy.store.counts import SqlCounts
    from services.vault_proxy.web.tools import WebTools

_REASONS: Final = {
    Why.POLICY_UNAVAILABLE: Reason.UNAVAILABLE,
    Why.SESSION_ENDED: Reason.ARCHIVED,
}


class CredentialProxyRpc(CredentialProxyServiceServicer):
    """Serves the hands. Who asks is told by the grant, but for the grant itself."""

    def __init__(
        self,
        counts: SqlCounts,
        giving: Giving,
        sessions: Sessions,
        *,
        servers: ToolServers,
        web: WebTools,
    ) -> None:
        self._counts = counts
        self._giving = giving
        self._sessions = sessions
        self._servers = servers
        self._web = web

    async def GetHoldings(
        self, _request: pb.GetHoldingsRequest, _context: object
    ) -> pb.GetHoldingsResponse:
        """What the proxy holds: counts only."""
        vaults, credentials = await self._counts.held()
        return pb.GetHoldingsResponse(vaults=vaults, credentials=credentials)

    async def OpenGrant(
        self, request: pb.OpenGrantRequest, _context: object
    ) -> pb.OpenGrantResponse:
        """Gives a hand its grant, or a later one."""
        return await self._giving.open(
            current_call().workspace_id, request.session_id, request.hand_id
        )

    async def RevokeGrants(
        self, request: pb.RevokeGrantsRequest, _context: object
    ) -> pb.RevokeGrantsResponse:
        """Ends every grant that a session was given until now."""
        await self._giving.revoke(current_call().workspace_id, request.session_id)
        return pb.RevokeGrantsResponse()

    async def ListTools(
        self, request: pb.ListToolsRequest, _context: object
    ) -> pb.ListToolsResponse:
        """Asks one of the session's MCP servers for its tools."""
        facts = await self._facts(request.grant)
        return await self._servers.list_tools(facts, request.mcp_server_name)

    async def Call(self, request: pb.CallRequest, _context: object) -> pb.CallResponse:
        """Calls one tool of one of the session's MCP servers, once."""
        facts = await self._facts(request.grant)
        return await self._servers.call(
            facts, request.mcp_server_name, request.tool, request.input or "{}", request.call_id
        )

    async def Fetch(self, request: pb.FetchRequest, _context: object) -> pb.FetchResponse:
        """Reads a page of the web."""
        facts = await self._facts(request.grant)
        return await self._web.fetch(facts, request.url, request.settings, request.call_id)

    async def Search(self, request: pb.SearchRequest, _context: object) -> pb.SearchResponse:
        """Searches the web."""
        facts = await self._facts(request.grant)
        return await self._web.search(facts, request.query, request.settings, request.call_id)

    async def _facts(self, grant: str) -> SessionFacts:
        """Whose grant that is. Raises `DroverError`: PERMISSION_DENIED, ARCHIVED, UNAVAILABLE."""
        try:
            facts = (await self._sessions.of_grant(grant)).facts
        except RefusedError as error:
            raise _told(error.refusal) from error
        if facts.workspace_id != current_call().workspace_id:
            raise _told(INVALID)
        return facts


def _told(refusal: Refusal) -> DroverError:
    reason = _REASONS.get(refusal.reason, Reason.PERMISSION_DENIED)
    return DroverError(reason, refusal.message, error_code=str(refusal.reason))
