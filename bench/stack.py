"""A real stack over a 0 ms model double, for the length of one bench run."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from bench.client import Connection

READY_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class Stack:
    """Where the stack and the model double listen, and what to create sessions from."""

    port: int
    key: str
    model_url: str
    data: Path
    ready_seconds: float

    def connect(self) -> Connection:
        """A new connection to the gateway."""
        return Connection("127.0.0.1", self.port, self.key)


def free_port() -> int:
    """A loopback port that is free now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@asynccontextmanager
async def running_stack(brains: int = 2) -> AsyncIterator[Stack]:
    """Starts the model double and `drover up`; stops both at the end."""
    port, model_port = free_port(), free_port()
    model_url = f"http://127.0.0.1:{model_port}"
    key = "drv_bench"
    with tempfile.TemporaryDirectory(prefix="drover-bench-") as folder:
        data = Path(folder)
        environment = {
            **os.environ,
            "ANTHROPIC_API_KEY": "bench",
            "ANTHROPIC_BASE_URL": model_url,
            "DROVER_API_KEY": key,
        }
        model = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "tests.doubles.messages_api",
            "--port", str(model_port), "--mode", "bench",
        )  # fmt: skip
        begin = time.perf_counter()
        stack = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "cli.main", "up",
            "--port", str(port), "--data", str(data), "--brains", str(brains),
            env=environment, stdout=asyncio.subprocess.PIPE,
        )  # fmt: skip
        try:
            assert stack.stdout is not None  # noqa: S101 - asked for above
            async with asyncio.timeout(READY_SECONDS):
                while (line := await stack.stdout.readline()) and b"ready" not in line.split():
                    print(line.decode().rstrip())
            yield Stack(port, key, model_url, data, time.perf_counter() - begin)
        finally:
            for process in (stack, model):
                if process.returncode is None:
                    process.send_signal(signal.SIGTERM)
            await asyncio.gather(stack.wait(), model.wait())
