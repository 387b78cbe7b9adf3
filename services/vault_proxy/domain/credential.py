"""A credential's life: made and changed. What is told of it and its secrets are kept apart.

The kind, the key (an MCP server's URL, a variable's name), the token endpoint and the client id
never change (SEMANTICS §9).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from catalogue.resources.metadata import merge
from catalogue.resources.presence import given
from chassis.errors import DroverError, Reason
from drover.vault.v1.credential_pb2 import (
    Credential,
    CredentialAuth,
    CredentialNetworking,
    EnvironmentVariableAuth,
    McpOauthAuth,
    OauthRefresh,
)
from services.vault_proxy.domain import written
from services.vault_proxy.domain.missing import credential_archived
from services.vault_proxy.domain.server_url import normalised
from services.vault_proxy.domain.written import refuse

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

    from google.protobuf.timestamp_pb2 import Timestamp

    from chassis.secret import Secret
    from drover.vault.v1.secret_pb2 import (
        ChangedAuth,
        ChangedEnvironmentVariable,
        ChangedMcpOauth,
        ChangedOauthRefresh,
        NewAuth,
        NewEnvironmentVariable,
        NewMcpOauth,
        NewOauthRefresh,
        WantedInjection,
    )
    from drover.vault.v1.vault_credential_service_pb2 import (
        CreateCredentialRequest,
        UpdateCredentialRequest,
    )

MAX_CREDENTIALS: Final = 20
"""Active ones that a vault holds (SEMANTICS §9)."""

# Names of secrets.
ACCESS_TOKEN: Final = "access_token"  # noqa: S105
REFRESH_TOKEN: Final = "refresh_token"  # noqa: S105
CLIENT_SECRET: Final = "client_secret"  # noqa: S105
TOKEN: Final = "token"  # noqa: S105
SECRET_VALUE: Final = "secret_value"  # noqa: S105

_PLACES: Final = ("header", "body")


@dataclass(frozen=True, slots=True)
class Written:
    """A credential as it is to be kept, and those of its secrets that are new."""

    credential: Credential
    secrets: Mapping[str, Secret]


def new_credential(request: CreateCredentialRequest, credential_id: str, now: datetime) -> Written:
    """The credential that `request` describes. Raises INVALID_ARGUMENT."""
    auth, secrets = _new_auth(request.auth, now)
    credential = Credential(
        id=credential_id,
        vault_id=request.vault_id,
        display_name=request.display_name if request.HasField("display_name") else None,
        metadata=request.metadata,
        auth=auth,
    )
    credential.created_at.FromDatetime(now)
    credential.updated_at.FromDatetime(now)
    return Written(credential, secrets)


def updated_credential(
    stored: Credential, request: UpdateCredentialRequest, now: datetime
) -> Written:
    """`stored` with what `request` gives, or `stored` itself where that changes nothing.

    Raises ARCHIVED, and INVALID_ARGUMENT for another kind and for what is not accepted.
    """
    if stored.HasField("archived_at"):
        raise credential_archived(stored.id)
    named = given(request)
    credential = Credential()
    credential.CopyFrom(stored)
    secrets: dict[str, Secret] = {}
    if "display_name" in named:
        credential.ClearField("display_name")
        if request.HasField("display_name"):
            credential.display_name = request.display_name
    if "metadata" in named:
        if not request.HasField("metadata"):
            credential.metadata.clear()
        merge(credential.metadata, request.metadata)
    if "auth" in named and request.HasField("auth"):
        secrets = _change_auth(credential.auth, request.auth, now)
    if credential == stored and not secrets:
        return Written(stored, {})
    credential.updated_at.FromDatetime(now)
    return Written(credential, secrets)


def key_of(credential: Credential) -> str:
    """What no two active credentials of a vault share: the server, or the variable's name."""
    match credential.auth.WhichOneof("auth"):
        case "environment_variable":
            return f"name {credential.auth.environment_variable.secret_name}"
        case "static_bearer":
            return url_key(credential.auth.static_bearer.mcp_server_url)
        case _:
            return url_key(credential.auth.mcp_oauth.mcp_server_url)


