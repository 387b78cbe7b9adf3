"""A real stack under test: `drover up` over the scripted model, and ways to break it."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
import httpx2
from anthropic import Anthropic, AsyncAnthropic

from cli.launched import LaunchedStack
from cli.stack.installation import Installation
from identity.peers import Peers
from tests.doubles.messages_api import MessagesApi, running
from tests.e2e.forked_stack import ForkedStack

ROOT = Path(__file__).resolve().parents[2]
KEY = "drv_test_key"
READY_SECONDS = 60.0
_ASKED_EVERY = 0.02
_ASKED_AT_LEAST_EVERY = 0.2
BETA = "managed-agents-2026-04-01"


@dataclass(slots=True)
class Stack:
    """One running stack."""

    url: str
    key: str
    data: Path
    model: MessagesApi

    # talking to it

    @property
    def headers(self) -> dict[str, str]:
        """The headers that every API call needs."""
        return {"x-api-key": self.key, "anthropic-beta": BETA}

    def client(self, **options: Any) -> Anthropic:
        """The official client."""
        return Anthropic(base_url=self.url, api_key=self.key, timeout=60, **options)

    def async_client(self, **options: Any) -> AsyncAnthropic:
        """The official client, asynchronous."""
        return AsyncAnthropic(base_url=self.url, api_key=self.key, timeout=60, **options)

    @property
    def token(self) -> str:
        """The installation's secret."""
        return (self.data / "run" / "token").read_text().strip()

    def address(self, service: str) -> str:
        """Where a service listens."""
        return (self.data / "run" / f"{service}.address").read_text().strip()

    def channel(self, service: str, caller: str = "operator") -> grpc.Channel:
        """A channel to a service, as the process that may call what is to be called there."""
        tls = self.peers(caller).tls
        assert tls is not None
        shown, named = tls.channel(service.partition("-")[0])
        return grpc.secure_channel(self.address(service), shown, options=named)

    def peers(self, caller: str) -> Peers:
        """What a process of the stack shows the others."""
        return Installation(self.data).peers(caller)

    def workspace(self, session_id: str) -> Path:
        """A session's workspace, seen from the host."""
        return self.data / "hands" / "workspaces" / session_id / "workspace"

    def sandboxes(self) -> set[str]:
        """Sessions that have, or had, a workspace."""
        folder = self.data / "hands" / "workspaces"
        return {path.name for path in folder.iterdir()} if folder.exists() else set()

    # breaking it

    def pid(self, service: str) -> int:
        """The process of a service."""
        return int((self.data / "run" / f"{service}.pid").read_text())

    def pids(self, *services: str) -> set[int]:
        """The processes of services that have one now."""
        found = set()
        for name in services:
            with suppress(FileNotFoundError):
                found.add(self.pid(name))
        return found

    def kill(self, service: str) -> None:
        """kill -9, and waits until the supervisor has made another."""
        before = self.pid(service)
        os.kill(before, signal.SIGKILL)
        self.wait_for(lambda: self.pids(service) not in (set(), {before}), f"another {service}")

    def pause(self, service: str) -> None:
        """SIGSTOP."""
        os.kill(self.pid(service), signal.SIGSTOP)

    def resume(self, service: str) -> None:
        """SIGCONT."""
        os.kill(self.pid(service), signal.SIGCONT)

    def holder(self, session_id: str) -> str:
        """The brain that took the session's lease last, by the session service's own log."""
        lines = (self.data / "logs" / "session.log").read_text().splitlines()
        opened = [
            line["holder"]
            for line in map(json.loads, (line for line in lines if line.startswith("{")))
            if line["event"] == "lease_opened" and line["session_id"] == session_id
        ]
        return opened[-1]

    def files_with(self, *words: bytes) -> list[str]:
        """Files of the data directory that hold one of the words. Others may go meanwhile."""
        found = []
        for folder, _, names in os.walk(self.data):
            for path in (Path(folder, name) for name in names):
                with suppress(FileNotFoundError):
                    content = path.read_bytes() if path.is_file() else b""
                    found += [str(path)] if any(word in content for word in words) else []
        return found

    def host_processes(self, words: str) -> list[str]:
        """Command lines of live processes on this machine that contain these words."""
        found = []
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit():
                try:
                    line = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode()
                except OSError:
                    continue
                if words in line:
                    found.append(line)
        return found

    # waiting for it

    def wait_for(self, condition: Callable[[], object], what: str, deadline: float = 40) -> None:
        """Waits until the condition holds; fails after `deadline` seconds."""
        wait_for(condition, what, deadline)

    def wait_ready(self, deadline: float = READY_SECONDS) -> None:
        """Waits until every service answers."""

        def ready() -> bool:
            try:
                return httpx2.get(f"{self.url}/readyz", timeout=2).status_code == 200
            except httpx2.HTTPError:
                return False

        self.wait_for(ready, "readiness", deadline)

    def until_idle(
        self, client: Anthropic, session_id: str, *, answers: int = 1, deadline: float = 60
    ) -> list[Any]:
        """Waits until the session is idle with so many agent messages; answers its log."""
        log: list[Any] = []

        def idle() -> bool:
            log[:] = client.beta.sessions.events.list(session_id)
            said = sum(event.type == "agent.message" for event in log)
            return said >= answers and log[-1].type == "session.status_idle"

        self.wait_for(idle, "the end of the turn", deadline)
        return log


def wait_for(condition: Callable[[], object], what: str, deadline: float) -> None:
    """Waits until the condition holds; fails after `deadline` seconds.

    What is dear to ask is asked less often: those that are waited for need the processor more.
    """
    end = time.monotonic() + deadline
    while True:
        asked = time.monotonic()
        if condition():
            return
        now = time.monotonic()
        assert now < end, f"{what} did not come about in {deadline} s"
        took = now - asked
        time.sleep(max(_ASKED_EVERY, min(4 * took, _ASKED_AT_LEAST_EVERY), 2 * took))


@contextmanager
def running_stack(
    data: Path,
    *,
    brains: int = 2,
    launcher: type[LaunchedStack] = ForkedStack,
    **environment: str,
) -> Iterator[Stack]:
    """Runs `drover up` over a scripted model for the length of the block.

    The `launcher` is `LaunchedStack` where it matters that the processes began as programs.
    """
    inherited = {name: value for name, value in os.environ.items() if "ANTHROPIC" not in name}
    with running() as model:
        settings = {
            "ANTHROPIC_API_KEY": "sk-test",
            "ANTHROPIC_BASE_URL": model.base_url,
            "DROVER_API_KEY": KEY,
        }
        told = {**inherited, **settings, **environment}
        with launcher(data, brains=brains, environment=told) as launched:
            yield Stack(launched.target.url, KEY, data, model)
