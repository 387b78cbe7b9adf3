"""The service dies while it installs packages: nothing of them is left half (P3)."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path
from typing import Any

import grpc.aio
import pytest

from drover.hands.v1 import hands_service_pb2 as pb
from services.hands.main import HandsSettings
from tests.doubles.hands_stack import running
from tests.doubles.hands_waiting import eventually
from tests.integration.hands.conftest import HandsProcess, call
from tests.integration.hands.test_process_killed import tree

NOBODY = "127.0.0.1:1"


async def test_killed_service_leaves_no_packages_half_and_nothing_that_installs_them(
    settings: HandsSettings,
) -> None:
    process = HandsProcess(
        settings.data_dir,
        DROVER_VAULT_PROXY_ADDRESS=NOBODY,
        DROVER_EGRESS_ADDRESS=NOBODY,
        DROVER_HANDS_SPARE_SANDBOXES="0",
    )
    await process.start()
    request = call("c1", command="true")
    request.environment.cloud.packages.pip.append("numpy")
    asked = asyncio.ensure_future(_result(process.client, request))
    place = settings.data_dir / "hands" / "packages"
    await eventually(lambda: any(place.glob("*/build-*")))
    await eventually(lambda: any(map(_installs, tree(process.process.pid))))
    below = tree(process.process.pid) - {process.process.pid}
    process.process.kill()
    with pytest.raises(grpc.aio.AioRpcError):
        await asked
    await process.end(signal.SIGKILL)
    await eventually(lambda: not any(map(running, below)))
    assert not any(place.glob("*/current"))
    after = HandsProcess(settings.data_dir)
    await after.start()
    assert not any(place.glob("*/build-*"))
    await after.end(signal.SIGTERM)


async def _result(client: Any, request: pb.ExecuteRequest) -> pb.ExecuteResponse:
    result: pb.ExecuteResponse = await client.Execute(request)
    return result


def _installs(pid: int) -> bool:
    try:
        return b"pip\0install" in Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False
