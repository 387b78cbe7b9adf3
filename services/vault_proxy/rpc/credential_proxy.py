"""CredentialProxyService: what the proxy does with credentials for others."""

# ruff: noqa: N802  # gRPC calls methods by the contract's names

from __future__ import annotations

from drover.vault.v1 import credential_proxy_service_pb2 as pb
from drover.vault.v1.credential_proxy_service_pb2_grpc import CredentialProxyServiceServicer


class CredentialProxyRpc(CredentialProxyServiceServicer):
    """Holds nothing: storing credentials is not part of this release, and it says so."""

    async def GetHoldings(
        self, _request: pb.GetHoldingsRequest, _context: object
    ) -> pb.GetHoldingsResponse:
        """What the proxy holds: counts only."""
        return pb.GetHoldingsResponse(vaults=0, credentials=0)
