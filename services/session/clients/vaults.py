"""The vault proxy, as far as sessions name vaults and bring secrets of their own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeVar

import grpc
import grpc.aio

from chassis.context import CallContext, call_context, current_call
from chassis.errors import DroverError, Reason
from chassis.grpc.status import from_rpc_error
from drover.vault.v1 import vault_service_pb2 as pb
from drover.vault.v1.vault_service_pb2_grpc import VaultServiceStub

if TYPE_CHECKING:
    from collections.abc import Awaitable, Mapping, Sequence

    from drover.vault.v1.vault_service_pb2_grpc import VaultServiceAsyncStub
    from services.session.domain.session import SessionRef

T = TypeVar("T")

_DEADLINE: Final = 10.0


class Vaults:
    """VaultService over gRPC. Every method raises `DroverError`.

    Without a channel it is away: sessions without vaults and secrets do not need it.
    """

    def __init__(self, channel: grpc.aio.Channel | None) -> None:
        self._found = None if channel is None else VaultServiceStub(channel)

    @property
    def _stub(self) -> VaultServiceAsyncStub:
        if self._found is None:
            raise DroverError(Reason.UNAVAILABLE, "DROVER_VAULT_PROXY_ADDRESS is not set")
        return self._found

    async def check(self, vault_ids: Sequence[str], *, self_hosted: bool) -> None:
        """Raises NOT_FOUND and ARCHIVED for vaults that no new session may name.

        INVALID_ARGUMENT where workers run its tools, and a vault has variables for a sandbox.
        """
        if vault_ids:
            request = pb.CheckVaultsRequest(vault_ids=vault_ids, self_hosted=self_hosted)
            await _answer(self._stub.CheckVaults(request, timeout=_DEADLINE))

    async def put(self, session_id: str, tokens: Mapping[str, str]) -> None:
        """Has secrets kept by the ids of the resources that they are of."""
        for resource_id, token in tokens.items():
            request = pb.PutSessionSecretRequest(
                session_id=session_id, resource_id=resource_id, value=token
            )
            await _answer(self._stub.PutSessionSecret(request, timeout=_DEADLINE))

    async def copy(self, session_id: str, to: str, resource_ids: Sequence[str]) -> None:
        """Has the secrets of a session's resources kept for another session, too."""
        if resource_ids:
            request = pb.CopySessionSecretsRequest(
                session_id=session_id, to_session_id=to, resource_ids=resource_ids
            )
            await _answer(self._stub.CopySessionSecrets(request, timeout=_DEADLINE))

    async def forget(self, ref: SessionRef) -> None:
        """Has all secrets of a session removed."""
        request = pb.ForgetSessionRequest(session_id=ref.session_id)
        with call_context(CallContext(ref.workspace_id, current_call().request_id)):
            call = self._stub.ForgetSession(request, timeout=_DEADLINE)
        await _answer(call)


async def _answer(call: Awaitable[T]) -> T:
    try:
        return await call
    except grpc.RpcError as error:
        raise from_rpc_error(error, "the vault proxy") from error
