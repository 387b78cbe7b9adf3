"""The production shape under test: replicas of every part that may have them, on one PostgreSQL.

Two session services, two gateways and two brains, with one registry, hands and vault proxy: each
a process of its own, as by `python -m services.X.main` with `DROVER_*` variables, nothing
supervised. What a test kills stays dead until the test starts it again.
"""

from __future__ import annotations

import asyncio
import json
import os
import secrets
import signal
import socket
import subprocess
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx2
from anthropic import Anthropic, AsyncAnthropic

from chassis.secret import Secret
from cli.stack.installation import Installation
from cli.stack.order import Order
from cli.stack.plan import MODEL_CLIENT
from identity.peers import Peers
from services.hands.store import schema as hands
from services.registry.store import schema as registry
from services.session.store import schema as session
from storage.migrate import migrate as apply
from tests.doubles.messages_api import MessagesApi, running
from tests.doubles.ports import free_port
from tests.e2e.forked import Forked, warm
from tests.e2e.forked_service import ODD
from tests.e2e.stack import BETA, KEY, READY_SECONDS, wait_for

SESSIONS = ("session-1", "session-2")
GATEWAYS = ("gateway-1", "gateway-2")
BRAINS = ("brain-1", "brain-2")
_ALONE = ("registry", "hands", "vault_proxy")
_NEEDS_DATABASE = ("session", "registry", "hands")
_STOP_SECONDS = 60.0


@dataclass(slots=True)
class Process:
    """One process of the stack, running or not."""

    name: str
    environment: dict[str, str]
    log: Path
    network: str = ""
    """The network namespace that it runs in, if it is one of its own."""
    running: Forked | None = None

    @property
    def kind(self) -> str:
        """What it is one of: `session` for `session-1`."""
        return self.name.partition("-")[0]

    @property
    def address(self) -> str:
        """Where it listens."""
        return self.environment["DROVER_LISTEN"]

    @property
    def alive(self) -> bool:
        """Whether it runs."""
        return self.running is not None and self.running.poll() is None


