from __future__ import annotations

import asyncio
import errno
import os
import signal
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from chassis.errors import WRONG_SETTINGS
from chassis.secret import Secret
from cli.stack.installation import Installation, write_private
from cli.stack.plan import Plan
from cli.stack.service import Stage
from cli.stack.supervisor import FailedError, Supervisor
from tests.unit.cli.conftest import FakeChild, FakeClock, FakeLauncher

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from cli.stack.order import Order
    from cli.stack.service import Change

DEADLINE = 30.0
OUTSIDE_IN = ["gateway", "brain-1", "brain-2"]


class NamedLauncher(FakeLauncher):
    """Keeps its children by name, and the order in which they were asked to end."""

    def __init__(self) -> None:
        super().__init__()
        self.by_name: dict[str, FakeChild] = {}
        self.ended: list[str] = []
        self.broken: set[str] = set()
        self.code = 1

    async def launch(self, order: Order) -> FakeChild:
        child = await super().launch(order)
        self.by_name[order.name] = child
        child.exit.add_done_callback(lambda _: self.ended.append(order.name))
        if order.name in self.broken:
            child.end(self.code)
        return child


class SwitchedProbe:
    """Finds every service there, and the stack ready when a test says so."""

    def __init__(self) -> None:
        self.is_ready = asyncio.Event()

    async def listens(self, address: str) -> None:
        del address

    async def ready(self, address: str) -> None:
        assert address == "127.0.0.1:8080"
        await self.is_ready.wait()


class RecordingDisplay:
    def __init__(self) -> None:
        self.said = asyncio.Event()
        self.changes: list[Change] = []
        self.readied = asyncio.Event()
        self.reason = ""

    def changed(self, change: Change) -> None:
        self.changes.append(change)
        self.said.set()

    def ready(self) -> None:
        self.readied.set()

    def stopping(self, reason: str) -> None:
        self.reason = reason

    async def until(self, name: str, stage: Stage, times: int = 1) -> None:
        while sum(change.name == name and change.stage is stage for change in self.changes) < times:
            self.said.clear()
            await self.said.wait()


class Rig:
    def __init__(self, directory: Path, clock: FakeClock, stop_seconds: float = 10.0) -> None:
        self.launcher = NamedLauncher()
        self.probe = SwitchedProbe()
        self.display = RecordingDisplay()
        self.installation = Installation(directory)
        os.close(self.installation.acquire())
        self.plan = Plan.make(host="127.0.0.1", port=8080, brains=2, ports=range(2000, 2006))
        orders = self.plan.orders(self.installation, {}, Secret("drv_key"))
        self.supervisor = Supervisor(
            self.plan,
            self.installation,
            orders=[replace(order, stop_seconds=stop_seconds) for order in orders],
            launcher=self.launcher,
            probe=self.probe,
            display=self.display,
            clock=clock,
        )

    @asynccontextmanager
    async def running(self) -> AsyncIterator[asyncio.Task[None]]:
        """A stack whose services all listen."""
        async with asyncio.timeout(DEADLINE):
            task = asyncio.ensure_future(self.supervisor.run())
            for part in self.plan.parts:
                await self.display.until(part.name, Stage.LISTENING)
            yield task


@pytest.fixture
async def rig(tmp_path: Path, clock: FakeClock) -> Rig:
    return Rig(tmp_path, clock)


async def test_signal_ends_the_stack_from_the_outside_in(rig: Rig) -> None:
    async with rig.running() as task:
        os.kill(os.getpid(), signal.SIGTERM)
        await task
    assert rig.display.reason == "SIGTERM"
    assert rig.launcher.ended[0] == "gateway"
    assert set(rig.launcher.ended[:3]) == set(OUTSIDE_IN)
    assert len(rig.launcher.ended) == len(rig.plan.parts)
    assert all(child.signals == [signal.SIGTERM] for child in rig.launcher.by_name.values())


async def test_second_signal_kills_what_does_not_end(rig: Rig) -> None:
    rig.launcher.heeds_term = False
    async with rig.running() as task:
        os.kill(os.getpid(), signal.SIGINT)
        await rig.launcher.by_name["gateway"].signalled.wait()
        os.kill(os.getpid(), signal.SIGINT)
        await task
    assert all(signal.SIGKILL in child.signals for child in rig.launcher.by_name.values())


