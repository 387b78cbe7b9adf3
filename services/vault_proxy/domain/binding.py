"""To whom a credential's secrets may go: authenticated with them, so that nothing can widen it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from services.vault_proxy.domain.server_url import normalised

if TYPE_CHECKING:
    from drover.vault.v1.credential_pb2 import CredentialAuth, EnvironmentVariableAuth, OauthRefresh


def binding(auth: CredentialAuth) -> tuple[str, ...]:
    """All of `auth` that decides where a secret is sent and in which form, in one order.

    A change of one of these texts is a change of what every stored secret is sealed for: it takes a
    new kind of `Place`, and a migration.
    """
    match auth.WhichOneof("auth"):
        case "environment_variable":
            return ("environment_variable", *_variable(auth.environment_variable))
        case "static_bearer":
            return ("static_bearer", normalised(auth.static_bearer.mcp_server_url))
        case _:
            refresh = _refresh(auth.mcp_oauth.refresh) if auth.mcp_oauth.HasField("refresh") else ()
            return ("mcp_oauth", normalised(auth.mcp_oauth.mcp_server_url), *refresh)


def _variable(auth: EnvironmentVariableAuth) -> tuple[str, ...]:
    networking = auth.networking.WhichOneof("networking") or ""
    places = [place for place in ("header", "body") if getattr(auth.injection_location, place)]
    hosts = sorted(auth.networking.limited.allowed_hosts)
    return auth.secret_name, ",".join(places), networking, *hosts


def _refresh(refresh: OauthRefresh) -> tuple[str, ...]:
    kind = refresh.token_endpoint_auth.WhichOneof("auth") or ""
    return refresh.token_endpoint, refresh.client_id, kind, refresh.resource, refresh.scope
