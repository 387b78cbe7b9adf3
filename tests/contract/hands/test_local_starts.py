"""Of a local sandbox whose start fails or is cancelled, at whatever step, nothing is left."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from services.hands.backends.local import LocalBackend, _lay_out
from services.hands.backends.marks import Marks
from services.hands.backends.port import BackendUnavailable, SandboxSpec, Volume
from services.hands.backends.process import children
from services.hands.backends.zygote import Zygote
from services.hands.domain.limits import Limits
from services.hands.workspace import LAST_OWNER
from tests.doubles.hands_waiting import eventually

_FORK = Zygote.fork


@pytest.fixture(params=[True, False], ids=["forked", "unforked"])
async def backend(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[LocalBackend]:
    made = LocalBackend(tmp_path / "hands", minimum=frozenset(), forks=request.param)
    await made.start()
    yield made
    await made.close()


@pytest.fixture
def spec(tmp_path: Path) -> SandboxSpec:
    owner = LAST_OWNER if os.geteuid() == 0 else None
    volume = Volume(tmp_path / "hands" / "volume", owner)
    _lay_out(volume)
    return SandboxSpec("hand_1", volume, Limits())


def left(backend: LocalBackend, directory: Path) -> dict[str, int]:
    """How much there is of what a start makes."""
    return {
        "descriptors": len([*Path("/proc/self/fd").iterdir()]),
        "processes": len(_processes()),
        "groups": len(backend._groups.leftovers()),
        "marks": len(Marks(directory / "hands" / "run" / "marks").named()),
    }


def no_more(now: dict[str, int], before: dict[str, int]) -> bool:
    """Whether nothing was left. What other tests have left may go meanwhile."""
    return all(now[kind] <= count for kind, count in before.items())


def _processes() -> set[int]:
    # A process of each thread that starts some; the agents are the zygote's.
    own = {pid for thread in os.listdir("/proc/self/task") for pid in _children(thread)}  # noqa: PTH208
    return own | {pid for one in own for pid in children(one)}


def _children(thread: str) -> set[int]:
    try:
        text = Path(f"/proc/self/task/{thread}/children").read_text()
    except OSError:  # the thread has ended since
        return set()
    return set(map(int, text.split()))


async def _started_and_ended(backend: LocalBackend, spec: SandboxSpec) -> None:
    sandbox = await backend.launch(spec)
    await sandbox.reader.readexactly(4)
    await sandbox.confine()
    await sandbox.kill()


async def _confined_and_ended(backend: LocalBackend, spec: SandboxSpec) -> None:
    sandbox = await backend.launch(spec)
    try:
        await sandbox.confine()  # where one that is not forked joins its groups
    finally:
        await sandbox.kill()


def _raise(*_: Any, **__: Any) -> None:
    raise OSError("no more of that")


async def _failed(*_: Any, **__: Any) -> None:
    _raise()


async def _forked_and_failed(self: Zygote, *given: Any) -> None:
    stream = await _FORK(self, *given)
    with stream:
        await asyncio.get_running_loop().sock_recv(stream, 4)  # it is up
    _raise()


@pytest.mark.parametrize(
    "step",
    [
        ("services.hands.backends.zygote.Zygote.fork", _failed),
        ("services.hands.backends.zygote.Zygote.fork", _forked_and_failed),
        ("services.hands.backends.cgroup.ControlGroups.make", _raise),
        ("services.hands.backends.cgroup.Group.add", _raise),
        ("services.hands.backends.local_sandbox.LocalSandbox._mark", _raise),
        ("asyncio.open_unix_connection", _failed),
    ],
    ids=["ask", "fork", "groups", "join", "mark", "open"],
)
async def test_start_that_fails_leaves_nothing(
    backend: LocalBackend, spec: SandboxSpec, tmp_path: Path, step: tuple[str, Any]
) -> None:
    await _started_and_ended(backend, spec)
    before = left(backend, tmp_path)
    where, instead = step
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(where, instead)
        if "zygote" in where and not backend._forks:
            return
        if "cgroup" in where and not backend._groups.bounds_memory:
            return
        with pytest.raises((OSError, BackendUnavailable)):
            await _confined_and_ended(backend, spec)
    await eventually(lambda: no_more(left(backend, tmp_path), before))  # who was asked finds nobody
    await _started_and_ended(backend, spec)
    await eventually(lambda: no_more(left(backend, tmp_path), before))


@pytest.mark.parametrize("times", [1, 2, 3])
@pytest.mark.parametrize("turns", [1, 2, 4, 8, 16, 32])
async def test_start_that_is_cancelled_leaves_nothing(
    backend: LocalBackend, spec: SandboxSpec, tmp_path: Path, turns: int, times: int
) -> None:
    await _started_and_ended(backend, spec)
    before = left(backend, tmp_path)
    start = asyncio.create_task(backend.launch(spec))
    for _ in range(turns):
        await asyncio.wait([start], timeout=0.0005)
    for _ in range(times):
        start.cancel()
        await asyncio.wait([start], timeout=0.0005)
    (ended,) = await asyncio.gather(start, return_exceptions=True)
    if not isinstance(ended, BaseException):
        await ended.kill()
    # Another: the end of the first may go on, of one that was cancelled again and again.
    await _started_and_ended(backend, replace(spec, hand_id="hand_2"))
    await eventually(lambda: no_more(left(backend, tmp_path), before))
