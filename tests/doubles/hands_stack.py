"""The hands as they run, but for the wire: real sandboxes, a real journal."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import pytest

from chassis.clock import SystemClock
from chassis.ids import new_id
from drover.hands.v1.hands_service_pb2 import ExecuteResponse
from services.hands.backends.docker.backend import DockerBackend
from services.hands.backends.docker.settings import EngineSettings
from services.hands.backends.kubernetes.backend import KubernetesBackend
from services.hands.backends.local import LocalBackend
from services.hands.custody import Custody
from services.hands.domain.execution import SANDBOX_LOST, SHELL_LOST
from services.hands.domain.limits import MIB, Limits
from services.hands.domain.recipe import Recipe
from services.hands.egress.network import Network
from services.hands.executor import Executor
from services.hands.given import Given
from services.hands.lifecycle import Unobserved
from services.hands.memory.attendant import MemoryDirectories
from services.hands.memory.pushing import Memories
from services.hands.outputs.publisher import Pace
from services.hands.outputs.scan import Bounds
from services.hands.packages.builder import Terms
from services.hands.pool import Pool, PoolSize
from services.hands.store.handovers import SqlHandOvers
from services.hands.store.journal import SqlJournal
from services.hands.store.owners import SqlOwners
from services.hands.store.schema import SCHEMA
from services.hands.workspace import Workspaces
from storage import open_database
from tests.doubles.docker_engine import IMAGE, Engine
from tests.doubles.kubernetes_cluster import Cluster
from tests.doubles.standing import PromptExit

KINDS = ("local", "docker")
UNFORKED = ("local-unforked",)
"""Local sandboxes as they are where no agent can be forked into them."""
RUNTIMES = ("runsc",)
"""Other runtimes of the engine, over which the backends' contract is tested, too."""
CLUSTERS = ("kubernetes",)
"""A cluster's API without a cluster: what it promises is tested, how strong a node is cannot be."""

SMALL = Limits(
    memory_bytes=512 * MIB, processes=64, cpus=1.0, file_bytes=64 * MIB, tmp_bytes=128 * MIB
)


class HandsStack:
    """Runs tools for the sessions of one test."""

    def __init__(
        self, backend: Any, pool: Pool, executor: Executor, given: Given | None = None
    ) -> None:
        self.backend = backend
        self.pool = pool
        self.executor = executor
        self._given = given

    def news(self, session_id: str) -> bool:
        """Whether the session's next call is to be told of its outputs."""
        assert self._given is not None
        return self._given.publisher.has_news(session_id)

    def failures(self, session_id: str) -> int:
        """How often its outputs could not be published in a row."""
        assert self._given is not None
        return self._given.publisher._watches[session_id].attempts

    async def run(
        self, tool: str, *, session_id: str = "sesn_1", call_id: str = "", **given: Any
    ) -> ExecuteResponse:
        call_id = call_id or new_id("sevt")
        return await self.executor.execute(session_id, call_id, 1, tool, json.dumps(given))

    async def bash(self, command: str, **given: Any) -> str:
        """What a command prints, and no note below it; fails if the command does."""
        result = await self.run("bash", command=command, **given)
        assert not result.is_error, text(result)
        return printed(result)

    @property
    def idle_processes(self) -> int:
        """How many a sandbox has that runs nothing: its own, the agent and the shell."""
        return 4 if isinstance(self.backend, LocalBackend) else 3

    def processes(self, session_id: str = "sesn_1") -> set[int]:
        """Host numbers of every process in a session's sandbox."""
        sandbox: Any = self.pool._seats[session_id].hand.result()._sandbox
        if isinstance(self.backend, LocalBackend):
            return _local(self.backend, sandbox._process.pid)
        if isinstance(self.backend, KubernetesBackend):
            return contained(sandbox._name)
        return contained(sandbox._id)


def _local(backend: LocalBackend, outer: int) -> set[int]:
    """Those below its bubblewrap, and those in its namespace that were forked into it."""
    found = _below(outer)
    nursery = backend._spawner.nursery if backend._spawner is not None else None
    if nursery is None:
        return found
    spaces = {_space(pid) for pid in found - {outer}} | {None}
    return found | {pid for pid in _below(nursery.pid) - {nursery.pid} if _space(pid) in spaces}


def _space(pid: int) -> str | None:
    """A process's namespace; None where that is not ours to know, or it has just ended."""
    try:
        return str(Path(f"/proc/{pid}/ns/pid").readlink())
    except OSError:
        return None


def _below(outer: int) -> set[int]:
    found, pending = set(), [outer]
    while pending:
        pid = pending.pop()
        found.add(pid)
        for task in Path(f"/proc/{pid}/task").glob("*/children"):
            with suppress(OSError):  # it has just ended
                pending += map(int, task.read_text().split())
    return found


def contained(container_id: str) -> set[int]:
    """Host numbers of every process in a container."""
    found = set()
    for entry in Path("/proc").iterdir():
        with suppress(OSError):
            if entry.name.isdigit() and container_id in (entry / "cgroup").read_text():
                found.add(int(entry.name))
    return found


