from __future__ import annotations

from pathlib import Path

from chassis.errors import Reason
from chassis.grpc.channel import open_channel
from drover.environment.v1 import environment_service_pb2 as pb
from drover.environment.v1.environment_service_pb2_grpc import EnvironmentServiceStub
from services.registry.main import RegistrySettings, build
from tests.doubles.standing import PromptExit
from tests.integration.registry.refusal import refusal


async def test_operators_ceilings_are_those_of_every_environment(
    settings: RegistrySettings, tmp_path: Path
) -> None:
    token = settings.token_file
    given = {"data_dir": tmp_path, "token_file": token, "sandbox_ceilings": '{"memory_mib": 128}'}
    async with PromptExit() as stack:
        server = await build(RegistrySettings(**given), stack)  # type: ignore[arg-type]
        channel = await stack.enter_async_context(open_channel(server.address, settings.token()))
        environments = EnvironmentServiceStub(channel)
        request = pb.CreateEnvironmentRequest(name="a", metadata={"drover.memory_mib": "129"})
        error = await refusal(environments.CreateEnvironment(request))
        assert error.reason is Reason.INVALID_ARGUMENT
        assert "metadata.drover.memory_mib: must be a whole number from 64 to 128" in error.message
        request.metadata["drover.memory_mib"] = "128"
        made = (await environments.CreateEnvironment(request)).environment
        assert made.config.cloud.limits.memory_mib == 128
        change = pb.UpdateEnvironmentRequest(environment_id=made.id)
        change.metadata.set["drover.memory_mib"] = "1000"
        assert (await refusal(environments.UpdateEnvironment(change))).reason is (
            Reason.INVALID_ARGUMENT
        )
