"""Tries a credential against its MCP server, for whoever saved it (ENDPOINTS, credentials)."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from mcp import MCPError

from chassis.errors import DroverError, Reason
from drover.vault.v1 import credential_pb2 as pb
from services.vault_proxy.mcp.connection import Connection
from services.vault_proxy.mcp.exchange import Exchange, Failure, Fault, McpError
from services.vault_proxy.mcp.greeting import Greeter
from services.vault_proxy.mcp.records import exchange_reason
from services.vault_proxy.oauth.endpoint import ExchangeError, ExchangeRefusedError
from services.vault_proxy.oauth.tokens import NoLongerThereError

if TYPE_CHECKING:
    from chassis.secret import Secret
    from services.vault_proxy.captured import Captured
    from services.vault_proxy.domain.server_credential import OauthCredential
    from services.vault_proxy.mcp.limits import Limits
    from services.vault_proxy.mcp.records import Records
    from services.vault_proxy.oauth.tokens import AccessTokens, Refreshed
    from services.vault_proxy.outbound import Outbound

_SECONDS: Final = 8.0
"""For each step, so that all of them take less than a caller waits."""
_ALL_SECONDS: Final = 25.0
_VALID = pb.CREDENTIAL_VALIDATION_STATUS_VALID
_INVALID = pb.CREDENTIAL_VALIDATION_STATUS_INVALID
_UNKNOWN = pb.CREDENTIAL_VALIDATION_STATUS_UNKNOWN


class LiveProbe:
    """Implements `CredentialProbe`: the stored token first, a refresh where that is refused."""

    def __init__(
        self,
        tokens: AccessTokens,
        outbound: Outbound,
        records: Records,
        *,
        tasks: asyncio.TaskGroup,
        limits: Limits,
    ) -> None:
        self._tokens = tokens
        self._outbound = outbound
        self._records = records
        self._task_group = tasks
        self._limits = replace(
            limits,
            connect_seconds=min(_SECONDS, limits.connect_seconds),
            greet_seconds=min(_SECONDS, limits.greet_seconds),
            idle_seconds=min(_SECONDS, limits.idle_seconds),
            call_seconds=min(_SECONDS, limits.call_seconds),
        )

    async def validate(
        self, workspace_id: str, credential: OauthCredential
    ) -> pb.CredentialValidation:
        """The outcome, without ids and time. Raises NOT_FOUND where it is deleted meanwhile."""
        found = pb.CredentialValidation(
            status=_UNKNOWN, has_refresh_token=credential.refresh is not None
        )
        try:
            async with asyncio.timeout(_ALL_SECONDS):
                reason = await self._validate(workspace_id, credential, found)
        except TimeoutError:
            found.status, reason = _UNKNOWN, Fault.BROKEN
        await self._records.probe(workspace_id, credential, credential.server_url, reason)
        return found

    async def _validate(
        self, workspace_id: str, credential: OauthCredential, found: pb.CredentialValidation
    ) -> str:
        """Why it is not valid, in the words of the audit trail; empty where it is."""
        failure = await self._tried(credential)
        found.status = _note(failure, found)
        if failure is None:
            return ""
        if failure.fault != Fault.UNAUTHENTICATED or _forbidden(failure):
            return failure.fault
        if credential.refresh is None:
            found.refresh.status = pb.REFRESH_STATUS_NO_REFRESH_TOKEN
            return failure.fault

        async def told(ended: Refreshed) -> None:
            await self._records.refresh(workspace_id, "", "", ended)

        try:
            renewed = await self._tokens.renewed(workspace_id, credential, told, insist=True)
        except NoLongerThereError as error:
            raise DroverError(Reason.NOT_FOUND, "the credential was deleted meanwhile") from error
        except ExchangeError as error:
            found.status = _not_renewed(error, found.refresh)
            return exchange_reason(error)
        found.refresh.status = pb.REFRESH_STATUS_SUCCEEDED
        found.ClearField("mcp_probe")
        found.status = _UNKNOWN  # should the time be up before the new token is tried
        failure = await self._tried(renewed)
        found.status = _note(failure, found)
        return failure.fault if failure is not None else ""

    async def _tried(self, credential: OauthCredential) -> Failure | None:
        """What goes wrong with the token that is stored, on a connection made for this alone."""
        bearer = _Fixed(credential.access_token)
        greeter = Greeter(credential.server_url, self._outbound, bearer, self._limits)
        connection = Connection(greeter, self._limits)
        running = self._task_group.create_task(connection.run(self._task_group))
        exchange = Exchange()
        try:
            async with asyncio.timeout(self._limits.call_seconds):
                await connection.opened()
                await connection.tools(exchange)
        except McpError as error:
            return error.failure
        except MCPError:
            return None  # an error in the server's own words: it let us ask
        except TimeoutError:
            return Failure(Fault.BROKEN, "the server took too long", "tools/list")
        finally:
            connection.close()
            await asyncio.wait({running}, timeout=self._limits.close_seconds)
            running.cancel()
        return None


class _Fixed:
    """A token that is tried as it is: see `transport.Bearer`."""

    def __init__(self, token: Secret) -> None:
        self._token = token

    async def token(self) -> Secret:
        return self._token

    async def another(self, _refused: Secret) -> None:
        return None


def _note(
    failure: Failure | None, found: pb.CredentialValidation
) -> pb.CredentialValidationStatus.ValueType:
    """Puts down the step that failed, and says what follows from it."""
    if failure is None:
        return _VALID
    found.mcp_probe.method = failure.method or "initialize"
    if failure.captured is not None:
        found.mcp_probe.http_response.CopyFrom(_shown(failure.captured))
    return _INVALID if failure.fault == Fault.UNAUTHENTICATED else _UNKNOWN


def _not_renewed(
    error: ExchangeError, told: pb.RefreshAttempt
) -> pb.CredentialValidationStatus.ValueType:
    told.status = pb.REFRESH_STATUS_CONNECT_ERROR
    if error.reply is not None:
        told.status = pb.REFRESH_STATUS_FAILED
        told.http_response.CopyFrom(_shown(error.reply.response))
    return _INVALID if isinstance(error, ExchangeRefusedError) else _UNKNOWN


def _forbidden(failure: Failure) -> bool:
    """A 403: the token is known, and another like it would get no further."""
    return failure.captured is not None and failure.captured.status == 403  # noqa: PLR2004


def _shown(captured: Captured) -> pb.CapturedResponse:
    return pb.CapturedResponse(
        status_code=captured.status,
        content_type=captured.content_type,
        body=captured.body,
        body_truncated=captured.truncated,
    )
