"""The hands served over loopback, in this process and in processes of their own."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from chassis.grpc.channel import open_channel
from chassis.secret import Secret
from drover.hands.v1 import hands_service_pb2 as pb
from drover.hands.v1.hands_service_pb2_grpc import HandsServiceStub
from services.hands.main import HandsSettings, build
from tests.doubles.standing import PromptExit

TOKEN = "a-token-for-tests"  # noqa: S105


def call(call_id: str, tool: str = "bash", **given: Any) -> pb.ExecuteRequest:
    return pb.ExecuteRequest(
        session_id="sesn_1", call_id=call_id, generation=1, name=tool, input=json.dumps(given)
    )


@pytest.fixture
def settings(tmp_path: Path) -> HandsSettings:
    token = tmp_path / "run" / "token"
    token.parent.mkdir()
    token.write_text(TOKEN)
    return HandsSettings(data_dir=tmp_path, reflection=False)


@pytest.fixture
async def hands(settings: HandsSettings) -> AsyncIterator[Any]:
    """A client of a service in this process."""
    async with PromptExit() as stack:
        server = await build(settings, stack)
        channel = await stack.enter_async_context(open_channel(server.address, settings.token()))
        yield HandsServiceStub(channel)


class HandsProcess:
    """`python -m services.hands.main` over a directory, and a client of it."""

    def __init__(self, directory: Path, **environment: str) -> None:
        self._directory = directory
        self._environment = environment
        self._stack = AsyncExitStack()

    async def start(self) -> None:
        self.process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "services.hands.main"),
            env={**os.environ, "DROVER_DATA_DIR": str(self._directory), **self._environment},
            stderr=asyncio.subprocess.PIPE,
        )
        assert self.process.stderr is not None
        async with asyncio.timeout(30):
            async for line in self.process.stderr:
                event = json.loads(line)
                if event["event"] == "listening":
                    break
            else:
                pytest.fail("the service ended before it listened")
        self._log = asyncio.create_task(self.process.stderr.read())
        channel = open_channel(event["address"], Secret(TOKEN))
        self._stack.push_async_callback(channel.close)
        self.client: Any = HandsServiceStub(channel)

    async def end(self, number: signal.Signals) -> int:
        if self.process.returncode is None:
            self.process.send_signal(number)
        await self._stack.aclose()
        await self._log
        return await self.process.wait()


@pytest.fixture
async def process(settings: HandsSettings) -> AsyncIterator[HandsProcess]:
    process = HandsProcess(settings.data_dir)
    await process.start()
    yield process
    await process.end(signal.SIGKILL)
