"""Vaults and credentials, by the official client over the whole stack."""

from __future__ import annotations

import uuid
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import anthropic
import httpx2
import pytest

from tests.doubles.messages_api import text
from tests.e2e.driving import new_session, run_turn

if TYPE_CHECKING:
    from tests.e2e.stack import Stack

CANARY = "sk-canary-Zq7Xw1"
URL = "https://mcp.example.com/mcp"
BEARER: dict[str, Any] = {"type": "static_bearer", "mcp_server_url": URL, "token": CANARY}


def oauth(**more: Any) -> dict[str, Any]:
    return {
        "type": "mcp_oauth",
        "mcp_server_url": URL,
        "access_token": CANARY,
        "expires_at": datetime.now(UTC) + timedelta(hours=1),
        "refresh": {
            "client_id": "drover",
            "refresh_token": f"{CANARY}-refresh",
            "token_endpoint": "https://auth.example.com/token",
            "token_endpoint_auth": {
                "type": "client_secret_basic",
                "client_secret": f"{CANARY}-client",
            },
            "scope": "read",
        },
        **more,
    }


def variable(name: str = "STRIPE_KEY", **more: Any) -> dict[str, Any]:
    return {
        "type": "environment_variable",
        "secret_name": name,
        "secret_value": CANARY,
        "networking": {"type": "limited", "allowed_hosts": ["API.Stripe.com", "192.0.2.1"]},
        **more,
    }


@pytest.fixture
def client(stack: Stack) -> anthropic.Anthropic:
    return stack.client()


@pytest.fixture
def vault(client: anthropic.Anthropic) -> str:
    return client.beta.vaults.create(display_name="Ada").id


def test_vault_lives_from_its_creation_to_its_deletion(client: anthropic.Anthropic) -> None:
    vaults = client.beta.vaults
    made = vaults.create(display_name="Ada", metadata={"user": "7", "team": "a"})
    assert made.type == "vault"
    assert made.id.startswith("vlt_")
    assert made.archived_at is None
    changed = vaults.update(made.id, display_name="Grace", metadata={"team": None, "tier": "1"})
    assert changed.display_name == "Grace"
    assert changed.metadata == {"user": "7", "tier": "1"}
    assert vaults.retrieve(made.id) == changed
    assert made.id in [one.id for one in vaults.list()]
    archived = vaults.archive(made.id)
    assert archived.archived_at is not None
    assert made.id not in [one.id for one in vaults.list()]
    assert made.id in [one.id for one in vaults.list(include_archived=True, limit=1)]
    deleted = vaults.delete(made.id)
    assert (deleted.id, deleted.type) == (made.id, "vault_deleted")
    with pytest.raises(anthropic.NotFoundError):
        vaults.retrieve(made.id)


def test_credentials_of_each_kind_are_answered_without_their_secrets(
    client: anthropic.Anthropic, vault: str
) -> None:
    credentials = client.beta.vaults.credentials
    made = credentials.create(vault, auth=oauth(), display_name="MCP")
    assert made.auth.type == "mcp_oauth"
    assert made.auth.mcp_server_url == URL
    assert made.auth.expires_at is not None
    assert made.auth.refresh is not None
    assert made.auth.refresh.token_endpoint_auth.type == "client_secret_basic"
    assert made.auth.refresh.scope == "read"
    credentials.archive(made.id, vault_id=vault)
    bearer = credentials.create(vault, auth=BEARER)  # its key is free again
    assert bearer.auth.type == "static_bearer"
    secret = credentials.create(vault, auth=variable())
    assert secret.auth.type == "environment_variable"
    assert secret.auth.injection_location.model_dump() == {"body": True, "header": True}
    assert secret.auth.networking.type == "limited"
    assert secret.auth.networking.allowed_hosts == ["api.stripe.com", "192.0.2.1"]
    listed = list(credentials.list(vault, include_archived=True, limit=2))
    assert [one.id for one in listed] == [secret.id, bearer.id, made.id]
    assert [one.id for one in credentials.list(vault)] == [secret.id, bearer.id]
    assert credentials.retrieve(secret.id, vault_id=vault) == secret
    assert CANARY not in repr(listed)
    deleted = credentials.delete(secret.id, vault_id=vault)
    assert (deleted.id, deleted.type) == (secret.id, "vault_credential_deleted")


