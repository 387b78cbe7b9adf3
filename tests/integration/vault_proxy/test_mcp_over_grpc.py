"""MCP through the vault proxy as it runs: its own RPCs, its own database, real peers outside."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import grpc
import pytest

from chassis.grpc.channel import open_channel
from chassis.grpc.server import GrpcServer
from chassis.grpc.status import from_rpc_error
from chassis.secret import Secret
from drover.session.v1.session_service_pb2_grpc import (
    add_SessionServiceServicer_to_server,
)
from drover.vault.v1 import credential_pb2, credential_proxy_service_pb2, vault_audit_service_pb2
from drover.vault.v1 import vault_credential_service_pb2 as credentials
from drover.vault.v1 import vault_service_pb2 as vaults
from drover.vault.v1.credential_proxy_service_pb2_grpc import CredentialProxyServiceStub
from drover.vault.v1.vault_audit_service_pb2_grpc import VaultAuditServiceStub
from drover.vault.v1.vault_credential_service_pb2_grpc import VaultCredentialServiceStub
from drover.vault.v1.vault_service_pb2_grpc import VaultServiceStub
from services.vault_proxy.main import build
from services.vault_proxy.settings import VaultProxySettings
from tests.doubles.mcp_server import McpServer, running_mcp_server
from tests.doubles.one_session import OneSession

KEY = "a-token-for-tests"


@pytest.fixture(scope="module")
def server() -> Iterator[McpServer]:
    with running_mcp_server() as running:
        yield running


@dataclass
class Running:
    """A vault proxy, and what is asked of it."""

    settings: VaultProxySettings
    sessions: OneSession
    address: str = ""
    stack: AsyncExitStack | None = None

    async def start(self) -> None:
        """Starts it, again if it was stopped."""
        self.stack = AsyncExitStack()
        self.address = (await build(self.settings, self.stack)).address

    async def stop(self) -> None:
        """Stops it; what it keeps is in its database."""
        assert self.stack is not None
        await self.stack.aclose()

    async def call(self, tool: str, text: str = "{}") -> str:
        """Calls a tool with a new grant."""
        async with open_channel(self.address, Secret(KEY)) as channel:
            proxy = CredentialProxyServiceStub(channel)
            opened = await proxy.OpenGrant(
                credential_proxy_service_pb2.OpenGrantRequest(session_id="sesn_1", hand_id="h")
            )
            answer = await proxy.Call(
                credential_proxy_service_pb2.CallRequest(
                    grant=opened.grant,
                    mcp_server_name="srv",
                    tool=tool,
                    input=text,
                    call_id="sevt_1",
                )
            )
        return answer.content[0].text.text


@pytest.fixture
async def running(server: McpServer, tmp_path: Path) -> AsyncIterator[Running]:
    server.forget()
    token = tmp_path / "token"
    token.write_text(KEY)
    sessions = GrpcServer("127.0.0.1:0", Secret(KEY), reflection=False)
    told = OneSession()  # type: ignore[abstract]
    sessions.add(add_SessionServiceServicer_to_server, told)
    await sessions.start()
    settings = VaultProxySettings(
        data_dir=tmp_path,
        token_file=token,
        reflection=False,
        session_address=sessions.address,
        egress_allow_private=f"127.0.0.1/32:{server.port}",
    )
    made = Running(settings, told)
    await made.start()
    yield made
    await made.stop()
    await sessions.stop()


async def _stored(running: Running, server: McpServer, path: str) -> credential_pb2.Credential:
    """A vault with an OAuth credential that is about to expire, and the session that has it."""
    granted = server.grant()
    request = credentials.CreateCredentialRequest()
    oauth = request.auth.mcp_oauth
    oauth.mcp_server_url = server.url(path)
    oauth.access_token = granted.access_token
    oauth.expires_at.FromDatetime(datetime.now(UTC) + timedelta(seconds=20))
    oauth.refresh.client_id = "drover"
    oauth.refresh.refresh_token = granted.refresh_token
    oauth.refresh.token_endpoint = server.token_endpoint
    oauth.refresh.token_endpoint_auth.none.SetInParent()
    async with open_channel(running.address, Secret(KEY)) as channel:
        vault = await VaultServiceStub(channel).CreateVault(
            vaults.CreateVaultRequest(display_name="mine")
        )
        request.vault_id = vault.vault.id
        created = await VaultCredentialServiceStub(channel).CreateCredential(request)
    running.sessions.session.vault_ids.append(vault.vault.id)
    running.sessions.add_server("srv", server.url(path))
    credential: credential_pb2.Credential = created.credential
    return credential


async def test_a_refreshed_token_outlives_the_process(
    running: Running, server: McpServer, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    credential = await _stored(running, server, "/private/mcp")
    counts = await asyncio.gather(*(running.call("count") for _ in range(30)))
    assert sorted(map(int, counts)) == list(range(1, 31))
    assert server.refreshes() == 1
    await running.stop()
    await running.start()
    assert await running.call("count") == "31"
    assert server.refreshes() == 1

    async with open_channel(running.address, Secret(KEY)) as channel:
        tried = await VaultCredentialServiceStub(channel).ValidateCredential(
            credentials.ValidateCredentialRequest(
                vault_id=credential.vault_id, credential_id=credential.id
            )
        )
        trail = await VaultAuditServiceStub(channel).ListVaultAudit(
            vault_audit_service_pb2.ListVaultAuditRequest(credential_id=credential.id, limit=100)
        )
    assert tried.validation.status == credential_pb2.CREDENTIAL_VALIDATION_STATUS_VALID
    methods = [entry.method for entry in trail.data]
    assert (methods.count("tools/call"), methods.count("POST")) == (31, 1)

    secrets = {*server.report()["spent"], *(one for one in _tokens(server) if one)}
    assert len(secrets) >= 2
    told = caplog.text + str(trail) + str(tried)
    kept = b"".join(path.read_bytes() for path in running.settings.data_dir.rglob("*.db*"))
    assert not [secret for secret in secrets if secret in told or secret.encode() in kept]


async def test_what_hands_are_told_when_a_server_refuses(
    running: Running, server: McpServer
) -> None:
    await _stored(running, server, "/private/mcp")
    server.token_fault({"status": 400, "body": '{"error": "invalid_grant"}'})
    try:
        with pytest.raises(grpc.RpcError) as refused:
            await running.call("count")
    finally:
        server.token_fault(None)
    error = from_rpc_error(refused.value)
    assert error.error_code == "mcp_authentication_failed"
    assert "invalid_grant" in error.message


def _tokens(server: McpServer) -> set[str]:
    seen = server.report()["seen"]
    return {one["headers"].get("authorization", "").removeprefix("Bearer ") for one in seen}
