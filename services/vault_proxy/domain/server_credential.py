"""Credentials for MCP servers, opened for their use: never beyond this process."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from chassis.secret import Secret
    from drover.vault.v1.credential_pb2 import CredentialValidation

ClientAuth = Literal["none", "client_secret_basic", "client_secret_post"]
"""How a client authenticates to a token endpoint (RFC 6749 §2.3.1)."""


@dataclass(frozen=True, slots=True)
class BearerCredential:
    """A `static_bearer` credential."""

    id: str
    vault_id: str
    server_url: str
    token: Secret


@dataclass(frozen=True, slots=True)
class Refresh:
    """What gets an OAuth credential a new access token. `client_secret` goes with its methods."""

    client_id: str
    token_endpoint: str
    client_auth: ClientAuth
    client_secret: Secret | None
    refresh_token: Secret
    scope: str = ""
    resource: str = ""


@dataclass(frozen=True, slots=True)
class OauthCredential:
    """An `mcp_oauth` credential. `revision` counts its changes: each refresh is one."""

    id: str
    vault_id: str
    server_url: str
    access_token: Secret
    expires_at: datetime | None
    refresh: Refresh | None
    revision: int


@dataclass(frozen=True, slots=True)
class NewTokens:
    """What a token endpoint answered. Without a refresh token the old one stays good."""

    access_token: Secret
    expires_at: datetime | None
    refresh_token: Secret | None = None


ServerCredential = BearerCredential | OauthCredential


class ServerCredentials(Protocol):
    """Vaults, as MCP needs them."""

    async def for_server(
        self, workspace_id: str, vault_ids: Sequence[str], url: str
    ) -> ServerCredential | None:
        """The first match for the server's normalised URL, in the order of the vaults.

        As of now in this process; what another replica changed counts within a second. Raises
        UNAVAILABLE while the key provider does not answer.
        """
        ...

    async def latest(
        self, workspace_id: str, credential: ServerCredential
    ) -> ServerCredential | None:
        """The same credential as the database has it now; `None` once it is archived or deleted."""
        ...

    async def refreshed(
        self, workspace_id: str, credential: OauthCredential, tokens: NewTokens
    ) -> OauthCredential | None:
        """Keeps new tokens, durable on return: only then may they be used.

        Where the credential was changed since `credential` was read, what is stored stays, and is
        answered; `None` once it is archived or deleted.
        """
        ...


class CredentialProbe(Protocol):
    """Tries credentials against their servers."""

    async def validate(
        self, workspace_id: str, credential: OauthCredential
    ) -> CredentialValidation:
        """The outcome; ids and time are the caller's to set."""
        ...


class SessionSecrets(Protocol):
    """Secrets of sessions' resources, such as a repository's token."""

    async def of(self, workspace_id: str, session_id: str, resource_id: str) -> Secret | None:
        """The secret as it is now, or `None`."""
        ...
