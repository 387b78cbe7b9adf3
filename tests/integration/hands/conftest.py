"""The hands served over loopback, in this process and in processes of their own."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import tempfile
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from chassis.grpc.channel import open_channel
from chassis.secret import Secret
from cli.stack.order import Order
from drover.hands.v1 import hands_service_pb2 as pb
from drover.hands.v1.hands_service_pb2_grpc import HandsServiceStub
from services.hands.main import build
from services.hands.settings import HandsSettings
from tests.doubles.standing import PromptExit
from tests.e2e.forked import warm

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
    """A hands service over a directory in a process of its own, and a client of it."""

    def __init__(self, directory: Path, **environment: str) -> None:
        self._directory = directory
        self._environment = environment
        self._stack = AsyncExitStack()

    async def start(self) -> None:
        log = tempfile.NamedTemporaryFile("r", suffix=".log")  # noqa: SIM115 - till it ends
        self._log = self._stack.enter_context(log)
        told = {**os.environ, "DROVER_DATA_DIR": str(self._directory), **self._environment}
        order = Order("hands", "services.hands.main", self._log.name, told)
        self.process = await asyncio.to_thread(warm().fork, order)
        try:
            async with asyncio.timeout(60):
                while (listening := self._logged("listening")) is None:
                    assert self.process.poll() is None, "the service ended before it listened"
                    await asyncio.sleep(0.02)
        except (TimeoutError, AssertionError) as error:
            log.seek(0)
            error.add_note(log.read())
            await self.end(signal.SIGKILL)
            raise
        channel = open_channel(listening["address"], Secret(TOKEN))
        self._stack.push_async_callback(channel.close)
        self.client: Any = HandsServiceStub(channel)

    async def end(self, number: signal.Signals) -> bool:
        """Whether it ended by itself, and in order."""
        if self.process.poll() is None:
            self.process.send_signal(number)
        await asyncio.to_thread(self.process.wait, 30)
        ended = not self._log.closed and self._logged("stopped") is not None
        await self._stack.aclose()
        return ended

    def _logged(self, event: str) -> dict[str, Any] | None:
        self._log.seek(0)
        for line in self._log:
            if line.endswith("\n") and (found := json.loads(line))["event"] == event:
                return dict(found)
        return None


@pytest.fixture
async def process(settings: HandsSettings) -> AsyncIterator[HandsProcess]:
    process = HandsProcess(settings.data_dir)
    await process.start()
    yield process
    await process.end(signal.SIGKILL)
