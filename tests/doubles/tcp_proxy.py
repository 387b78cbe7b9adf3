"""A TCP proxy that does to connections what networks do: delay, stall, cut, half-close, refuse.

It runs in a thread of its own, so that synchronous tests use it too. Every control is in effect
when it returns.
"""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, field, replace
from enum import Enum
from types import TracebackType
from typing import Any, Final, Self, TypeVar

T = TypeVar("T")

_CHUNK: Final = 16 * 1024
_HELD_CHUNKS: Final = 64
"""What a direction holds back before its sender has to wait, as behind a slow link."""


class Way(Enum):
    """A direction of the bytes."""

    UP = "from the client to the server"
    DOWN = "from the server to the client"


BOTH: Final = (Way.UP, Way.DOWN)


@dataclass(frozen=True, slots=True)
class Traffic:
    """What went through so far."""

    opened: int = 0
    live: int = 0
    cut: int = 0
    passed: dict[Way, int] = field(default_factory=lambda: dict.fromkeys(Way, 0))
    arrived: dict[Way, int] = field(default_factory=lambda: dict.fromkeys(Way, 0))

    def held(self, way: Way) -> int:
        """Bytes that came and were not passed on."""
        return self.arrived[way] - self.passed[way]


class TcpProxy:
    """Listens at a free port of `listen` and relays to `host:port`. A context manager."""

    def __init__(self, port: int, host: str = "127.0.0.1", *, listen: str = "127.0.0.1") -> None:
        self.target = (host, port)
        self._listen_host = listen
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._live, name="tcp-proxy", daemon=True)
        self._loop = asyncio.new_event_loop()
        self._relays: set[_Relay] = set()
        self._server: asyncio.Server | None = None
        # The port stays ours while connections are refused: a socket that is bound without
        # listening makes the kernel refuse, and keeps others from taking the port.
        self._holder = _bound(listen, 0)
        self._port = self._holder.getsockname()[1]
        self._traffic = Traffic()
        self._rules = _Rules()

    @property
    def port(self) -> int:
        """Where it listens."""
        return self._port

    @property
    def address(self) -> str:
        """Where it listens, as a gRPC target."""
        return f"{self._listen_host}:{self._port}"

    @property
    def traffic(self) -> Traffic:
        """What went through so far."""
        return self._traffic

    def wait_until(self, condition: Callable[[Traffic], bool], deadline: float = 30.0) -> Traffic:
        """Waits until the traffic is as wanted; fails after `deadline` seconds."""
        with self._changed:
            met = self._changed.wait_for(lambda: condition(self._traffic), deadline)
        assert met, f"it did not come about in {deadline} s: {self._traffic}"
        return self._traffic

    # what can be done to the connections

    def delay(self, seconds: float, *ways: Way) -> None:
        """Has every byte from now on take so much longer; 0 ends it."""
        self._do(lambda: self._rules.late.update(dict.fromkeys(ways or BOTH, seconds)))

    def stall(self, *ways: Way) -> None:
        """Holds back every byte and every end, of new connections too, until `flow`."""
        self._do(lambda: [self._rules.gates[way].clear() for way in ways or BOTH])

    def flow(self, *ways: Way) -> None:
        """Lets go what was held back."""
        self._do(lambda: [self._rules.gates[way].set() for way in ways or BOTH])

    def cut(self) -> int:
        """Resets every connection, with what it holds back; answers how many there were."""
        return self._do(lambda: sum(relay.cut() for relay in list(self._relays)))

    def cut_after(self, count: int, way: Way = Way.DOWN) -> None:
        """Ends the first connection that has passed `count` bytes from now on, and only that.

        Its receiver gets exactly these bytes and then an end; its sender, a reset.
        """

        def arm() -> None:
            self._rules.budget = (way, count)
            for relay in self._relays:
                relay.counted = 0

        self._do(arm)

    def half_close(self, way: Way = Way.DOWN) -> None:
        """Ends one direction of every connection, as one side's shutdown does."""
        self._do(lambda: [relay.end(way) for relay in self._relays])

    def refuse(self) -> None:
        """Refuses new connections until `admit`; those that are open stay."""
        self._await(self._stop_listening())

    def admit(self) -> None:
        """Takes connections again."""
        self._await(self._listen())

    # its own life

    def __enter__(self) -> Self:
        self._thread.start()
        self._await(self._listen())
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._await(self._end())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._holder.close()

    def _live(self) -> None:
        self._loop.run_forever()
        self._loop.close()

    def _do(self, act: Callable[[], T]) -> T:
        async def now() -> T:
            return act()

        return self._await(now())

    def _await(self, work: Coroutine[Any, Any, T]) -> T:
        future: Future[T] = asyncio.run_coroutine_threadsafe(work, self._loop)
        return future.result(30)

    async def _listen(self) -> None:
        if self._server is None:
            self._server = await asyncio.start_server(
                self._relay, sock=_bound(self._listen_host, self._port)
            )

    async def _stop_listening(self) -> None:
        if self._server is not None:
            self._server.close()
            self._server = None

    async def _end(self) -> None:
        await self._stop_listening()
        tasks = [relay.task for relay in self._relays]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _relay(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        relay = _Relay(self._rules, self._note, task, writer)
        self._relays.add(relay)
        self._note(opened=1, live=1)
        try:
            with suppress(asyncio.CancelledError):
                await relay.run(reader, self.target)
        finally:
            self._relays.discard(relay)
            self._note(live=-1)

    def _note(self, way: Way = Way.UP, *, arrived: int = 0, passed: int = 0, **counts: int) -> None:
        """Counts, and tells those who wait."""
        before = self._traffic
        changes: dict[str, Any] = {
            name: getattr(before, name) + count for name, count in counts.items()
        }
        if arrived:
            changes["arrived"] = before.arrived | {way: before.arrived[way] + arrived}
        if passed:
            changes["passed"] = before.passed | {way: before.passed[way] + passed}
        with self._changed:
            self._traffic = replace(before, **changes)
            self._changed.notify_all()


class _Rules:
    """What holds for every connection now."""

    def __init__(self) -> None:
        self.late: dict[Way, float] = dict.fromkeys(Way, 0.0)
        self.gates = {way: asyncio.Event() for way in Way}
        self.budget: tuple[Way, int] | None = None
        for gate in self.gates.values():
            gate.set()


class _Relay:
    """One connection, with the one to the server that belongs to it."""

    def __init__(
        self,
        rules: _Rules,
        note: Callable[..., None],
        task: asyncio.Task[Any],
        client: asyncio.StreamWriter,
    ) -> None:
        self.task = task
        self.counted = 0
        self._rules = rules
        self._note = note
        self._sinks = {Way.DOWN: client}
        self._ended: set[Way] = set()

    async def run(self, reader: asyncio.StreamReader, target: tuple[str, int]) -> None:
        """Relays until both directions have ended."""
        try:
            upstream, sink = await asyncio.open_connection(*target)
        except OSError:
            self._reset()
            return
        self._sinks[Way.UP] = sink
        try:
            async with asyncio.TaskGroup() as pumps:
                for way, source in ((Way.UP, reader), (Way.DOWN, upstream)):
                    held: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue(_HELD_CHUNKS)
                    pumps.create_task(self._take(way, source, held))
                    pumps.create_task(self._pass(way, held))
        except* OSError:
            self._reset()
        finally:
            for writer in self._sinks.values():
                writer.close()

    def cut(self) -> int:
        """Resets both sides."""
        self._reset()
        self.task.cancel()
        return 1

    def _reset(self) -> None:
        self._note(cut=1)
        for writer in self._sinks.values():
            _reset(writer)

    def end(self, way: Way) -> None:
        """Ends one direction; what still comes for it is dropped."""
        if way not in self._ended and way in self._sinks:
            self._ended.add(way)
            with suppress(OSError):
                self._sinks[way].write_eof()

    async def _take(
        self, way: Way, source: asyncio.StreamReader, held: asyncio.Queue[tuple[float, bytes]]
    ) -> None:
        data = b"-"
        while data:
            data = await source.read(_CHUNK)
            self._note(way, arrived=len(data))
            await held.put((time.monotonic() + self._rules.late[way], data))

    async def _pass(self, way: Way, held: asyncio.Queue[tuple[float, bytes]]) -> None:
        gate = self._rules.gates[way]
        while True:
            due, data = await held.get()
            await asyncio.sleep(max(0.0, due - time.monotonic()))
            await gate.wait()
            if not data:
                self.end(way)
                return
            if way in self._ended:
                continue
            last = self._is_last(way, len(data))
            data = data if last is None else data[:last]
            self._sinks[way].write(data)
            if last is not None:
                await self._finish(way, len(data))
                return
            await self._sinks[way].drain()
            self._note(way, passed=len(data))

    def _is_last(self, way: Way, count: int) -> int | None:
        """How many of these bytes are this connection's last; `None` when it goes on."""
        if self._rules.budget is None or self._rules.budget[0] is not way:
            return None
        self.counted += count
        over = self.counted - self._rules.budget[1]
        if over < 0:
            return None
        self._rules.budget = None
        return count - over

    async def _finish(self, way: Way, count: int) -> None:
        """Has the receiver get all that was written, and ends the connection."""
        self.end(way)
        await self._sinks[way].drain()
        _reset(self._sinks[Way.DOWN if way is Way.UP else Way.UP])
        self._sinks[way].close()
        self._note(way, passed=count, cut=1)
        self.task.cancel()


def _bound(host: str, port: int) -> socket.socket:
    bound = socket.socket()
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    bound.bind((host, port))
    return bound


def _reset(writer: asyncio.StreamWriter) -> None:
    """Closes with a reset, as a crashed machine or a firewall does."""
    end = writer.get_extra_info("socket")
    if end is not None and end.fileno() >= 0:
        end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\0\0\0\0\0\0\0")
    writer.transport.abort()
