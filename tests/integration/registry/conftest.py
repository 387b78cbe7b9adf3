"""A registry served over loopback from a real file, and clients of it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from chassis.context import CallContext
from chassis.grpc.channel import open_channel
from drover.agent.v1.agent_service_pb2_grpc import AgentServiceStub
from drover.environment.v1.environment_service_pb2_grpc import EnvironmentServiceStub
from services.registry.main import RegistrySettings, build
from tests.doubles.standing import PromptExit

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    import grpc.aio


@pytest.fixture
def settings(tmp_path: Path) -> RegistrySettings:
    token = tmp_path / "token"
    token.write_text("a-token-for-tests")
    return RegistrySettings(data_dir=tmp_path, token_file=token, reflection=False)


@pytest.fixture
async def channel(settings: RegistrySettings) -> AsyncIterator[grpc.aio.Channel]:
    async with PromptExit() as stack:
        server = await build(settings, stack)
        yield await stack.enter_async_context(open_channel(server.address, settings.token()))


@pytest.fixture
def agents(channel: grpc.aio.Channel) -> Any:
    return AgentServiceStub(channel)


@pytest.fixture
def environments(channel: grpc.aio.Channel) -> Any:
    return EnvironmentServiceStub(channel)


@pytest.fixture
def other_workspace() -> Iterator[CallContext]:
    """Used with `call_context` to call from another workspace."""
    return CallContext(workspace_id="wrkspc_other")