def url_key(url: str) -> str:
    """The key of a credential for an MCP server. Raises `catalogue.hosts.HostError`."""
    return f"url {normalised(url)}"


def key_taken(credential: Credential) -> DroverError:
    """ALREADY_EXISTS where an active credential of the vault has the key."""
    kind = credential.auth.WhichOneof("auth")
    what = "secret_name" if kind == "environment_variable" else "mcp_server_url"
    return DroverError(
        Reason.ALREADY_EXISTS,
        f"auth.{what}: the vault has an active credential for it: archive or delete that first",
    )


def vault_full() -> DroverError:
    """INVALID_ARGUMENT for one credential too many."""
    return DroverError(
        Reason.INVALID_ARGUMENT,
        f"a vault holds at most {MAX_CREDENTIALS} active credentials: archive or delete one first",
    )


# ---- new ----


def _new_auth(auth: NewAuth, now: datetime) -> tuple[CredentialAuth, dict[str, Secret]]:
    told = CredentialAuth()
    match auth.WhichOneof("auth"):
        case "mcp_oauth":
            return told, _new_oauth(told.mcp_oauth, auth.mcp_oauth, now)
        case "static_bearer":
            wanted = auth.static_bearer
            told.static_bearer.mcp_server_url = written.url(
                "auth.mcp_server_url", wanted.mcp_server_url
            )
            return told, {TOKEN: written.bearer("auth.token", wanted.token)}
        case _:
            return told, _new_variable(told.environment_variable, auth.environment_variable)


def _new_oauth(told: McpOauthAuth, wanted: NewMcpOauth, now: datetime) -> dict[str, Secret]:
    told.mcp_server_url = written.url("auth.mcp_server_url", wanted.mcp_server_url)
    secrets = {ACCESS_TOKEN: written.bearer("auth.access_token", wanted.access_token)}
    if wanted.HasField("expires_at"):
        told.expires_at.CopyFrom(_future(wanted.expires_at, now))
    if wanted.HasField("refresh"):
        secrets |= _new_refresh(told.refresh, wanted.refresh)
    return secrets


def _new_refresh(told: OauthRefresh, wanted: NewOauthRefresh) -> dict[str, Secret]:
    path = "auth.refresh"
    told.client_id = written.printable(f"{path}.client_id", wanted.client_id)
    told.token_endpoint = written.url(f"{path}.token_endpoint", wanted.token_endpoint)
    if wanted.HasField("scope"):
        told.scope = written.printable(f"{path}.scope", wanted.scope)
    if wanted.HasField("resource"):
        told.resource = written.printable(f"{path}.resource", wanted.resource)
    secrets = {
        REFRESH_TOKEN: written.secret(f"{path}.refresh_token", wanted.refresh_token),
    }
    kind = wanted.token_endpoint_auth.WhichOneof("auth")
    if kind == "none":
        told.token_endpoint_auth.none.SetInParent()
        return secrets
    if kind == "client_secret_basic":
        told.token_endpoint_auth.client_secret_basic.SetInParent()
        given_secret = wanted.token_endpoint_auth.client_secret_basic.client_secret
    else:
        told.token_endpoint_auth.client_secret_post.SetInParent()
        given_secret = wanted.token_endpoint_auth.client_secret_post.client_secret
    where = f"{path}.token_endpoint_auth.client_secret"
    return secrets | {CLIENT_SECRET: written.secret(where, given_secret)}


def _new_variable(
    told: EnvironmentVariableAuth, wanted: NewEnvironmentVariable
) -> dict[str, Secret]:
    told.secret_name = written.variable("auth.secret_name", wanted.secret_name)
    _set_networking(told.networking, wanted.networking)
    both = not wanted.HasField("injection_location")
    told.injection_location.header = told.injection_location.body = both
    _merge_places(told, wanted.injection_location)
    return {SECRET_VALUE: written.secret("auth.secret_value", wanted.secret_value)}


# ---- changed ----


