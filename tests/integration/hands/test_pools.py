"""Pools and limits, from the settings and an environment to the sandbox."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from chassis.grpc.channel import open_channel
from drover.hands.v1 import hands_service_pb2 as pb
from drover.hands.v1.hands_service_pb2_grpc import HandsServiceStub
from services.hands.main import build
from services.hands.pool import Pool
from services.hands.settings import HandsSettings
from tests.doubles.hands_waiting import eventually, ready_spares
from tests.doubles.standing import PromptExit
from tests.integration.hands.conftest import call


def text(result: pb.ExecuteResponse) -> str:
    return "".join(block.text.text for block in result.content)


async def test_pool_of_a_setting_serves_the_environment_that_asks_for_its_recipe(
    settings: HandsSettings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[Pool] = []

    def make(*given: Any, **named: Any) -> Pool:
        made.append(Pool(*given, **named))
        return made[0]

    monkeypatch.setattr("services.hands.main.Pool", make)
    pools = '[{"limits": {"processes": 40, "file_mib": 4096}, "spares": 1}]'
    given = {"hands_spare_sandboxes": 0, "hands_pools": pools, "reflection": False}
    pooled = HandsSettings(data_dir=tmp_path, sandbox_ceilings='{"file_mib": 3}', **given)  # type: ignore[arg-type]
    async with PromptExit() as stack:
        server = await build(pooled, stack)
        channel = await stack.enter_async_context(open_channel(server.address, settings.token()))
        hands: Any = HandsServiceStub(channel)
        await eventually(lambda: ready_spares(made[0]))
        (spare,) = tmp_path.glob("hands/spares/spare_*/workspace")
        inode = spare.stat().st_ino
        await hands.Provision(pb.ProvisionRequest(session_id="sesn_2", generation=1))
        assert spare.exists()  # another recipe's is no business of it
        request = call("c1", command="ulimit -u; head -c 5M /dev/zero >f; wc -c <f")
        request.environment.cloud.limits.processes = 40
        # More than the operator's ceiling of today: an environment of before has it still.
        request.environment.cloud.limits.file_mib = 8192
        shown = text(await hands.Execute(request)).split("\n")
        assert shown[0] == "40"
        assert str(3 << 20) in shown
        assert (tmp_path / "hands/workspaces/sesn_1/workspace").stat().st_ino == inode
