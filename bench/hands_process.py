"""The hands alone, in a process of their own, and what they cost."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

from chassis.grpc.channel import open_channel
from chassis.secret import Secret
from drover.hands.v1 import hands_service_pb2 as pb
from drover.hands.v1.hands_service_pb2_grpc import HandsServiceStub

if TYPE_CHECKING:
    from drover.hands.v1.hands_service_pb2_grpc import HandsServiceAsyncStub

_TOKEN: Final = "bench"  # noqa: S105
_READY_SECONDS: Final = 30.0
_COMMAND: Final = '{"command":"true"}'


class Hands:
    """A client of the hands. Sessions and calls are numbered."""

    def __init__(self, pid: int, directory: Path, stub: HandsServiceAsyncStub) -> None:
        self.pid = pid
        self.directory = directory
        self._stub = stub
        self._number = 0

    def new_session(self) -> str:
        """A session that no hand was made for."""
        self._number += 1
        return f"sesn_{self._number}"

    async def execute(self, session_id: str) -> None:
        """Runs a command that does nothing, to its result."""
        self._number += 1
        result = await self._stub.Execute(
            pb.ExecuteRequest(
                session_id=session_id,
                call_id=f"sevt_{self._number}",
                generation=1,
                name="bash",
                input=_COMMAND,
            )
        )
        if result.verdict != pb.VERDICT_COMPLETED or result.is_error:
            raise RuntimeError(result)

    async def provision(self, session_id: str) -> None:
        """Has the session's hand made."""
        await self._stub.Provision(pb.ProvisionRequest(session_id=session_id, generation=1))

    async def release(self, session_id: str) -> None:
        """Ends the session's hand and deletes its files."""
        await self._stub.Release(pb.ReleaseRequest(session_id=session_id, generation=1, purge=True))


@asynccontextmanager
async def running_hands(**settings: str) -> AsyncIterator[Hands]:
    """Starts the hands and ends them; `settings` are variables of their environment."""
    with tempfile.TemporaryDirectory(prefix="drover-bench-") as folder:
        directory = Path(folder)
        token = directory / "run" / "token"
        token.parent.mkdir()
        token.write_text(_TOKEN)
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-P", "-m", "services.hands.main"),
            env={**os.environ, "DROVER_DATA_DIR": folder, **settings},
            stderr=asyncio.subprocess.PIPE,
        )
        try:
            async with asyncio.timeout(_READY_SECONDS):
                address = await _address(process)
            rest = asyncio.create_task(_drop(process))
            async with open_channel(address, Secret(_TOKEN)) as channel:
                yield Hands(process.pid, directory, HandsServiceStub(channel))
            process.send_signal(signal.SIGTERM)
            await process.wait()
            await rest
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()


async def _address(process: asyncio.subprocess.Process) -> str:
    assert process.stderr is not None  # noqa: S101  # a pipe was asked for
    async for line in process.stderr:
        event = json.loads(line)
        if event["event"] == "listening":
            return str(event["address"])
    msg = "the hands ended before they listened"
    raise RuntimeError(msg)


async def _drop(process: asyncio.subprocess.Process) -> None:
    assert process.stderr is not None  # noqa: S101  # a pipe was asked for
    while await process.stderr.read(1 << 16):
        pass


def memory(pids: set[int]) -> float:
    """MiB that processes keep in memory; what several of them share is counted once in all."""
    total = 0
    for pid in pids:
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                total += int(line.split()[1])
    return total / 1024
