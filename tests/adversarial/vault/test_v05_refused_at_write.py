"""V5: a secret with a line break, or any other control character, is never stored."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest

from chassis.errors import DroverError, Reason
from drover.vault.v1 import vault_credential_service_pb2 as pb
from services.vault_proxy.domain.credential import new_credential, updated_credential
from services.vault_proxy.vault.session_secrets import KeptSessionSecrets
from tests.doubles.vault import URL, VaultDouble

if TYPE_CHECKING:
    from collections.abc import Callable

NOW = datetime(2026, 11, 29, 12, tzinfo=UTC)
CANARY = "sk-canary-8Vq2"
CONTROLS = ["\r\nX-Admin: 1", "\n", "\r", "\0", "\t", "\x1b[2J", "\x7f", "\x85", "\u2028", "\u2029"]
REFRESH = {"client_id": "c", "token_endpoint": "https://auth.example.com/token"}


def variable(value: str) -> dict[str, Any]:
    return {
        "environment_variable": {
            "secret_name": "KEY",
            "secret_value": value,
            "networking": {"unrestricted": {}},
        }
    }


def oauth(access: str = "a", refresh: str = "r", client: str = "c") -> dict[str, Any]:
    auth = {"client_secret_basic": {"client_secret": client}}
    more = {"refresh_token": refresh, "token_endpoint_auth": auth}
    return {"mcp_oauth": {"mcp_server_url": URL, "access_token": access, "refresh": REFRESH | more}}


CREATIONS: dict[str, Callable[[str], dict[str, Any]]] = {
    "auth.token": lambda value: {"static_bearer": {"mcp_server_url": URL, "token": value}},
    "auth.secret_value": variable,
    "auth.access_token": lambda value: oauth(access=value),
    "auth.refresh.refresh_token": lambda value: oauth(refresh=value),
    "auth.refresh.token_endpoint_auth.client_secret": lambda value: oauth(client=value),
}

CHANGES: dict[str, Callable[[str], dict[str, Any]]] = {
    "auth.token": lambda value: {"static_bearer": {"token": value}},
    "auth.secret_value": lambda value: {"environment_variable": {"secret_value": value}},
    "auth.access_token": lambda value: {"mcp_oauth": {"access_token": value}},
    "auth.refresh.refresh_token": lambda value: {
        "mcp_oauth": {"refresh": {"refresh_token": value}}
    },
    "auth.refresh.token_endpoint_auth.client_secret": lambda value: {
        "mcp_oauth": {
            "refresh": {"token_endpoint_auth": {"client_secret_basic": {"client_secret": value}}}
        }
    },
}


def create(auth: dict[str, Any]) -> Any:
    return new_credential(pb.CreateCredentialRequest(vault_id="vlt_1", auth=auth), "vcrd_1", NOW)


@pytest.mark.parametrize("control", CONTROLS, ids=ascii)
@pytest.mark.parametrize("path", CREATIONS)
def test_no_credential_is_made_of_it_and_the_refusal_shows_none_of_it(
    path: str, control: str
) -> None:
    with pytest.raises(DroverError) as refused:
        create(CREATIONS[path](CANARY + control))
    assert refused.value.reason is Reason.INVALID_ARGUMENT
    assert refused.value.message.startswith(f"{path}: ")
    assert CANARY not in refused.value.message


@pytest.mark.parametrize("control", CONTROLS, ids=ascii)
@pytest.mark.parametrize("path", CHANGES)
def test_no_credential_is_changed_to_it_and_the_refusal_shows_none_of_it(
    path: str, control: str
) -> None:
    stored = create(CREATIONS[path]("fine")).credential
    request = pb.UpdateCredentialRequest(auth=CHANGES[path](CANARY + control))
    with pytest.raises(DroverError) as refused:
        updated_credential(stored, request, NOW)
    assert refused.value.message.startswith(f"{path}: ")
    assert CANARY not in refused.value.message


@pytest.mark.parametrize("value", ["a b", "ключ", "a\u00a0b"])
def test_a_token_for_a_header_is_visible_ascii(value: str) -> None:
    with pytest.raises(DroverError, match=r"auth\.token: must be visible ASCII"):
        create(CREATIONS["auth.token"](value))


@pytest.mark.parametrize("field", ["client_id", "scope", "resource"])
def test_what_goes_to_a_token_endpoint_beside_secrets_is_printable(field: str) -> None:
    auth = oauth()
    auth["mcp_oauth"]["refresh"][field] = "a\r\nb"
    with pytest.raises(DroverError, match=rf"auth\.refresh\.{field}: "):
        create(auth)


async def test_no_secret_of_a_session_is_kept_with_it() -> None:
    vault = VaultDouble()
    kept = KeptSessionSecrets(None, vault.envelopes, vault.clock)  # type: ignore[arg-type]
    with pytest.raises(
        DroverError, match="value: must not hold the control character U"
    ) as refused:
        await kept.put("wrkspc_home", "sesn_1", "sesrsc_1", f"{CANARY}\n")
    assert CANARY not in refused.value.message
