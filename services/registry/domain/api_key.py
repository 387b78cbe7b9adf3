"""API keys of workspaces: made, told by their digests, never kept."""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING, Final

from chassis.errors import DroverError, Reason
from drover.key.v1.api_key_pb2 import ApiKey

if TYPE_CHECKING:
    from datetime import datetime

    from drover.key.v1.api_key_service_pb2 import CreateApiKeyRequest

PREFIX: Final = "drover_api_"
"""What every key begins with: the gateway tells kinds of keys by it."""

_BYTES: Final = 32
_HINT: Final = 4


def draw() -> str:
    """A new key, which nobody can guess."""
    return PREFIX + secrets.token_urlsafe(_BYTES)


def new_api_key(
    request: CreateApiKeyRequest, workspace_id: str, key: str, key_id: str, now: datetime
) -> ApiKey:
    """What is kept of `key` under `key_id`, without the key itself.

    Raises INVALID_ARGUMENT for one that would have expired.
    """
    made = ApiKey(
        id=key_id,
        name=request.name if request.HasField("name") else None,
        workspace_id=workspace_id,
        scopes=request.scopes,
        hint=key[-_HINT:],
    )
    made.created_at.FromDatetime(now)
    if request.HasField("requests_per_minute"):
        made.requests_per_minute = request.requests_per_minute
    if request.HasField("expires_at"):
        ends = request.expires_at
        try:
            ends.ToJsonString()
        except ValueError:
            raise DroverError(Reason.INVALID_ARGUMENT, "expires_at: is no time") from None
        if (ends.seconds, ends.nanos) <= (made.created_at.seconds, made.created_at.nanos):
            raise DroverError(Reason.INVALID_ARGUMENT, "expires_at: must be in the future")
        made.expires_at.CopyFrom(ends)
    return made
