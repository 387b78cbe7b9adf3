"""A process that was started is somebody's to end, whatever fails next."""

from __future__ import annotations

import errno
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from services.hands.backends.local_sandbox import LocalSandbox
from services.hands.backends.marks import Marks
from services.hands.backends.port import SandboxSpec, Volume
from services.hands.backends.process import Handle
from services.hands.backends.spawning import Spawned
from services.hands.domain.limits import Limits


@pytest.fixture
def spawned() -> Iterator[Spawned]:
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    lifeline, held = socket.socketpair()
    with theirs, held:
        process = subprocess.Popen(["sleep", "60"], stdin=held.fileno())
    yield Spawned(process, ours, first=Handle.open(process.pid), lifeline=lifeline)
    process.kill()
    process.wait()


def failing(number: int) -> Any:
    def fail(*_args: object, **_options: object) -> None:
        raise OSError(number, "no more of that")

    return fail


@pytest.mark.parametrize(
    ("where", "what"),
    [
        ("services.hands.backends.marks._write", errno.ENOSPC),
        ("services.hands.backends.process.Handle.open", errno.EMFILE),
        ("asyncio.open_unix_connection", errno.EMFILE),
    ],
)
async def test_what_nobody_could_take_charge_of_has_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spawned: Spawned, where: str, what: int
) -> None:
    spec = SandboxSpec("hand_1", Volume(tmp_path, None), Limits())
    monkeypatch.setattr(where, failing(what))
    with pytest.raises(OSError, match="no more of that"):
        await LocalSandbox.open(spawned, spec, Marks(tmp_path / "marks"))
    assert spawned.process.returncode is not None
    assert spawned.lifeline is not None
    assert spawned.stream.fileno() == spawned.lifeline.fileno() == -1
    assert Marks(tmp_path / "marks").named() == {}
