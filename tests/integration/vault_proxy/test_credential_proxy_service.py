from __future__ import annotations

from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

import grpc.aio
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from chassis.errors import Reason
from chassis.grpc.channel import open_channel
from chassis.grpc.status import from_rpc_error
from chassis.secret import Secret
from drover.vault.v1 import credential_proxy_service_pb2 as pb
from drover.vault.v1 import vault_service_pb2 as vault_pb
from drover.vault.v1.credential_proxy_service_pb2_grpc import CredentialProxyServiceStub
from drover.vault.v1.vault_service_pb2_grpc import VaultServiceStub
from services.vault_proxy.main import build
from services.vault_proxy.settings import VaultProxySettings

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

SERVICE = "drover.vault.v1.CredentialProxyService"


@pytest.fixture
async def address(tmp_path: Path) -> AsyncIterator[str]:
    token = tmp_path / "token"
    token.write_text("a-token-for-tests")
    settings = VaultProxySettings(
        data_dir=tmp_path, token_file=token, reflection=False, session_address="127.0.0.1:1"
    )
    async with AsyncExitStack() as stack:
        yield (await build(settings, stack)).address


async def test_it_holds_nothing_and_says_so(address: str) -> None:
    async with open_channel(address, Secret("a-token-for-tests")) as channel:
        holdings = await CredentialProxyServiceStub(channel).GetHoldings(pb.GetHoldingsRequest())
    assert (holdings.vaults, holdings.credentials) == (0, 0)


async def test_it_reports_healthy_to_anyone(address: str) -> None:
    async with grpc.aio.insecure_channel(address) as channel:
        request = health_pb2.HealthCheckRequest(service=SERVICE)
        answer = await health_pb2_grpc.HealthStub(channel).Check(request)
    assert answer.status == health_pb2.HealthCheckResponse.SERVING


async def test_callers_without_the_installations_secret_are_refused(address: str) -> None:
    async with open_channel(address, Secret("another")) as channel:
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await CredentialProxyServiceStub(channel).GetHoldings(pb.GetHoldingsRequest())
    assert refused.value.code() is grpc.StatusCode.UNAUTHENTICATED


async def test_what_it_holds_is_counted_until_it_is_archived(address: str) -> None:
    async with open_channel(address, Secret("a-token-for-tests")) as channel:
        vaults, proxy = VaultServiceStub(channel), CredentialProxyServiceStub(channel)
        made = await vaults.CreateVault(vault_pb.CreateVaultRequest(display_name="Ada"))
        await vaults.CreateVault(vault_pb.CreateVaultRequest(display_name="Grace"))
        await vaults.ArchiveVault(vault_pb.ArchiveVaultRequest(vault_id=made.vault.id))
        holdings = await proxy.GetHoldings(pb.GetHoldingsRequest())
    assert (holdings.vaults, holdings.credentials) == (1, 0)


async def test_no_grant_is_given_while_sessions_cannot_be_asked_for(address: str) -> None:
    async with open_channel(address, Secret("a-token-for-tests")) as channel:
        request = pb.OpenGrantRequest(session_id="sesn_1", hand_id="hand_1")
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await CredentialProxyServiceStub(channel).OpenGrant(request)
    assert refused.value.code() is grpc.StatusCode.UNAVAILABLE


@pytest.mark.parametrize(
    ("method", "request_"),
    [
        ("ListTools", pb.ListToolsRequest(grant="drover_grant_x.y", mcp_server_name="a")),
        ("Call", pb.CallRequest(grant="forged", mcp_server_name="a", tool="t", call_id="c")),
        ("Fetch", pb.FetchRequest(grant="forged", url="https://a.example/", call_id="c")),
        ("Search", pb.SearchRequest(grant="forged", query="q", call_id="c")),
    ],
)
async def test_nothing_is_done_for_a_grant_that_is_none(
    address: str, method: str, request_: object
) -> None:
    async with open_channel(address, Secret("a-token-for-tests")) as channel:
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await getattr(CredentialProxyServiceStub(channel), method)(request_)
    error = from_rpc_error(refused.value)
    assert (error.reason, error.error_code) == (Reason.PERMISSION_DENIED, "grant_invalid")
