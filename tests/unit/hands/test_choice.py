from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from services.hands.backends.choice import Choice
from services.hands.backends.port import BackendUnavailable, SandboxSpec, Volume
from services.hands.domain.limits import Limits
from tests.doubles.hands_backend import ScriptedBackend


class Counted(ScriptedBackend):
    def __init__(self) -> None:
        super().__init__()
        self.starts = 0
        self.closed = False

    async def start(self) -> None:
        self.starts += 1

    async def close(self) -> None:
        self.closed = True


def choice(directory: Path) -> tuple[Choice, dict[str, Counted]]:
    backends = {"local": Counted(), "docker": Counted()}
    makers: Any = {name: lambda name=name: backends[name] for name in backends}
    return Choice(directory, makers, "local"), backends


def spec(kind: str) -> SandboxSpec:
    return SandboxSpec("hand_1", Volume(Path("unused"), None), Limits(), kind)


async def test_default_is_started_with_the_service_and_others_when_they_are_asked_for(
    tmp_path: Path,
) -> None:
    chosen, backends = choice(tmp_path)
    await chosen.start()
    assert (backends["local"].starts, backends["docker"].starts) == (1, 0)
    for kind in ("", "local", "docker", "docker"):
        sandbox: Any = await chosen.launch(spec(kind))
        await sandbox.kill()
    assert (len(backends["local"].launched), len(backends["docker"].launched)) == (2, 2)
    assert backends["docker"].starts == 1
    await chosen.close()
    assert backends["local"].closed
    assert backends["docker"].closed


async def test_what_was_used_once_is_started_with_the_next_service_which_ends_what_it_left(
    tmp_path: Path,
) -> None:
    first, _ = choice(tmp_path)
    sandbox: Any = await first.launch(spec("docker"))
    await sandbox.kill()
    second, backends = choice(tmp_path)
    await second.start()
    assert backends["docker"].starts == 1


async def test_kind_that_there_is_not_is_told_with_those_that_there_are(tmp_path: Path) -> None:
    chosen, _ = choice(tmp_path)
    with pytest.raises(BackendUnavailable, match="kind vmware, only local, docker"):
        await chosen.launch(spec("vmware"))
