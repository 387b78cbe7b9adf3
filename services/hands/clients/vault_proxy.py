"""The vault proxy, which gives grants. It asks the session service itself whom it may give them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import grpc

from chassis.errors import DroverError, Reason
from chassis.grpc.status import from_rpc_error
from chassis.secret import Secret
from drover.vault.v1 import credential_proxy_service_pb2 as pb
from drover.vault.v1.credential_proxy_service_pb2_grpc import CredentialProxyServiceStub
from services.hands.domain.repository import Repository
from services.hands.egress.grants import Grant

if TYPE_CHECKING:
    import grpc.aio

    from chassis.clock import Clock
    from drover.vault.v1.credential_proxy_service_pb2_grpc import CredentialProxyServiceAsyncStub

DEADLINE: Final = 5.0
"""Seconds for the vault proxy's answer, which a session's first command waits for."""
_RENEW_AT: Final = 0.2
"""Of a grant's life, which is 5 min: what is older is renewed when it is used, and with it the
sandbox learns what has changed in the session's vaults."""


class VaultProxyClient:
    """Opens and revokes grants over gRPC."""

    def __init__(self, channel: grpc.aio.Channel, clock: Clock) -> None:
        self._service: CredentialProxyServiceAsyncStub = CredentialProxyServiceStub(channel)
        self._clock = clock

    async def open(self, session_id: str, hand_id: str) -> Grant:
        """A grant for a hand that serves a session. Raises `DroverError`."""
        asked_at = self._clock.monotonic()
        request = pb.OpenGrantRequest(session_id=session_id, hand_id=hand_id)
        try:
            answer = await self._service.OpenGrant(request, timeout=DEADLINE)
        except grpc.RpcError as error:
            raise from_rpc_error(error, "the vault proxy") from error
        now = self._clock.now()
        seconds = (answer.expires_at.ToDatetime(now.tzinfo) - now).total_seconds()
        if not answer.grant or seconds <= 0:
            raise DroverError(Reason.UNAVAILABLE, "the vault proxy gave a grant that has ended")
        return Grant(
            Secret(answer.grant),
            asked_at + seconds * _RENEW_AT,
            asked_at + seconds,
            answer.ca_certificate,
            {one.name: one.placeholder for one in answer.variables},
            tuple(answer.problems),
            tuple(
                Repository(one.resource_id, one.url, one.mount_path, one.branch, one.commit)
                for one in answer.repositories
            ),
        )

    async def revoke(self, session_id: str) -> None:
        """Ends the session's grants. Raises `DroverError`."""
        request = pb.RevokeGrantsRequest(session_id=session_id)
        try:
            await self._service.RevokeGrants(request, timeout=DEADLINE)
        except grpc.RpcError as error:
            raise from_rpc_error(error, "the vault proxy") from error
