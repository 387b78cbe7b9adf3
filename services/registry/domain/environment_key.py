"""Keys of self-hosted environments: made, told by their digests, never kept."""

from __future__ import annotations

import hashlib
import secrets
from typing import TYPE_CHECKING, Final, NamedTuple

from chassis.errors import DroverError, Reason
from drover.environment.v1.environment_key_pb2 import EnvironmentKey

if TYPE_CHECKING:
    from datetime import datetime

    from drover.environment.v1.environment_key_service_pb2 import CreateEnvironmentKeyRequest
    from drover.environment.v1.environment_pb2 import Environment

PREFIX: Final = "drover_env_"
"""What every key begins with: the gateway tells kinds of keys by it."""

_BYTES: Final = 32
_HINT: Final = 4


class Holder(NamedTuple):
    """Who holds a key that opens something."""

    workspace_id: str
    environment_id: str
    key_id: str


def draw() -> str:
    """A new key, which nobody can guess."""
    return PREFIX + secrets.token_urlsafe(_BYTES)


def digest(key: str) -> bytes:
    """What is kept of a key and looked up. It has too many values for a search, salted or not."""
    return hashlib.sha256(key.encode()).digest()


def new_environment_key(
    request: CreateEnvironmentKeyRequest, key: str, key_id: str, now: datetime
) -> EnvironmentKey:
    """What is kept of `key` under `key_id`, without the key itself."""
    made = EnvironmentKey(
        id=key_id,
        environment_id=request.environment_id,
        name=request.name if request.HasField("name") else None,
        hint=key[-_HINT:],
    )
    made.created_at.FromDatetime(now)
    return made


def refuse_keyless(environment: Environment) -> None:
    """Raises INVALID_ARGUMENT where Drover makes the sandboxes: no worker has anything to do there.

    An archived environment takes keys: its sessions go on, and need their workers.
    """
    if not environment.config.HasField("self_hosted"):
        raise DroverError(
            Reason.INVALID_ARGUMENT,
            f"environment_id: environment {environment.id} is of the kind cloud, "
            "only self_hosted ones have workers and keys for them",
        )
