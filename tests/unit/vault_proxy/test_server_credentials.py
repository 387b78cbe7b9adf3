from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta

import pytest

from chassis.secret import Secret
from services.vault_proxy.domain.server_credential import (
    BearerCredential,
    NewTokens,
    OauthCredential,
    ServerCredential,
)
from services.vault_proxy.domain.server_url import normalised
from tests.doubles.vault import HOME, URL, VaultDouble, bearer, oauth, variable

SOON = datetime(2030, 1, 1, tzinfo=UTC)


@pytest.fixture
async def vault() -> VaultDouble:
    vault = VaultDouble()
    for vault_id in ("vlt_1", "vlt_2"):
        await vault.new_vault(vault_id)
    return vault


def token(found: ServerCredential | None) -> str:
    assert isinstance(found, BearerCredential)
    return found.token.open()


async def oauth_in(vault: VaultDouble) -> OauthCredential:
    await vault.add("vlt_1", **oauth("access-1", "refresh-1"))
    found = await vault.servers.for_server(HOME, ["vlt_1"], URL)
    assert isinstance(found, OauthCredential)
    return found


@pytest.mark.parametrize(
    ("url", "same"),
    [
        ("https://mcp.example.com/mcp", True),
        ("HTTPS://MCP.Example.COM:443/mcp/", True),
        ("https://mcp.example.com/MCP", False),
        ("https://mcp.example.com/mcp?tenant=1", False),
        ("https://mcp.example.com:8443/mcp", False),
        ("http://mcp.example.com/mcp", False),
        ("https://example.com/mcp", False),
        ("https://a.mcp.example.com/mcp", False),
        ("https://mcp.example.com/mcp/sse", False),
        ("https://mcp.example.com@evil.example/mcp", False),
        ("not a url", False),
    ],
)
async def test_credential_is_found_by_the_normal_form_of_its_url(
    vault: VaultDouble, url: str, same: bool
) -> None:
    await vault.add("vlt_1", **bearer("t"))
    found = await vault.servers.for_server(HOME, ["vlt_1"], url)
    assert (found is not None) is same


def test_normal_form_is_its_own() -> None:
    for url in ("HTTP://a.example:80/x/", "https://A.example", "https://[2001:DB8::1]:443/"):
        assert normalised(normalised(url)) == normalised(url)
    assert normalised("https://A.example:443/") == "https://a.example"


async def test_first_vault_with_a_match_counts(vault: VaultDouble) -> None:
    await vault.add("vlt_1", **variable("KEY", "v"))
    await vault.add("vlt_2", **bearer("second"))
    assert token(await vault.servers.for_server(HOME, ["vlt_1", "vlt_2"], URL)) == "second"
    await vault.add("vlt_1", **bearer("first"))
    assert token(await vault.servers.for_server(HOME, ["vlt_1", "vlt_2"], URL)) == "first"
    assert token(await vault.servers.for_server(HOME, ["vlt_2", "vlt_1"], URL)) == "second"
    assert await vault.servers.for_server("wrkspc_other", ["vlt_1"], URL) is None


async def test_oauth_credential_is_opened_with_all_that_a_refresh_needs(
    vault: VaultDouble,
) -> None:
    found = await oauth_in(vault)
    assert found.access_token.open() == "access-1"
    assert found.expires_at is None
    assert found.refresh is not None
    assert found.refresh.client_auth == "client_secret_post"
    assert found.refresh.client_secret is not None
    assert found.refresh.client_secret.open() == "client"
    assert found.refresh.refresh_token.open() == "refresh-1"
    assert "refresh-1" not in repr(found)


async def test_new_tokens_are_kept_and_an_unnamed_refresh_token_stays(vault: VaultDouble) -> None:
    found = await oauth_in(vault)
    kept = await vault.servers.refreshed(HOME, found, NewTokens(Secret("access-2"), SOON))
    assert kept is not None
    assert (kept.access_token.open(), kept.expires_at) == ("access-2", SOON)
    assert kept.refresh is not None
    assert kept.refresh.refresh_token.open() == "refresh-1"
    rotated = NewTokens(Secret("access-3"), None, Secret("refresh-3"))
    await vault.servers.refreshed(HOME, kept, rotated)
    again = await vault.servers.for_server(HOME, ["vlt_1"], URL)
    assert isinstance(again, OauthCredential)
    assert again.access_token.open() == "access-3"
    assert again.expires_at is None
    assert again.refresh is not None
    assert again.refresh.refresh_token.open() == "refresh-3"


async def test_of_two_refreshes_one_is_kept_and_both_get_it(vault: VaultDouble) -> None:
    found = await oauth_in(vault)
    kept = await asyncio.gather(
        *(
            vault.servers.refreshed(HOME, found, NewTokens(Secret(f"access-{number}"), SOON))
            for number in range(8)
        )
    )
    assert all(one is not None for one in kept)
    tokens = {one.access_token.open() for one in kept if one is not None}
    assert len(tokens) == 1


async def test_tokens_that_a_person_has_set_meanwhile_stay(vault: VaultDouble) -> None:
    found = await oauth_in(vault)
    (record,) = await vault.store.live(HOME, ["vlt_1"])
    await vault.change(record.credential, auth={"mcp_oauth": {"access_token": "by-hand"}})
    kept = await vault.servers.refreshed(HOME, found, NewTokens(Secret("access-2"), SOON))
    assert kept is not None
    assert kept.access_token.open() == "by-hand"


async def test_nothing_is_kept_for_a_credential_that_is_gone(vault: VaultDouble) -> None:
    found = await oauth_in(vault)
    (record,) = await vault.store.live(HOME, ["vlt_1"])
    await vault.archive(record.credential)
    assert await vault.servers.latest(HOME, found) is None
    tokens = NewTokens(Secret("access-2"), SOON + timedelta(days=1))
    assert await vault.servers.refreshed(HOME, found, tokens) is None
    assert (await vault.store.load(HOME, "vlt_1", found.id)).sealed is None