async def test_what_takes_longer_to_end_than_it_gives_itself_is_killed(
    tmp_path: Path, clock: FakeClock
) -> None:
    rig = Rig(tmp_path, clock, stop_seconds=-1.99)  # two seconds are added
    rig.launcher.heeds_term = False
    async with rig.running() as task:
        os.kill(os.getpid(), signal.SIGTERM)
        await task
    ends = [child.signals for child in rig.launcher.by_name.values()]
    assert ends == [[signal.SIGTERM, signal.SIGKILL]] * len(rig.plan.parts)


async def test_pid_and_address_files_tell_what_runs_and_only_that(
    rig: Rig, clock: FakeClock
) -> None:
    async with rig.running() as task:
        for name, child in rig.launcher.by_name.items():
            assert rig.installation.pid_file(name).read_text() == f"{child.pid}\n"
        assert rig.installation.address_file("gateway").read_text() == "127.0.0.1:8080\n"
        first = rig.launcher.by_name["hands"]
        clock.time += 60
        first.end(-signal.SIGKILL)
        await rig.display.until("hands", Stage.DIED)
        assert rig.installation.pid_file("hands").exists()
        await rig.display.until("hands", Stage.LISTENING, times=2)
        second = rig.launcher.by_name["hands"]
        assert rig.installation.pid_file("hands").read_text() == f"{second.pid}\n"
        os.kill(os.getpid(), signal.SIGTERM)
        await task
    assert not list(rig.installation.run.glob("*.pid"))
    assert not list(rig.installation.run.glob("*.address"))


async def test_stack_says_that_it_is_ready_when_the_gateway_does(rig: Rig) -> None:
    async with rig.running() as task:
        assert not rig.display.readied.is_set()
        rig.probe.is_ready.set()
        await rig.display.readied.wait()
        os.kill(os.getpid(), signal.SIGTERM)
        await task


async def test_service_that_never_comes_up_ends_the_start_and_is_named(rig: Rig) -> None:
    rig.launcher.broken = {"session"}
    async with asyncio.timeout(DEADLINE * 2):
        with pytest.raises(FailedError, match="session does not come up: exited with code 1"):
            await rig.supervisor.run()
    assert set(rig.launcher.ended) == {part.name for part in rig.plan.parts}


async def test_stack_that_was_ready_never_gives_up_on_a_service(rig: Rig) -> None:
    async with rig.running() as task:
        rig.probe.is_ready.set()
        await rig.display.readied.wait()
        rig.launcher.broken = {"vault_proxy"}
        rig.launcher.by_name["vault_proxy"].end(1)
        await rig.display.until("vault_proxy", Stage.DIED, times=4)
        assert not rig.installation.pid_file("vault_proxy").exists()
        rig.launcher.broken = set()
        assert not task.done()
        os.kill(os.getpid(), signal.SIGTERM)
        await task


async def test_service_that_cannot_use_its_settings_ends_the_start_at_once(rig: Rig) -> None:
    rig.launcher.broken.add("session")
    rig.launcher.code = WRONG_SETTINGS
    async with asyncio.timeout(DEADLINE):
        with pytest.raises(FailedError, match="session cannot use its settings: `drover doctor`"):
            await rig.supervisor.run()
    died = [change for change in rig.display.changes if change.is_hopeless]
    assert [change.name for change in died] == ["session"]
    assert list(rig.installation.run.glob("*.pid")) == []


async def test_full_disk_ends_the_start_and_not_a_stack_that_runs(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(path: Path, text: str) -> None:
        if path.suffix == ".pid":
            raise OSError(errno.ENOSPC, "No space left on device")
        write_private(path, text)

    monkeypatch.setattr("cli.stack.supervisor.write_private", full)
    async with asyncio.timeout(DEADLINE):
        with pytest.raises(FailedError, match="No space left on device: make room"):
            await rig.supervisor.run()
    monkeypatch.undo()
    other = Rig(rig.installation.root / "other", FakeClock())
    async with other.running() as task:
        other.probe.is_ready.set()
        await other.display.readied.wait()
        monkeypatch.setattr("cli.stack.supervisor.write_private", full)
        other.launcher.by_name["hands"].end(1)
        await other.display.until("hands", Stage.LISTENING, times=2)
        assert not task.done()
        os.kill(os.getpid(), signal.SIGTERM)
        await task
