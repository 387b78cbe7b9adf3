"""A backend without sandboxes: the other end of the stream is an agent that the test scripts."""

from __future__ import annotations

import asyncio
import json
import socket
from collections import Counter
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from services.hands.backends.port import BackendUnavailable, ImageGone

if TYPE_CHECKING:
    from services.hands.backends.port import SandboxSpec


class ScriptedSandbox:
    """Greets like an agent, then hands every frame to the test through `frames`."""

    def __init__(self, spec: SandboxSpec) -> None:
        self.spec = spec
        self.resource_limits: dict[str, int] = {}
        self.advice = "user namespaces must be allowed"
        self.has_way_out = spec.way_out is not None
        self.frames: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self.confined = False
        self.killed = asyncio.Event()
        self.kills = 0
        self.hold_kill: asyncio.Event | None = None
        self.why = ""
        self._agent: asyncio.StreamWriter | None = None
        self._task: asyncio.Task[None] | None = None

    async def open(self, greeting: bytes | None = None) -> None:
        ours, theirs = socket.socketpair()
        self.reader, self.writer = await asyncio.open_unix_connection(sock=ours)
        reader, self._agent = await asyncio.open_unix_connection(sock=theirs)
        if greeting is None:
            self.send({"type": "ready"})
        else:
            self.send_bytes(greeting)
        self._task = asyncio.create_task(self._serve(reader))

    async def _serve(self, reader: asyncio.StreamReader) -> None:
        while True:
            try:
                size = int.from_bytes(await reader.readexactly(4), "big")
                message = json.loads(await reader.readexactly(size))
            except (asyncio.IncompleteReadError, ConnectionError):
                return
            if message["type"] == "hello":
                self.send({"type": "serving"})
            else:
                self.frames.put_nowait(message)

    def send(self, message: dict[str, Any]) -> None:
        body = json.dumps(message).encode()
        self.send_bytes(len(body).to_bytes(4, "big") + body)

    def send_bytes(self, data: bytes) -> None:
        assert self._agent is not None
        self._agent.write(data)

    def answer(self, call: dict[str, Any], text: str = "", **changes: Any) -> None:
        """Answers a call that was taken from `frames`."""
        result = {"type": "result", "id": call["id"], "ended": "completed", "error": False}
        self.send({**result, "milliseconds": 1.5, "text": text, **changes})

    def die(self, why: str = "") -> None:
        """The sandbox ends by itself."""
        self.why = why
        assert self._agent is not None
        self._agent.close()

    async def confine(self) -> None:
        self.confined = True

    async def kill(self) -> None:
        self.kills += 1
        if self.hold_kill is not None:
            await self.hold_kill.wait()
        if not self.killed.is_set():
            self.killed.set()
            assert self._agent is not None
            for writer in (self._agent, self.writer):
                writer.transport.abort()  # nothing that waits to be sent outlives a sandbox
                with suppress(OSError):
                    await writer.wait_closed()
            if self._task is not None:
                await self._task

    async def ended(self) -> str:
        await self.killed.wait()
        return self.why


class ScriptedBackend:
    """Starts scripted sandboxes. `refuse` makes every start fail with its text, `refuse_images`
    those of an image, and `gone` has images that there are no more; `attempts` counts the starts by
    image.
    """

    name = "scripted"

    def __init__(self) -> None:
        self.launched: list[ScriptedSandbox] = []
        self.refuse = ""
        self.refuse_images: dict[str, str] = {}
        self.gone: set[str] = set()
        self.attempts: Counter[str] = Counter()
        self.starts_now = 0
        self.most_starts = 0
        self.greeting: bytes | None = None
        self.gate: asyncio.Event | None = None
        self.starting = asyncio.Event()

    async def start(self) -> None:
        """Nothing to get ready."""

    def hold(self) -> None:
        """Lets no start get any further."""
        self.gate = asyncio.Event()

    def let_go(self) -> None:
        """Lets the starts go on."""
        assert self.gate is not None
        self.gate.set()

    async def system(self, kind: str, image: str) -> str:
        return f"{kind} {image}"

    async def layers(self, kind: str) -> None:
        """None."""

    async def launch(self, spec: SandboxSpec) -> ScriptedSandbox:
        self.starting.set()
        self.attempts[spec.image] += 1
        self.starts_now += 1
        self.most_starts = max(self.most_starts, self.starts_now)
        try:
            return await self._launch(spec)
        finally:
            self.starts_now -= 1

    async def _launch(self, spec: SandboxSpec) -> ScriptedSandbox:
        if self.gate is not None:
            await self.gate.wait()
        if refuse := self.refuse or self.refuse_images.get(spec.image):
            raise BackendUnavailable(refuse)
        if spec.image in self.gone:
            raise ImageGone(f"there is no image {spec.image}")
        sandbox = ScriptedSandbox(spec)
        self.launched.append(sandbox)
        await sandbox.open(self.greeting)
        return sandbox

    async def close(self) -> None:
        """Nothing to let go of."""