@dataclass(slots=True)
class Replicas:
    """The stack. Its processes are named `session-1`, `gateway-2`, `registry` and so on.

    Before it is started, `processes[name].environment` may be changed: for one that is to reach
    another through a proxy, say.
    """

    data: Path
    database_url: str
    model: MessagesApi
    processes: dict[str, Process] = field(default_factory=dict)

    @classmethod
    def planned(
        cls, data: Path, database_url: str, model: MessagesApi, environment: Mapping[str, str]
    ) -> Replicas:
        """A stack that is not started yet. `environment` is every process's."""
        (data / "run").mkdir(parents=True, exist_ok=True)
        (data / "logs").mkdir(exist_ok=True)
        token = data / "run" / "token"
        token.write_text(secrets.token_hex(16))
        token.chmod(0o600)
        names = (*_ALONE, *SESSIONS, *BRAINS, *GATEWAYS)
        at = {name: f"127.0.0.1:{free_port()}" for name in names}
        inherited = {
            name: value
            for name, value in os.environ.items()
            if "ANTHROPIC" not in name and not name.startswith("DROVER_")
        }
        shared = {
            **inherited,
            "DROVER_DATA_DIR": str(data),
            "DROVER_REGISTRY_ADDRESS": at["registry"],
            "DROVER_HANDS_ADDRESS": at["hands"],
            "DROVER_VAULT_PROXY_ADDRESS": at["vault_proxy"],
            "DROVER_SESSION_ADDRESS": ",".join(at[name] for name in SESSIONS),
            "DROVER_BRAIN_ADDRESSES": ",".join(at[name] for name in BRAINS),
            **environment,
        }
        stack = cls(data, database_url, model)
        for name in names:
            process = Process(
                name, {**shared, "DROVER_LISTEN": at[name]}, data / "logs" / f"{name}.log"
            )
            stack.processes[name] = process
            if process.kind in _NEEDS_DATABASE:
                process.environment["DROVER_DATABASE_URL"] = database_url
            elif process.kind == "brain":
                process.environment |= {
                    "DROVER_BRAIN_NAME": name,
                    "ANTHROPIC_API_KEY": "sk-test",
                    "ANTHROPIC_BASE_URL": model.base_url,
                }
            elif process.kind == "gateway":
                process.environment["DROVER_API_KEY"] = KEY
        return stack

    @property
    def sessions(self) -> list[str]:
        """The session services that there are."""
        return [name for name, process in self.processes.items() if process.kind == "session"]

    # talking to it

    @property
    def headers(self) -> dict[str, str]:
        """The headers that every API call needs."""
        return {"x-api-key": KEY, "anthropic-beta": BETA}

    @property
    def token(self) -> str:
        """The installation's secret."""
        return (self.data / "run" / "token").read_text().strip()

    def certify(self) -> None:
        """Has processes that are not started yet show each other certificates."""
        installation = Installation(self.data)
        installation.certify()
        for process in self.processes.values():
            process.environment["DROVER_TLS_DIR"] = str(installation.tls_dir(process.kind))

    def peers(self, caller: str) -> Peers:
        """What a process of the stack shows the others."""
        installation = Installation(self.data)
        if installation.tls_dir(caller).exists():
            return installation.peers(caller)
        return Peers(Secret(self.token))

    def address(self, name: str) -> str:
        """Where a process listens."""
        return self.processes[name].address

    def url(self, gateway: str = "gateway-1") -> str:
        """The URL of a gateway."""
        return f"http://{self.address(gateway)}"

    def client(self, gateway: str = "gateway-1", **options: Any) -> Anthropic:
        """The official client of one gateway."""
        return Anthropic(base_url=self.url(gateway), api_key=KEY, timeout=60, **options)

    def async_client(self, gateway: str = "gateway-1", **options: Any) -> AsyncAnthropic:
        """The official client of one gateway, asynchronous."""
        return AsyncAnthropic(base_url=self.url(gateway), api_key=KEY, timeout=60, **options)

    def workspace(self, session_id: str) -> Path:
        """A session's workspace, seen from the host."""
        return self.data / "hands" / "workspaces" / session_id / "workspace"

    # starting and breaking it

    def start(self, *names: str) -> None:
        """Starts processes, all of them unless named, without waiting for them."""
        for name in names or self.processes:
            process = self.processes[name]
            assert not process.alive, f"{name} runs already"
            package = "gateway" if process.kind == "gateway" else f"services.{process.kind}"
            module = f"{package}.main"
            late = MODEL_CLIENT if process.kind == "brain" else ()
            arguments: tuple[str, ...] = ()
            if process.network or ODD & process.environment.keys():
                arguments = (module, process.network) if process.network else (module,)
                module, late = "tests.e2e.forked_service", (module, *late)
            order = Order(name, module, str(process.log), process.environment, late)
            process.running = warm().fork(order, *arguments)

    def kill(self, *names: str) -> None:
        """kill -9; they stay dead."""
        for name in names:
            os.kill(self.pid(name), signal.SIGKILL)
        for name in names:
            self._wait(name)

    def stop(self, *names: str) -> None:
        """SIGTERM to processes, all that run unless named, and waits for their end."""
        names = names or tuple(name for name, process in self.processes.items() if process.alive)
        for name in names:
            os.kill(self.pid(name), signal.SIGTERM)
        for name in names:
            self._wait(name)

    def pause(self, name: str) -> None:
        """SIGSTOP."""
        os.kill(self.pid(name), signal.SIGSTOP)

    def resume(self, name: str) -> None:
        """SIGCONT."""
        os.kill(self.pid(name), signal.SIGCONT)

    def revive(self) -> None:
        """Starts whatever does not run, and waits until the stack is whole."""
        if dead := [name for name, process in self.processes.items() if not process.alive]:
            self.start(*dead)
        self.wait_ready()

    def pid(self, name: str) -> int:
        """The pid of a process that runs."""
        process = self.processes[name]
        assert process.running is not None, f"{name} does not run"
        return process.running.pid

    def _wait(self, name: str) -> None:
        running = self.processes[name].running
        assert running is not None
        try:
            running.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            running.kill()
            running.wait()

    # looking at it

    def log(self, *names: str, event: str = "") -> list[dict[str, Any]]:
        """What processes have logged, in each one's order; only lines of one `event` if named."""
        lines: list[dict[str, Any]] = []
        for name in names:
            file = self.processes[name].log
            for line in file.read_text(errors="replace").splitlines() if file.exists() else ():
                if line.startswith("{") and line.endswith("}"):
                    lines.append(json.loads(line) | {"process": name})  # noqa: PERF401
        return [line for line in lines if not event or line["event"] == event]

    def holder(self, session_id: str) -> tuple[str, str]:
        """The brain that took the session's lease last, and the replica that it did so at."""
        opened = [
            line
            for line in self.log(*self.sessions, event="lease_opened")
            if line["session_id"] == session_id
        ]
        last = max(opened, key=lambda line: (line["generation"], line["timestamp"]))
        return last["holder"], last["process"]

    # waiting for it

    def wait_for(self, condition: Callable[[], object], what: str, deadline: float = 40) -> None:
        """Waits until the condition holds; fails after `deadline` seconds."""
        wait_for(condition, what, deadline)

    def wait_ready(self, deadline: float = READY_SECONDS) -> None:
        """Waits until every process that was started serves."""

        def serving(process: Process) -> bool:
            assert process.alive, f"{process.name} has died: {_tail(process.log)}"
            if process.kind == "gateway":
                return _is_ready(f"http://{process.address}/readyz")
            return _listens(process.address)

        for process in self.processes.values():
            if process.running is not None:
                self.wait_for(
                    lambda one=process: serving(one), f"{process.name} to serve", deadline
                )

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


def migrate(database_url: str) -> None:
    """What `drover migrate` does to a database."""

    async def all_of_them() -> None:
        for service in (session, registry, hands):
            await apply(database_url, service.SCHEMA)

    # Of a thread, since the test that asks may run a loop of its own.
    with ThreadPoolExecutor(1) as thread:
        thread.submit(asyncio.run, all_of_them()).result()


@contextmanager
def running_replicas(
    data: Path,
    database_url: str,
    *,
    prepare: Callable[[Replicas], None] = lambda _stack: None,
    **environment: str,
) -> Iterator[Replicas]:
    """Runs the stack over a scripted model and an empty database for the length of the block.

    `prepare` sees the stack before it is started, to change what single processes are told.
    """
    migrate(database_url)
    with running() as model:
        stack = Replicas.planned(data, database_url, model, environment)
        prepare(stack)
        try:
            stack.start()
            stack.wait_ready()
            yield stack
        finally:
            for process in stack.processes.values():
                if process.alive:
                    os.kill(stack.pid(process.name), signal.SIGCONT)
            stack.stop()


def _is_ready(url: str) -> bool:
    try:
        return httpx2.get(url, timeout=2).status_code == 200
    except httpx2.HTTPError:
        return False


def _listens(address: str) -> bool:
    host, _, port = address.rpartition(":")
    try:
        with socket.create_connection((host, int(port)), timeout=2):
            return True
    except OSError:
        return False


def _tail(log: Path, lines: int = 20) -> str:
    return "\n".join(log.read_text(errors="replace").splitlines()[-lines:])