def test_update_merges_and_keeps_what_it_does_not_name(
    client: anthropic.Anthropic, vault: str
) -> None:
    credentials = client.beta.vaults.credentials
    made = credentials.create(vault, auth=variable(), metadata={"a": "1"})
    changed = credentials.update(
        made.id,
        vault_id=vault,
        display_name="Stripe",
        metadata={"b": "2"},
        auth={
            "type": "environment_variable",
            "secret_value": "other",
            "networking": {"type": "unrestricted"},
            "injection_location": {"body": False},
        },
    )
    assert changed.display_name == "Stripe"
    assert changed.metadata == {"a": "1", "b": "2"}
    assert changed.auth.type == "environment_variable"
    assert changed.auth.networking.type == "unrestricted"
    assert changed.auth.injection_location.model_dump() == {"body": False, "header": True}
    assert changed.updated_at > made.updated_at
    with pytest.raises(anthropic.BadRequestError, match=r"auth\.injection_location"):
        credentials.update(
            made.id,
            vault_id=vault,
            auth={"type": "environment_variable", "injection_location": {"header": False}},
        )
    with pytest.raises(anthropic.BadRequestError, match=r"auth\.type"):
        credentials.update(made.id, vault_id=vault, auth={"type": "static_bearer", "token": "x"})


def test_oauth_update_rotates_tokens_and_never_adds_refresh(
    client: anthropic.Anthropic, vault: str
) -> None:
    credentials = client.beta.vaults.credentials
    made = credentials.create(vault, auth=oauth())
    later = datetime.now(UTC) + timedelta(hours=2)
    changed = credentials.update(
        made.id,
        vault_id=vault,
        auth={
            "type": "mcp_oauth",
            "access_token": "next",
            "expires_at": later,
            "refresh": {
                "refresh_token": "next",
                "scope": "",
                "token_endpoint_auth": {"type": "client_secret_post", "client_secret": "next"},
            },
        },
    )
    assert changed.auth.type == "mcp_oauth"
    assert changed.auth.refresh is not None
    assert changed.auth.refresh.scope is None
    assert changed.auth.refresh.token_endpoint_auth.type == "client_secret_basic"
    assert changed.auth.expires_at is not None
    assert abs(changed.auth.expires_at - later) < timedelta(seconds=1)
    credentials.delete(made.id, vault_id=vault)
    bare = credentials.create(vault, auth=oauth(refresh=None, expires_at=None))
    assert bare.auth.type == "mcp_oauth"
    assert (bare.auth.expires_at, bare.auth.refresh) == (None, None)
    with pytest.raises(anthropic.BadRequestError, match=r"auth\.refresh"):
        credentials.update(
            bare.id, vault_id=vault, auth={"type": "mcp_oauth", "refresh": {"refresh_token": "x"}}
        )


@pytest.mark.parametrize(
    ("auth", "path"),
    [
        (BEARER | {"token": f"{CANARY}\r\nx: y"}, "auth.token"),
        (BEARER | {"mcp_server_url": "ftp://a"}, "auth.mcp_server_url"),
        (BEARER | {"mcp_server_url": "https://u:p@a.example"}, "auth.mcp_server_url"),
        (oauth(expires_at="2020-01-01T00:00:00Z"), "auth.expires_at"),
        (variable("1X"), "auth.secret_name"),
        (variable("PATH"), "auth.secret_name"),
        (variable("https_proxy"), "auth.secret_name"),
        (variable(injection_location=None), "auth.injection_location"),
        (variable(injection_location={}), "auth.injection_location"),
        (variable(networking={"type": "limited", "allowed_hosts": []}), "auth.networking"),
        (
            variable(networking={"type": "limited", "allowed_hosts": ["a.example:443"]}),
            "auth.networking.allowed_hosts.0",
        ),
        (
            variable(networking={"type": "limited", "allowed_hosts": ["::1"]}),
            "auth.networking.allowed_hosts.0",
        ),
        (
            variable(networking={"type": "limited", "allowed_hosts": ["*.com"]}),
            "auth.networking.allowed_hosts.0",
        ),
        (
            variable(networking={"type": "limited", "allowed_hosts": ["a.example"] * 17}),
            "auth.networking.allowed_hosts",
        ),
    ],
)
def test_what_no_credential_may_be_is_refused_by_its_path(
    client: anthropic.Anthropic, vault: str, auth: Any, path: str
) -> None:
    with pytest.raises(anthropic.BadRequestError) as refused:
        client.beta.vaults.credentials.create(vault, auth=auth)
    assert path in str(refused.value)
    assert CANARY not in str(refused.value)