def text(result: ExecuteResponse) -> str:
    return "".join(block.text.text for block in result.content)


def printed(result: ExecuteResponse) -> str:
    """A result's text without the note that its shell was new."""
    shown = text(result)
    for note in (SHELL_LOST, SANDBOX_LOST):
        shown = shown.removesuffix(note)
    return shown if shown == text(result) else shown.removesuffix("\n")


def running(pid: int) -> bool:
    """Whether a process runs; one that has ended and waits to be reaped does not."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state not in "ZX"


class Attaches(Protocol):
    """What is outside of sandboxes: the real egress proxy, or what stands for it."""

    async def network(self, directory: Path, tasks: asyncio.TaskGroup) -> Network: ...


@dataclass(frozen=True)
class Sandboxes:
    """One kind of sandbox that a suite runs over; `host` is where its engine is, if it has one."""

    kind: str
    host: str = ""
    runtime: str = ""
    cluster: Cluster | None = None

    def backend(self, directory: Path, **settings: Any) -> Any:
        if self.kind in {"local", *UNFORKED}:
            # What it protects against is asserted, not demanded at each start.
            forks = self.kind == "local"
            return LocalBackend(directory, minimum=frozenset(), forks=forks)
        if self.cluster is not None:
            return KubernetesBackend(directory, self.cluster.settings(**settings))
        given = {"host": self.host, "image": IMAGE, "runtime": self.runtime, **settings}
        return DockerBackend(directory, EngineSettings(**given))

    def stack(self, directory: Path, **given: Any) -> AbstractAsyncContextManager[HandsStack]:
        return hands_stack(directory, backend=self.backend(directory / "hands"), **given)


def chosen(request: pytest.FixtureRequest) -> Sandboxes:
    """What a fixture's parameter names."""
    if request.param in {"docker", "runsc"}:
        engine: Engine = request.getfixturevalue("docker_engine")
        runtime = "" if request.param == "docker" else request.param
        if runtime and runtime not in engine.runtimes:
            pytest.skip(f"no {runtime}: apt-get install --no-install-recommends {runtime}")
        return Sandboxes("docker", engine.host, runtime)
    if request.param == "kubernetes":
        return Sandboxes("kubernetes", cluster=request.getfixturevalue("cluster"))
    return Sandboxes(request.param)


@asynccontextmanager
async def hands_stack(
    directory: Path,
    *,
    limits: Limits = SMALL,
    spares: int = 0,
    pools: Mapping[Recipe, int] | None = None,
    backend: Any = None,
    outside: Attaches | None = None,
    packages: Terms | None = None,
    memories: Memories | None = None,
    registry: Any = None,
) -> AsyncIterator[HandsStack]:
    """A stack over `directory`; everything that it started has ended afterwards.

    Its sandboxes have a way out where there is an `outside`, memory stores where there are
    `memories`, and files, skills and outputs where there is a `registry`.
    """
    directory.mkdir(parents=True, exist_ok=True)
    async with PromptExit() as stack:
        database = await open_database(f"sqlite:///{directory}/hands.db", SCHEMA)
        stack.push_async_callback(database.close)
        backend = backend or Sandboxes("local").backend(directory / "hands")
        stack.push_async_callback(backend.close)
        await backend.start()
        workspaces = Workspaces(directory / "hands", privileged=os.geteuid() == 0)
        await workspaces.start()
        if packages is not None:
            packages.shelf.start()
        tasks = await stack.enter_async_context(asyncio.TaskGroup())
        memory = None
        if memories is not None:
            memory = MemoryDirectories(memories, workspaces, tasks, every=0.2)
        given = None
        if registry is not None:
            given = Given(
                registry,
                memory or MemoryDirectories(registry, workspaces, tasks),
                SqlOwners(database),
                workspaces,
                tasks,
                bounds=Bounds(files=20, file_bytes=8 * MIB),
                directory=directory / "hands",
                free_bytes=0,
                clock=SystemClock(),
                pace=Pace(quiet=0.15, last=5.0, stop=5.0),
            )
        lifecycle = memory if given is None else given.told(memory or Unobserved())
        pool = Pool(
            backend,
            workspaces,
            tasks,
            limits=limits,
            lifecycle=lifecycle,
            pools=pools,
            size=PoolSize(spares=spares, max_live=8),
            clock=SystemClock(),
            ids=new_id,
            network=await outside.network(directory / "hands", tasks) if outside else None,
            packages=packages,
        )
        if given is not None:
            stack.push_async_callback(given.close)
            await given.equip(pool)
        elif memory is not None:
            stack.push_async_callback(memory.close)
            pool.pieces.append(memory)
            pool.attendants.append(memory)
        stack.push_async_callback(pool.close)
        custody = Custody(SqlHandOvers(database, SystemClock()), pool, workspaces, lifecycle)
        await custody.recover()
        executor = Executor(SqlJournal(database, SystemClock()), pool, tasks, custody)
        yield HandsStack(backend, pool, executor, given)
