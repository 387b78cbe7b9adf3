"""The token that a connection sends: the session's credential for the server, as it is now."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from chassis.errors import DroverError
from services.vault_proxy.domain.server_credential import OauthCredential
from services.vault_proxy.mcp.exchange import Failure, Fault, McpError
from services.vault_proxy.oauth.endpoint import ExchangeError, ExchangeRefusedError
from services.vault_proxy.oauth.tokens import NoLongerThereError

if TYPE_CHECKING:
    from chassis.secret import Secret
    from services.vault_proxy.domain.server_credential import ServerCredential, ServerCredentials
    from services.vault_proxy.oauth.tokens import AccessTokens, Refreshed

Told = Callable[["Refreshed"], Awaitable[None]]


class SessionBearer:
    """See `transport.Bearer`. `credential` is looked up anew for every call, and set here."""

    def __init__(
        self,
        workspace_id: str,
        credentials: ServerCredentials,
        tokens: AccessTokens,
        told: Told,
    ) -> None:
        self._workspace_id = workspace_id
        self._credentials = credentials
        self._tokens = tokens
        self._told = told
        self.credential: ServerCredential | None = None

    async def token(self) -> Secret | None:
        """What to send now; a token that is about to expire is refreshed first."""
        credential = self.credential
        if not isinstance(credential, OauthCredential):
            return credential.token if credential is not None else None
        try:
            good = await self._tokens.good(self._workspace_id, credential, self._told)
        except (ExchangeError, DroverError) as error:
            raise McpError(meaning(error)) from error
        self._use(credential, good)
        return good.access_token

    async def another(self, refused: Secret) -> Secret | None:
        """A refreshed token, or the one that was saved since."""
        credential = self.credential
        if credential is None:
            return None
        try:
            if isinstance(credential, OauthCredential) and credential.refresh is not None:
                good = await self._tokens.renewed(self._workspace_id, credential, self._told)
                self._use(credential, good)
                return good.access_token
            latest = await self._credentials.latest(self._workspace_id, credential)
        except (ExchangeError, DroverError) as error:
            raise McpError(meaning(error)) from error
        if latest is None:
            return None
        found = latest.access_token if isinstance(latest, OauthCredential) else latest.token
        if found.matches(refused.open()):
            return None
        self._use(credential, latest)
        return found

    def _use(self, read: ServerCredential, newer: ServerCredential) -> None:
        """Goes on with a newer one, unless a call has brought another meanwhile."""
        if self.credential is read:
            self.credential = newer


def meaning(error: ExchangeError | DroverError) -> Failure:
    """What it means for a call that its token cannot be had."""
    if isinstance(error, DroverError):
        return Failure(Fault.NO_TOKEN, f"the credential cannot be read now: {error.message}")
    if isinstance(error, ExchangeRefusedError | NoLongerThereError):
        return Failure(Fault.UNAUTHENTICATED, error.message)
    return Failure(Fault.NO_TOKEN, error.message)
