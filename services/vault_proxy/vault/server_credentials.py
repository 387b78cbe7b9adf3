"""Credentials of MCP servers: found by URL, refreshed, opened for use."""

from __future__ import annotations

from datetime import UTC
from typing import TYPE_CHECKING, cast

from catalogue.hosts import HostError
from chassis.errors import DroverError, Reason
from drover.vault.v1.credential_pb2 import Credential
from services.vault_proxy.domain.credential import (
    ACCESS_TOKEN,
    CLIENT_SECRET,
    REFRESH_TOKEN,
    TOKEN,
    Written,
    key_of,
    url_key,
)
from services.vault_proxy.domain.server_credential import (
    BearerCredential,
    OauthCredential,
    Refresh,
)
from services.vault_proxy.domain.server_url import normalised
from services.vault_proxy.domain.vault_ports import StaleError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from chassis.secret import Secret
    from drover.vault.v1.credential_pb2 import McpOauthAuth
    from services.vault_proxy.domain.server_credential import (
        ClientAuth,
        NewTokens,
        ServerCredential,
    )
    from services.vault_proxy.domain.vault_ports import CredentialStore, Record
    from services.vault_proxy.vault.holdings import Holdings
    from services.vault_proxy.vault.safe import Safe


class VaultServerCredentials:
    """Implements `ServerCredentials`."""

    def __init__(self, store: CredentialStore, holdings: Holdings, safe: Safe) -> None:
        self._store = store
        self._holdings = holdings
        self._safe = safe

    async def for_server(
        self, workspace_id: str, vault_ids: Sequence[str], url: str
    ) -> ServerCredential | None:
        """The first match for the server's normalised URL, in the order of the vaults."""
        try:
            key = url_key(url)
        except HostError:
            return None  # no credential is for such a server
        for record in await self._holdings.records(workspace_id, vault_ids):
            if key_of(record.credential) == key:
                return await self._opened(workspace_id, record)
        return None

    async def latest(
        self, workspace_id: str, credential: ServerCredential
    ) -> ServerCredential | None:
        """The same credential as the database has it now; `None` once it is gone."""
        record = await self._load(workspace_id, credential)
        return None if record is None else await self._opened(workspace_id, record)

    async def refreshed(
        self, workspace_id: str, credential: OauthCredential, tokens: NewTokens
    ) -> OauthCredential | None:
        """Keeps new tokens; where the credential was changed meanwhile, what is stored stays."""
        read = await self._load(workspace_id, credential)
        if read is not None and read.revision == credential.revision:
            outcome = await self._safe.replacement(
                workspace_id, read, _with(read.credential, tokens)
            )
            try:
                with self._holdings.changing():
                    await self._store.replace(workspace_id, read, outcome)
            except (StaleError, DroverError) as error:
                if isinstance(error, DroverError) and error.reason is not Reason.NOT_FOUND:
                    raise
            read = await self._load(workspace_id, credential)
        if read is None:
            return None
        return cast("OauthCredential", await self._opened(workspace_id, read))

    async def _load(self, workspace_id: str, credential: ServerCredential) -> Record | None:
        try:
            record = await self._store.load(workspace_id, credential.vault_id, credential.id)
        except DroverError as error:
            if error.reason is Reason.NOT_FOUND:
                return None
            raise
        return None if record.credential.HasField("archived_at") else record

    async def _opened(self, workspace_id: str, record: Record) -> ServerCredential:
        return opened(record, await self._holdings.opened(workspace_id, record))


def opened(record: Record, secrets: Mapping[str, Secret]) -> ServerCredential:
    """A stored credential of an MCP server, with its secrets."""
    credential, auth = record.credential, record.credential.auth
    if auth.HasField("static_bearer"):
        url = normalised(auth.static_bearer.mcp_server_url)
        return BearerCredential(credential.id, credential.vault_id, url, secrets[TOKEN])
    oauth = auth.mcp_oauth
    expires = oauth.expires_at.ToDatetime(UTC) if oauth.HasField("expires_at") else None
    return OauthCredential(
        id=credential.id,
        vault_id=credential.vault_id,
        server_url=normalised(oauth.mcp_server_url),
        access_token=secrets[ACCESS_TOKEN],
        expires_at=expires,
        refresh=_refresh(oauth, secrets) if oauth.HasField("refresh") else None,
        revision=record.revision,
    )


def _refresh(auth: McpOauthAuth, secrets: Mapping[str, Secret]) -> Refresh:
    refresh = auth.refresh
    return Refresh(
        client_id=refresh.client_id,
        token_endpoint=refresh.token_endpoint,
        client_auth=cast("ClientAuth", refresh.token_endpoint_auth.WhichOneof("auth")),
        client_secret=secrets.get(CLIENT_SECRET),
        refresh_token=secrets[REFRESH_TOKEN],
        scope=refresh.scope,
        resource=refresh.resource,
    )


def _with(stored: Credential, tokens: NewTokens) -> Written:
    credential = Credential()
    credential.CopyFrom(stored)
    oauth = credential.auth.mcp_oauth
    oauth.ClearField("expires_at")
    if tokens.expires_at is not None:
        oauth.expires_at.FromDatetime(tokens.expires_at)
    secrets = {ACCESS_TOKEN: tokens.access_token}
    if tokens.refresh_token is not None:
        secrets[REFRESH_TOKEN] = tokens.refresh_token
    return Written(credential, secrets)
