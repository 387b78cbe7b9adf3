"""Turns a second on the shape of docker-compose.yml, by the number of brains, and what gives out.

Everything is on one machine: the containers, a model of 0 ms among them, and the bench's client.
"""

from __future__ import annotations

import asyncio
import os
import resource
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import docker

from bench import throughput, turns
from bench.client import Connection
from bench.report import Report
from tests.compose.composition import Composition, composed, lacking, wait_for
from tests.doubles.docker_engine import lacking as no_engine
from tests.doubles.docker_engine import one_for_all, shared_engine

BRAINS: Final = (1, 2, 4)
SESSIONS: Final = 40
FULL: Final = 0.9
"""Of a processor, or of all of them: from there on it is what holds the rest up."""
_MACHINE: Final = "the machine's processors"
_CLIENT: Final = "the bench's own client"
_REST: Final = "all else on the machine"
_NOT_OURS: Final = {_CLIENT, _REST, "model"}
_SHOWN: Final = 6
_STEADY_SECONDS: Final = 60.0


@dataclass(frozen=True, slots=True)
class Used:
    """Seconds of processors until a moment: by container, and on the machine as a whole."""

    at: float
    by_container: Mapping[tuple[str, str], float]
    client: float
    machine: float

    def since(self, before: Used) -> Load:
        """Processors in use between two moments."""
        wall = self.at - before.at
        by_service: dict[str, list[float]] = {}
        for container, seconds in self.by_container.items():
            spent = (seconds - before.by_container[container]) / wall
            by_service.setdefault(container[0], []).append(spent)
        by_service[_CLIENT] = [(self.client - before.client) / wall]
        machine = (self.machine - before.machine) / wall
        by_service[_REST] = [machine - sum(map(sum, by_service.values()))]
        return Load(by_service, machine)


@dataclass(frozen=True, slots=True)
class Load:
    """Processors in use: of each service's containers, and of the machine."""

    by_service: Mapping[str, list[float]]
    machine: float

    @property
    def largest(self) -> list[tuple[str, float]]:
        """Services by what all of their containers use."""
        sums = {name: sum(used) for name, used in self.by_service.items()}
        return sorted(sums.items(), key=lambda one: -one[1])

    @property
    def fullest(self) -> tuple[str, float]:
        """The service with the busiest process, and how much of one processor it uses.

        That is all that a process of Python can use, whatever is left of the others.
        """
        ours = (
            (name, max(used)) for name, used in self.by_service.items() if name not in _NOT_OURS
        )
        return max(ours, key=lambda one: one[1])

    def full(self, processors: int) -> tuple[str, float]:
        """What gives out first, and how many processors it uses."""
        name, used = self.fullest
        if used >= FULL:
            return f"one process of {name}", used
        if self.machine >= FULL * processors:
            return f"{_MACHINE}, most of them for {self.largest[0][0]}", self.machine
        return f"nothing; nearest to it is one process of {name}", used


async def measure(report: Report, *, scale: float) -> None:
    """The same load on more and more brains."""
    if why := lacking() or no_engine():
        raise SystemExit(why)
    with one_for_all(), tempfile.TemporaryDirectory(prefix="drover-bench-") as folder:
        engine = await asyncio.to_thread(shared_engine)
        client = docker.APIClient(base_url=engine.host, version="auto")
        with composed(engine, Path(folder)) as stack:
            for brains in BRAINS:
                await _with(stack, client, brains, report, max(5, int(25 * scale)))
        client.close()


async def _with(stack: Composition, client: Any, brains: int, report: Report, each: int) -> None:
    scaled = ("--scale", f"brain={brains}", "--no-recreate", "--no-build", "--no-deps", "brain")
    await asyncio.to_thread(stack.compose, "up", "--detach", *scaled)
    await asyncio.to_thread(_wait_for_brains, stack, client, brains)
    address = urlsplit(stack.url)

    def connect() -> Connection:
        return Connection(str(address.hostname), int(address.port or 0), stack.key)

    connection = connect()
    body = await turns.prepare(connection)
    await connection.close()
    await throughput.rate(connect, body, SESSIONS, 1)  # every brain has worked, and imported
    containers = await asyncio.to_thread(_containers, client)
    before = _used(containers)
    rate = await throughput.rate(connect, body, SESSIONS, each)
    load = _used(containers).since(before)
    what = f"compose, {brains} brain{'s' if brains > 1 else ''}"
    report.figure(f"{what}: turns/s at {SESSIONS} sessions", rate, "1/s")
    for name, used in load.largest[:_SHOWN]:
        report.figure(f"{what}: processor time of {name}", used / rate * 1000, "ms/turn")
    full, used = load.full(os.cpu_count() or 1)
    report.figure(f"{what}: gives out first here: {full}", used, "processors")
    name, used = load.fullest
    report.figure(
        f"{what}: and with more processors: one process of {name}, at", rate / used, "1/s"
    )


def _wait_for_brains(stack: Composition, client: Any, brains: int) -> None:
    """They are there as soon as they are healthy: session services look names up every second."""

    def steady() -> bool:
        listed = client.containers(filters={"label": "com.docker.compose.service=brain"})
        healthy = [one for one in listed if "(healthy)" in one["Status"]]
        return len(healthy) == len(listed) == brains and stack.is_ready()

    wait_for(steady, _STEADY_SECONDS, stack.logs)


def _containers(client: Any) -> dict[tuple[str, str], Path]:
    """Where the kernel counts each container's use of processors, by service and id."""
    found = {}
    for one in client.containers(filters={"label": "com.docker.compose.project"}):
        pid = client.inspect_container(one["Id"])["State"]["Pid"]
        found[one["Labels"]["com.docker.compose.service"], one["Id"]] = _group(pid)
    return found


def _group(pid: int) -> Path:
    """The file of a process's control group, of either version (cgroups(7))."""
    lines = Path(f"/proc/{pid}/cgroup").read_text(encoding="ascii").splitlines()
    groups = {}
    for line in lines:
        _, controllers, path = line.split(":", 2)
        groups.update(dict.fromkeys(controllers.split(","), path))
    if "cpuacct" in groups:
        return Path(f"/sys/fs/cgroup/cpuacct{groups['cpuacct']}/cpuacct.usage")
    return Path(f"/sys/fs/cgroup{groups['']}/cpu.stat")


def _seconds(counter: Path) -> float:
    text = counter.read_text(encoding="ascii")
    if text.startswith("usage_usec"):
        return int(text.split()[1]) / 1e6
    return int(text) / 1e9


def _used(containers: Mapping[tuple[str, str], Path]) -> Used:
    by_container = {container: _seconds(counter) for container, counter in containers.items()}
    own = resource.getrusage(resource.RUSAGE_SELF)
    return Used(time.perf_counter(), by_container, own.ru_utime + own.ru_stime, _machine())


def _machine() -> float:
    """Seconds that all processors were busy (proc(5), /proc/stat)."""
    fields = Path("/proc/stat").read_text(encoding="ascii").split("\n", 1)[0].split()[1:]
    user, nice, system, _, _, irq, soft = map(int, fields[:7])
    return (user + nice + system + irq + soft) / os.sysconf("SC_CLK_TCK")
