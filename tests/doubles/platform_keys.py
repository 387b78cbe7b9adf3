"""The registry's API keys behind the gateway, in memory."""

from __future__ import annotations

import asyncio
import hashlib
from datetime import datetime
from typing import Any

from chassis.errors import DroverError, Reason
from drover.key.v1 import api_key_service_pb2 as pb
from drover.key.v1 import api_key_service_pb2_grpc as grpc
from drover.key.v1.api_key_pb2 import ApiKey
from tests.doubles.asked import Asked, stamp


class StoredApiKeys(Asked, grpc.ApiKeyServiceServicer):
    """`stored` are those that were made, by their texts; it tells of them while `answering`."""

    def __init__(self) -> None:
        super().__init__()
        self.stored: dict[str, ApiKey] = {}
        self.answering = asyncio.Event()
        self.answering.set()

    def add(
        self,
        text: str,
        *scopes: str,
        workspace_id: str = "wrkspc_default",
        expires_at: datetime | None = None,
        **fields: Any,
    ) -> ApiKey:
        """A key that was made."""
        made = ApiKey(
            id=f"apikey_{len(self.stored) + 1}", workspace_id=workspace_id, scopes=scopes, **fields
        )
        made.created_at.CopyFrom(stamp())
        if expires_at is not None:
            made.expires_at.FromDatetime(expires_at)
        self.stored[text] = made
        return made

    def revoke(self, text: str) -> None:
        self.stored[text].revoked_at.CopyFrom(stamp())

    @property
    def asked(self) -> int:
        """How many keys were asked about."""
        return sum(isinstance(one, pb.AuthenticateApiKeyRequest) for one in self.requests)

    async def CreateApiKey(self, request, context):
        self.note(request)
        return pb.CreateApiKeyResponse(api_key=self._key(key="drover_api_x"))

    async def GetApiKey(self, request, context):
        self.note(request)
        return pb.GetApiKeyResponse(api_key=self._key())

    async def ListApiKeys(self, request, context):
        self.note(request)
        return pb.ListApiKeysResponse(data=[self._key()])

    async def RevokeApiKey(self, request, context):
        self.note(request)
        return pb.RevokeApiKeyResponse(api_key=self._key(revoked_at=stamp()))

    async def AuthenticateApiKey(self, request, context):
        self.note(request)
        await self.answering.wait()
        for text, key in self.stored.items():
            if hashlib.sha256(text.encode()).digest() == request.digest:
                return pb.AuthenticateApiKeyResponse(api_key=key)
        raise DroverError(Reason.UNAUTHENTICATED, "there is no such API key")

    @staticmethod
    def _key(**fields: Any) -> ApiKey:
        made = ApiKey(id="apikey_1", workspace_id="wrkspc_default", scopes=["write"], **fields)
        made.created_at.CopyFrom(stamp())
        return made