def _change_auth(told: CredentialAuth, wanted: ChangedAuth, now: datetime) -> dict[str, Secret]:
    kind, wanted_kind = told.WhichOneof("auth"), wanted.WhichOneof("auth")
    if kind != wanted_kind:
        refuse("auth.type", f"cannot be changed from {kind} to {wanted_kind}")
    if kind == "mcp_oauth":
        return _change_oauth(told.mcp_oauth, wanted.mcp_oauth, now)
    if kind == "environment_variable":
        return _change_variable(told.environment_variable, wanted.environment_variable)
    if wanted.static_bearer.HasField("token"):
        return {TOKEN: written.bearer("auth.token", wanted.static_bearer.token)}
    return {}


def _change_oauth(told: McpOauthAuth, wanted: ChangedMcpOauth, now: datetime) -> dict[str, Secret]:
    secrets: dict[str, Secret] = {}
    if wanted.HasField("access_token"):
        secrets[ACCESS_TOKEN] = written.bearer("auth.access_token", wanted.access_token)
    if "expires_at" in given(wanted):
        told.ClearField("expires_at")
        if wanted.HasField("expires_at"):
            told.expires_at.CopyFrom(_future(wanted.expires_at, now))
    if wanted.HasField("refresh"):
        if not told.HasField("refresh"):
            refuse(
                "auth.refresh",
                "the credential was created without refresh, which cannot be added: create another",
            )
        secrets |= _change_refresh(told.refresh, wanted.refresh)
    return secrets


def _change_refresh(told: OauthRefresh, wanted: ChangedOauthRefresh) -> dict[str, Secret]:
    path = "auth.refresh"
    secrets: dict[str, Secret] = {}
    if wanted.HasField("refresh_token"):
        token = written.secret(f"{path}.refresh_token", wanted.refresh_token)
        secrets[REFRESH_TOKEN] = token
    if wanted.HasField("scope"):
        told.ClearField("scope")
        if wanted.scope:
            told.scope = written.printable(f"{path}.scope", wanted.scope)
    if not wanted.HasField("token_endpoint_auth"):
        return secrets
    if told.token_endpoint_auth.HasField("none"):
        refuse(f"{path}.token_endpoint_auth", "the credential has no client secret to replace")
    auth = wanted.token_endpoint_auth
    chosen = (
        auth.client_secret_basic
        if auth.HasField("client_secret_basic")
        else auth.client_secret_post
    )
    if chosen.HasField("client_secret"):
        where = f"{path}.token_endpoint_auth.client_secret"
        secrets[CLIENT_SECRET] = written.secret(where, chosen.client_secret)
    return secrets


def _change_variable(
    told: EnvironmentVariableAuth, wanted: ChangedEnvironmentVariable
) -> dict[str, Secret]:
    if wanted.HasField("networking"):
        _set_networking(told.networking, wanted.networking)
    if wanted.HasField("injection_location"):
        _merge_places(told, wanted.injection_location)
    if wanted.HasField("secret_value"):
        return {SECRET_VALUE: written.secret("auth.secret_value", wanted.secret_value)}
    return {}


# ---- both ----


def _set_networking(told: CredentialNetworking, wanted: CredentialNetworking) -> None:
    if wanted.HasField("unrestricted"):
        told.unrestricted.SetInParent()
        return
    hosts = written.hosts("auth.networking.allowed_hosts", wanted.limited.allowed_hosts)
    told.limited.ClearField("allowed_hosts")
    told.limited.allowed_hosts.extend(hosts)


def _merge_places(told: EnvironmentVariableAuth, wanted: WantedInjection) -> None:
    for place in _PLACES:
        if wanted.HasField(place):
            setattr(told.injection_location, place, getattr(wanted, place))
    if not (told.injection_location.header or told.injection_location.body):
        refuse("auth.injection_location", "header or body must be true, or both")


def _future(time: Timestamp, now: datetime) -> Timestamp:
    if time.seconds + time.nanos / 1e9 <= now.timestamp():
        refuse("auth.expires_at", "must be in the future")
    return time
