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

import grpc.aio

from bench.client import Connection
from cli.launched import LaunchedStack
from cli.stack.installation import Installation


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


def session_service(data: Path, caller: str = "brain") -> grpc.aio.Channel:
    """A channel to the session service of the stack over `data`, as that process calls it."""
    installation = Installation(data)
    address = installation.address_file("session").read_text().strip()
    return installation.peers(caller).channel(address, "session")


def free_port() -> int:
    """A loopback port that is free now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@asynccontextmanager
async def running_stack(
    brains: int = 2, *, database_url: str = "", **settings: str
) -> AsyncIterator[Stack]:
    """Starts the model double and `drover up`; stops both at the end.

    Without a database's URL the stack keeps its data in SQLite files. `settings` are further
    variables of its environment.
    """
    port = free_port()
    model_url = f"http://127.0.0.1:{port}"
    with tempfile.TemporaryDirectory(prefix="drover-bench-") as folder:
        data = Path(folder)
        environment = {
            **os.environ,
            "ANTHROPIC_API_KEY": "bench",
            "ANTHROPIC_BASE_URL": model_url,
            **settings,
        }
        if database_url:
            environment["DROVER_DATABASE_URL"] = database_url
        model = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "tests.doubles.messages_api",
            "--port", str(port), "--mode", "bench",
        )  # fmt: skip
        launched = LaunchedStack(data, brains=brains, environment=environment)
        begin = time.perf_counter()
        try:
            await asyncio.to_thread(launched.start)
            seconds = time.perf_counter() - begin
            try:
                target = launched.target
                gateway = int(target.url.rpartition(":")[2])
                yield Stack(gateway, target.key, model_url, data, seconds)
            finally:
                await asyncio.to_thread(launched.stop)
        finally:
            model.send_signal(signal.SIGTERM)
            await model.wait()