def test_keys_are_unique_among_active_ones_and_a_vault_holds_twenty(
    client: anthropic.Anthropic, vault: str
) -> None:
    credentials = client.beta.vaults.credentials
    credentials.create(vault, auth=BEARER)
    for taken in (BEARER | {"mcp_server_url": "HTTPS://MCP.example.com:443/mcp/"}, oauth()):
        with pytest.raises(anthropic.ConflictError):
            credentials.create(vault, auth=taken)  # type: ignore[arg-type]
    for number in range(19):
        credentials.create(vault, auth=variable(f"KEY_{number}"))
    with pytest.raises(anthropic.BadRequestError, match=r"at most 20.*: archive or delete one"):
        credentials.create(vault, auth=variable("ONE_MORE"))


def test_archived_vault_takes_nothing_new_and_its_credentials_are_archived(
    client: anthropic.Anthropic, vault: str
) -> None:
    made = client.beta.vaults.credentials.create(vault, auth=variable())
    client.beta.vaults.archive(vault)
    found = client.beta.vaults.credentials.retrieve(made.id, vault_id=vault)
    assert found.archived_at is not None
    with pytest.raises(anthropic.BadRequestError, match="archived"):
        client.beta.vaults.credentials.create(vault, auth=BEARER)
    with pytest.raises(anthropic.BadRequestError, match="archived"):
        client.beta.vaults.update(vault, display_name="x")
    with pytest.raises(anthropic.BadRequestError, match="archived"):
        client.beta.vaults.credentials.update(made.id, vault_id=vault, display_name="x")


def test_validation_is_of_oauth_credentials_alone(client: anthropic.Anthropic, vault: str) -> None:
    credentials = client.beta.vaults.credentials
    made = credentials.create(vault, auth=variable())
    with pytest.raises(anthropic.BadRequestError, match="mcp_oauth"):
        credentials.mcp_oauth_validate(made.id, vault_id=vault)
    purged = credentials.create(vault, auth=oauth())
    credentials.archive(purged.id, vault_id=vault)
    found = credentials.mcp_oauth_validate(purged.id, vault_id=vault)
    assert (found.type, found.status) == ("vault_credential_validation", "invalid")
    assert (found.mcp_probe, found.refresh, found.has_refresh_token) == (None, None, False)


def test_session_names_vaults_and_goes_on_when_one_is_archived(
    stack: Stack, client: anthropic.Anthropic, vault: str
) -> None:
    other = client.beta.vaults.create(display_name="Other").id
    session = new_session(client, vault_ids=[other, vault])
    assert session.vault_ids == [other, vault]
    with pytest.raises(anthropic.NotFoundError, match="vlt_unknown"):
        new_session(client, vault_ids=[vault, "vlt_unknown"])
    client.beta.vaults.archive(vault)
    with pytest.raises(anthropic.BadRequestError, match="archived"):
        new_session(client, vault_ids=[vault])
    assert client.beta.sessions.retrieve(session.id).vault_ids == [other, vault]
    with pytest.raises(anthropic.BadRequestError, match="vault_ids"):
        client.beta.sessions.update(session.id, vault_ids=[other])
    stack.model.script(text("still here"))
    assert run_turn(client, session.id, "Hello?")[-1].type == "session.status_idle"


def test_variables_are_refused_to_sessions_whose_workers_would_not_get_them(
    client: anthropic.Anthropic, vault: str
) -> None:
    environment = client.beta.environments.create(
        name=f"workers {uuid.uuid4().hex}", config={"type": "self_hosted"}
    )
    made = client.beta.vaults.credentials.create(vault, auth=variable())
    client.beta.vaults.credentials.create(vault, auth=BEARER)
    session = new_session(client, vault_ids=[vault])

    def begin() -> Any:
        return client.beta.sessions.create(
            agent=session.agent.id, environment_id=environment.id, vault_ids=[vault]
        )

    with pytest.raises(anthropic.BadRequestError) as refused:
        begin()
    assert all(one in str(refused.value) for one in (vault, made.id, "STRIPE_KEY"))
    assert CANARY not in str(refused.value)
    client.beta.vaults.credentials.archive(made.id, vault_id=vault)
    assert begin().vault_ids == [vault]


def test_repeated_creation_makes_one_credential(stack: Stack, vault: str) -> None:
    path = f"{stack.url}/v1/vaults/{vault}/credentials"
    headers = stack.headers | {"Idempotency-Key": f"once-{vault}"}
    first, second = (
        httpx2.post(path, json={"auth": BEARER}, headers=headers, timeout=60) for _ in range(2)
    )
    assert first.status_code == 200, first.text
    assert first.json() == second.json()
    assert second.headers["idempotent-replayed"] == "true"
    changed = httpx2.post(
        path, json={"auth": BEARER | {"token": "other"}}, headers=headers, timeout=60
    )
    assert changed.status_code == 409
    assert CANARY not in changed.text + first.text
