"""EnvironmentKeyService: what it says on the wire, in terms of the domain and the store."""

# ruff: noqa: N802  # gRPC calls methods by the contract's names

from __future__ import annotations

from typing import TYPE_CHECKING

import structlog

from catalogue.resources.paging import DEFAULT_LIMIT, CursorBinding, Position, cut
from catalogue.resources.stamps import micros
from chassis.context import current_call
from chassis.errors import DroverError, Reason
from drover.environment.v1 import environment_key_service_pb2 as pb
from drover.environment.v1.environment_key_service_pb2_grpc import EnvironmentKeyServiceServicer
from services.registry.domain.environment_key import digest, draw, new_environment_key
from services.registry.domain.ports import Listing
from services.registry.rpc.once import is_new, once

if TYPE_CHECKING:
    from chassis.clock import Clock
    from chassis.ids import IdSource
    from services.registry.domain.ports import EnvironmentKeyStore
    from services.registry.rpc.once import Context

_log = structlog.get_logger("registry.environment_keys")


class EnvironmentKeyRpc(EnvironmentKeyServiceServicer):
    """Serves environments' keys out of a store, within the calling workspace."""

    def __init__(self, store: EnvironmentKeyStore, clock: Clock, ids: IdSource) -> None:
        self._store = store
        self._clock = clock
        self._ids = ids

    async def CreateEnvironmentKey(
        self, request: pb.CreateEnvironmentKeyRequest, context: Context
    ) -> pb.CreateEnvironmentKeyResponse:
        """Makes a key, and answers it this once."""
        secret = draw()
        made = new_environment_key(request, secret, self._ids("envkey"), self._clock.now())
        call = once(pb.CreateEnvironmentKeyResponse, "environment_key")
        key = await self._store.add(current_call().workspace_id, made, digest(secret), call)
        answer = pb.CreateEnvironmentKeyResponse(environment_key=key)
        if is_new(call, context):
            # Behind the store, which keeps the answer for repetitions: it never sees the key.
            answer.environment_key.key = secret
            _log.info("environment_key_created", environment_id=key.environment_id, key_id=key.id)
        return answer

    async def ListEnvironmentKeys(
        self, request: pb.ListEnvironmentKeysRequest, _context: object
    ) -> pb.ListEnvironmentKeysResponse:
        """Lists an environment's keys, newest first."""
        workspace_id, environment_id = current_call().workspace_id, request.environment_id
        binding = CursorBinding(
            ("environment_keys", workspace_id, environment_id, str(request.include_revoked))
        )
        limit = request.limit if request.HasField("limit") else DEFAULT_LIMIT
        after = binding.read(request.page) if request.HasField("page") else None
        listing = Listing(limit + 1, after, request.include_revoked)
        keys, last = cut(await self._store.page(workspace_id, environment_id, listing), limit)
        answer = pb.ListEnvironmentKeysResponse(data=keys)
        if last is not None:
            answer.next_page = binding.write(Position(micros(last.created_at), last.id))
        return answer

    async def RevokeEnvironmentKey(
        self, request: pb.RevokeEnvironmentKeyRequest, context: Context
    ) -> pb.RevokeEnvironmentKeyResponse:
        """Revokes a key for good."""
        call = once(pb.RevokeEnvironmentKeyResponse, "environment_key")
        key = await self._store.revoke(
            current_call().workspace_id,
            request.environment_id,
            request.key_id,
            self._clock.now(),
            call,
        )
        if is_new(call, context):
            _log.info("environment_key_revoked", environment_id=key.environment_id, key_id=key.id)
        return pb.RevokeEnvironmentKeyResponse(environment_key=key)

    async def AuthenticateEnvironmentKey(
        self, request: pb.AuthenticateEnvironmentKeyRequest, _context: object
    ) -> pb.AuthenticateEnvironmentKeyResponse:
        """Whose key has this digest."""
        holder = await self._store.holder(request.digest)
        if holder is None:
            raise DroverError(Reason.UNAUTHENTICATED, "there is no such environment key")
        return pb.AuthenticateEnvironmentKeyResponse(
            workspace_id=holder.workspace_id,
            environment_id=holder.environment_id,
            key_id=holder.key_id,
        )
