from __future__ import annotations

import asyncio
import os
import select
import signal
import subprocess
import sys
import textwrap
import time
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from cli.stack import ports, probe
from cli.stack.nursery import LaunchError, Nursery
from cli.stack.order import Order
from cli.stack.prctl import adopt_orphans
from cli.stack.reaper import Reaper

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

DEADLINE = 20.0


@asynccontextmanager
async def nursery(directory: Path, *modules: str) -> AsyncIterator[Nursery]:
    reaper = Reaper()
    reaper.install()
    lock = os.open(directory / "lock", os.O_RDWR | os.O_CREAT)
    made = Nursery(
        reaper,
        environment=dict(os.environ),
        modules=modules,
        log=directory / "warm.log",
        keep_open=lock,
    )
    try:
        async with asyncio.timeout(DEADLINE):
            yield made
    finally:
        made.close()
        os.close(lock)
        asyncio.get_running_loop().remove_signal_handler(signal.SIGCHLD)
        adopt_orphans(adopt=False)
        with suppress(ChildProcessError):
            os.waitpid(made.warm_pid, 0)  # noqa: ASYNC222  # it was killed


def order(directory: Path, module: str = "listener", **environment: str) -> Order:
    return Order(
        name="probe",
        module=f"tests.integration.cli.{module}",
        log=str(directory / "probe.log"),
        environment={"DROVER_LISTEN": f"127.0.0.1:{ports.choose(1)[0]}", **environment},
    )


async def greeting(wanted: Order) -> list[str]:
    address = wanted.environment["DROVER_LISTEN"]
    await probe.NetworkProbe().listens(address)
    reader, writer = await asyncio.open_connection(*probe.split(address))
    line = (await reader.readline()).decode()
    writer.close()
    await writer.wait_closed()
    return line.split()


@pytest.mark.parametrize("module", ["listener", "threaded"])
async def test_service_becomes_a_child_of_the_supervisor(tmp_path: Path, module: str) -> None:
    async with nursery(tmp_path) as warm:
        wanted = order(tmp_path, module, SECRET="shibboleth")
        child = await warm.launch(wanted)
        assert await greeting(wanted) == [str(child.pid), "shibboleth"]
        assert _parent(child.pid) == os.getpid()
        child.send(signal.SIGTERM)
        assert await child.wait() == 0
    assert (tmp_path / "probe.log").read_text() == "listening\n"


async def test_secret_of_one_service_is_not_in_what_others_can_read_of_it(tmp_path: Path) -> None:
    async with nursery(tmp_path) as warm:
        wanted = order(tmp_path, SECRET="shibboleth")
        child = await warm.launch(wanted)
        await greeting(wanted)
        for file in ("environ", "cmdline"):
            assert b"shibboleth" not in Path(f"/proc/{child.pid}/{file}").read_bytes()
        child.send(signal.SIGKILL)
        assert await child.wait() == -signal.SIGKILL


async def test_restart_from_the_warm_process_takes_no_imports(tmp_path: Path) -> None:
    async with nursery(tmp_path) as warm:
        wanted, took = order(tmp_path), []
        for _ in range(6):
            began = time.monotonic()
            child = await warm.launch(wanted)
            await greeting(wanted)
            took.append(time.monotonic() - began)
            child.send(signal.SIGKILL)
            await child.wait()
        assert min(took) < 1  # the others, too, where nothing else wants the processor


async def test_services_outlive_the_warm_process_and_it_is_made_anew(tmp_path: Path) -> None:
    module = "tests.integration.cli.listener"
    async with nursery(tmp_path, module) as warm, asyncio.TaskGroup() as group:
        running = group.create_task(warm.run())
        first_order, second_order = order(tmp_path), order(tmp_path)
        first = await warm.launch(first_order)
        await greeting(first_order)
        os.kill(warm.warm_pid, signal.SIGKILL)
        second = await warm.launch(second_order)
        assert await greeting(first_order) == [str(first.pid)]
        assert await greeting(second_order) == [str(second.pid)]
        for child in (first, second):
            child.send(signal.SIGTERM)
            assert await child.wait() == 0
        running.cancel()


async def test_module_that_cannot_be_imported_is_named(tmp_path: Path) -> None:
    async with nursery(tmp_path) as warm:
        with pytest.raises(LaunchError, match=r"No module named .*missing"):
            await warm.launch(order(tmp_path, "missing"))
        wanted = order(tmp_path)
        child = await warm.launch(wanted)
        child.send(signal.SIGKILL)
        await child.wait()


def test_nothing_survives_a_supervisor_that_is_killed(tmp_path: Path) -> None:
    script = textwrap.dedent("""
        import asyncio, pathlib, sys
        from tests.integration.cli.test_nursery import nursery, order, greeting

        async def main(directory):
            async with nursery(directory) as warm:
                wanted = order(directory)
                child = await warm.launch(wanted)
                await greeting(wanted)
                print(warm.warm_pid, child.pid, flush=True)
                await asyncio.Event().wait()

        asyncio.run(main(pathlib.Path(sys.argv[1])))
    """)
    with subprocess.Popen(
        [sys.executable, "-c", script, str(tmp_path)], stdout=subprocess.PIPE, text=True
    ) as supervisor:
        assert supervisor.stdout is not None
        descriptors = [os.pidfd_open(int(pid)) for pid in supervisor.stdout.readline().split()]
        supervisor.kill()
    assert len(descriptors) == 2
    for descriptor in descriptors:
        _await_end(descriptor)
        os.close(descriptor)


def _await_end(descriptor: int) -> None:
    readable, _, _ = select.select([descriptor], [], [], DEADLINE)
    assert readable, "a process survived"


def _parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
