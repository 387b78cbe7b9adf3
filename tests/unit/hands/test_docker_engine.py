"""What a call of the engine's API that takes long holds up."""

from __future__ import annotations

import asyncio
import socket
from pathlib import Path
from threading import Event
from typing import Any

import docker
import pytest

from services.hands.backends.docker.engine import Engine


async def test_commit_holds_up_neither_who_is_cancelled_nor_the_end_of_the_service(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, answer, over = Event(), Event(), Event()

    class Client:
        def __init__(self, **_: Any) -> None:
            """Of an engine that takes its time."""

        def commit(self, *_: str, **_conf: Any) -> None:
            begun.set()
            answer.wait(120)

        def close(self) -> None:
            over.set()

    monkeypatch.setattr(docker, "APIClient", Client)
    path = tmp_path / "engine"
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(path))
        listening.listen()
        engine = Engine(f"unix://{path}", threads=1, seconds=5.0)
        committing = asyncio.create_task(engine.commit("drover-hand_1", "box", "key", {}))
        assert await asyncio.to_thread(begun.wait, 30)
        committing.cancel()
        async with asyncio.timeout(30):
            await asyncio.wait([committing])
            await engine.close()
    assert committing.cancelled()
    assert not over.is_set()
    answer.set()
    assert await asyncio.to_thread(over.wait, 30)
