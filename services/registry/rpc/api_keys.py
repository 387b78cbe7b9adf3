"""ApiKeyService: what it says on the wire, in terms of the domain and the store."""

# ruff: noqa: N802  # gRPC calls methods by the contract's names

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import structlog

from catalogue.resources.paging import DEFAULT_LIMIT, CursorBinding, Position, cut
from catalogue.resources.stamps import micros
from chassis.context import current_call
from chassis.errors import DroverError, Reason
from drover.key.v1 import api_key_service_pb2 as pb
from drover.key.v1.api_key_service_pb2_grpc import ApiKeyServiceServicer
from services.registry.domain.api_key import draw, new_api_key
from services.registry.domain.environment_key import digest
from services.registry.domain.ports import Listing
from services.registry.rpc.once import is_new, once

if TYPE_CHECKING:
    from chassis.clock import Clock
    from chassis.ids import IdSource
    from services.registry.domain.ports import ApiKeyStore
    from services.registry.rpc.once import Context

_log = structlog.get_logger("registry.api_keys")


class _Scoped(Protocol):
    @property
    def every_workspace(self) -> bool: ...


class ApiKeyRpc(ApiKeyServiceServicer):
    """Serves API keys out of a store: those of the calling workspace, or of all for admins."""

    def __init__(self, store: ApiKeyStore, clock: Clock, ids: IdSource) -> None:
        self._store = store
        self._clock = clock
        self._ids = ids

    async def CreateApiKey(
        self, request: pb.CreateApiKeyRequest, context: Context
    ) -> pb.CreateApiKeyResponse:
        """Makes a key, and answers it this once."""
        own = current_call().workspace_id
        workspace_id = request.workspace_id if request.HasField("workspace_id") else own
        if workspace_id != own and not request.every_workspace:
            raise DroverError(
                Reason.PERMISSION_DENIED, "workspace_id: the caller makes keys of its own only"
            )
        secret = draw()
        made = new_api_key(request, workspace_id, secret, self._ids("apikey"), self._clock.now())
        call = once(pb.CreateApiKeyResponse, "api_key")
        key = await self._store.add(made, digest(secret), call)
        answer = pb.CreateApiKeyResponse(api_key=key)
        if is_new(call, context):
            # Behind the store, which keeps the answer for repetitions: it never sees the key.
            answer.api_key.key = secret
            _log.info(
                "api_key_created",
                key_id=key.id,
                key_workspace_id=key.workspace_id,
                scopes=list(key.scopes),
            )
        return answer

    async def GetApiKey(
        self, request: pb.GetApiKeyRequest, _context: object
    ) -> pb.GetApiKeyResponse:
        """Reads a key."""
        key = await self._store.get(_within(request), request.api_key_id)
        return pb.GetApiKeyResponse(api_key=key)

    async def ListApiKeys(
        self, request: pb.ListApiKeysRequest, _context: object
    ) -> pb.ListApiKeysResponse:
        """Lists keys, newest first."""
        within = _within(request)
        if request.HasField("workspace_id"):
            if within not in {None, request.workspace_id}:
                return pb.ListApiKeysResponse()
            within = request.workspace_id
        whose = ("all",) if within is None else ("of", within)
        binding = CursorBinding(("api_keys", *whose, str(request.include_revoked)))
        limit = request.limit if request.HasField("limit") else DEFAULT_LIMIT
        after = binding.read(request.page) if request.HasField("page") else None
        listing = Listing(limit + 1, after, request.include_revoked)
        keys, last = cut(await self._store.page(within, listing), limit)
        answer = pb.ListApiKeysResponse(data=keys)
        if last is not None:
            answer.next_page = binding.write(Position(micros(last.created_at), last.id))
        return answer

    async def RevokeApiKey(
        self, request: pb.RevokeApiKeyRequest, context: Context
    ) -> pb.RevokeApiKeyResponse:
        """Revokes a key for good."""
        call = once(pb.RevokeApiKeyResponse, "api_key")
        key = await self._store.revoke(
            _within(request), request.api_key_id, self._clock.now(), call
        )
        if is_new(call, context):
            _log.info("api_key_revoked", key_id=key.id, key_workspace_id=key.workspace_id)
        return pb.RevokeApiKeyResponse(api_key=key)

    async def AuthenticateApiKey(
        self, request: pb.AuthenticateApiKeyRequest, _context: object
    ) -> pb.AuthenticateApiKeyResponse:
        """Which key has this digest."""
        key = await self._store.find(request.digest)
        if key is None:
            raise DroverError(Reason.UNAUTHENTICATED, "there is no such API key")
        return pb.AuthenticateApiKeyResponse(api_key=key)


def _within(request: _Scoped) -> str | None:
    """The workspace whose keys the call is about; all without one."""
    return None if request.every_workspace else current_call().workspace_id
