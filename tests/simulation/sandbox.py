"""Sandboxes whose tools leave nothing but a mark that is counted, and may die at any moment."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from services.hands.backends.port import BackendUnavailable, Volume

if TYPE_CHECKING:
    from collections.abc import Collection

    from services.hands.backends.port import SandboxSpec
    from tests.simulation.disk import Disk
    from tests.simulation.loop import Life


class Sandbox:
    """The agent's end of the stream is played here."""

    resource_limits: ClassVar[dict[str, int]] = {}
    advice = ""
    has_way_out = False

    def __init__(self, disk: Disk, life: Life, number: int, fate: Fate) -> None:
        self._disk = disk
        self._life = life
        self._fate = fate
        self.number = number
        self.reader = asyncio.StreamReader(loop=disk.loop)
        self.writer: Any = _Writer(self)
        self._buffer = b""
        self._running: dict[int, list[asyncio.TimerHandle]] = {}
        self._over = asyncio.Event()
        self._gone = False
        self._later(fate.start(), self._send, {"type": "ready"})

    def _later(self, delay: float, callback: Any, *args: Any) -> asyncio.TimerHandle:
        context = self._life.context()
        return self._disk.loop.call_later(delay, self._unless_gone, callback, args, context=context)

    def _unless_gone(self, callback: Any, args: Any) -> None:
        if not self._gone:
            callback(*args)

    def take(self, data: bytes) -> None:
        self._buffer += data
        while len(self._buffer) >= 4:
            size = 4 + int.from_bytes(self._buffer[:4], "big")
            if len(self._buffer) < size:
                return
            message, self._buffer = json.loads(self._buffer[4:size]), self._buffer[size:]
            self._heed(message)

    def _heed(self, message: dict[str, Any]) -> None:
        match message["type"]:
            case "hello":
                self._later(0.001, self._send, {"type": "serving"})
            case "call":
                self._call(message)
            case "cancel":
                self._cancel(message["id"])

    def _call(self, message: dict[str, Any]) -> None:
        before, after = self._fate.duration()
        number = message["id"]
        mark = message["input"].get("command") or message["input"].get("file_path") or ""
        if self._fate.dies():
            self._later(before + after * self._disk.rng.random(), self.die)
        limit = message["timeout"]
        self._running[number] = [
            self._later(min(before, limit), self._act, mark),
            self._later(min(before + after, limit), self._answer, number, mark, before <= limit),
        ]

    def _act(self, mark: str) -> None:
        self._disk.effects[mark] += 1
        self._disk.trace.note(self._life, "effect", mark)

    def _answer(self, number: int, mark: str, in_time: bool) -> None:
        del self._running[number]
        ended = "completed" if in_time else "timeout"
        self._send(_result(number, ended, f"did {mark}"))

    def _cancel(self, number: int) -> None:
        if number not in self._running or self._fate.is_stubborn():
            return
        for timer in self._running.pop(number):
            timer.cancel()
        self._later(0.002, self._send, _result(number, "cancelled", ""))

    def _send(self, message: dict[str, Any]) -> None:
        body = json.dumps(message).encode()
        self.reader.feed_data(len(body).to_bytes(4, "big") + body)

    def die(self) -> None:
        """The sandbox ends by itself, as when its memory is used up."""
        if not self._gone:
            self._disk.trace.note(self._life, "sandbox dies", self.number)
            self._gone = True
            self.reader.feed_eof()

    async def confine(self) -> None:
        """Nothing to bound."""

    async def kill(self) -> None:
        self.die()
        self._over.set()

    async def ended(self) -> str:
        await self._over.wait()
        return "it was simulated"


def _result(number: int, ended: str, text: str) -> dict[str, Any]:
    error = ended != "completed"
    return {
        "type": "result", "id": number, "ended": ended, "error": error, "milliseconds": 1.0,
        "text": text,
    }  # fmt: skip


class _Writer:
    def __init__(self, sandbox: Sandbox) -> None:
        self._sandbox = sandbox
        self.transport = self

    def write(self, data: bytes) -> None:
        if not self._sandbox._gone:
            self._sandbox.take(data)

    def abort(self) -> None:
        self._sandbox.die()


class Fate:
    """How long tools take, and what befalls sandboxes."""

    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        self.death = 0.0
        self.refusal = 0.0
        self.stubborn = 0.0

    def calm(self) -> None:
        self.death = self.refusal = self.stubborn = 0.0

    def start(self) -> float:
        return 0.01 + 0.2 * self._disk.rng.random() ** 3

    def duration(self) -> tuple[float, float]:
        """Seconds until the effect, and from then to the answer."""
        rng = self._disk.rng
        longest = 8.0 if rng.random() < 0.05 else 0.3
        if rng.random() < 0.01:
            longest = 300.0
        return longest * rng.random() ** 2, longest * rng.random() ** 2 / 2

    def dies(self) -> bool:
        return self._disk.rng.random() < self.death

    def refuses(self) -> bool:
        return self._disk.rng.random() < self.refusal

    def is_stubborn(self) -> bool:
        return self._disk.rng.random() < self.stubborn


class Backend:
    """Starts sandboxes."""

    name = "simulated"

    def __init__(self, disk: Disk, life: Life, fate: Fate) -> None:
        self._disk = disk
        self._life = life
        self._fate = fate
        self._started = 0
        self.sandboxes: list[Sandbox] = []

    async def start(self) -> None:
        """Nothing to get ready."""

    async def system(self, kind: str, image: str) -> str:
        return f"{kind} {image}"

    async def layers(self, kind: str) -> None:
        """None."""

    async def launch(self, spec: SandboxSpec) -> Sandbox:
        await asyncio.sleep(self._fate.start())
        if self._fate.refuses():
            msg = "no sandbox just now"
            raise BackendUnavailable(msg)
        self._started += 1
        sandbox = Sandbox(self._disk, self._life, self._started, self._fate)
        self.sandboxes.append(sandbox)
        return sandbox

    async def close(self) -> None:
        """Nothing to let go of."""


class Workspaces:
    """Volumes that are only names."""

    def __init__(self, disk: Disk) -> None:
        self._volumes = disk.volumes

    def find(self, session_id: str) -> Volume | None:
        return self._volumes.get(session_id)

    async def complete(self, _volume: Volume, _stores: Collection[str] = ()) -> None:
        """No volume lacks anything."""

    async def make(self, session_id: str, _stores: Collection[str] = ()) -> Volume:
        await asyncio.sleep(0.001)
        return self._volumes.setdefault(session_id, Volume(Path(session_id), None))

    async def make_spare(self, name: str) -> Volume:
        await asyncio.sleep(0.001)
        return Volume(Path(name), None)

    def adopt(self, session_id: str, spare: Volume) -> Volume:
        assert session_id not in self._volumes
        self._volumes[session_id] = spare
        return spare

    async def addresses(self, session_id: str) -> list[str]:
        return [session_id] if session_id in self._volumes else []

    async def purge(self, session_id: str) -> None:
        await asyncio.sleep(0.001)
        self._volumes.pop(session_id, None)

    async def remove(self, volume: Volume) -> None:
        await asyncio.sleep(0.001)
