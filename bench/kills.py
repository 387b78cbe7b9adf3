"""kill -9 of a brain in the middle of a turn → the next event, from another brain (R6)."""

from __future__ import annotations

import asyncio
import os
import signal
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any, Final, Self

from anthropic import Anthropic

from bench.report import Report
from bench.statistics import Distribution
from tests.doubles.messages_api import Gate, ToolUse, says, text, tools
from tests.e2e.driving import history, new_session, send
from tests.e2e.stack import Stack, running_stack

_GOAL: Final = "p95 ≤ 250 ms"
_BRAINS: Final = ("brain-1", "brain-2")
_WAITING: Final = "echo ran >> count; touch begun; while [ ! -e go ]; do sleep 0.005; done"
_FOLLOWED: Final = 0.1
"""Seconds that a reader follows before the kill, so that its own beginning is not measured."""


async def measure(report: Report, *, scale: float) -> None:
    """Kills brains while their model answers, and while their tool runs."""
    rounds = max(5, int(30 * scale))
    found = await asyncio.to_thread(_run, rounds)
    for phase, samples in found.items():
        measured = Distribution(tuple(samples))
        report.latency(f"kill -9 of a brain in a {phase} → next event", measured, _GOAL)


def _run(rounds: int) -> dict[str, list[float]]:
    found: dict[str, list[float]] = {"model request": [], "tool call": []}
    with (
        tempfile.TemporaryDirectory(prefix="drover-bench-") as folder,
        running_stack(Path(folder)) as stack,
        stack.client() as client,
    ):
        for _ in range(rounds):
            for phase, samples in found.items():
                samples.append(_kill(stack, client, in_tool=phase == "tool call"))
    return found


def _kill(stack: Stack, client: Anthropic, *, in_tool: bool) -> float:
    """Milliseconds from the kill to the next event. Raises `RuntimeError` if anything is lost."""
    stack.wait_ready()
    stack.wait_for(lambda: len(stack.pids(*_BRAINS)) == len(_BRAINS), "both brains")
    stack.model.reset()
    session, gate = new_session(client), Gate()
    workspace = stack.workspace(session.id)
    if in_tool:
        stack.model.on(says("go"), tools(ToolUse("bash", {"command": _WAITING})), text("done"))
        send(client, session.id, "go")
        stack.wait_for((workspace / "begun").exists, "the tool to begin")
    else:
        stalled = text("never ended").stall(gate, after="content_block_start")
        stack.model.on(says("go"), stalled, text("done"))
        send(client, session.id, "go")
        gate.wait_reached()
    with _Follower(client, session.id) as follower:
        victim = stack.pid(stack.holder(session.id))
        killed = time.monotonic()
        os.kill(victim, signal.SIGKILL)
        if in_tool:
            (workspace / "go").touch()
        took = (follower.next_event() - killed) * 1000
    gate.release()
    _check(stack.until_idle(client, session.id), history(client, session.id))
    if in_tool and (workspace / "count").read_text().split() != ["ran"]:
        raise RuntimeError("the tool ran again")
    return took


def _check(log: list[Any], again: list[Any]) -> None:
    ids = [event.id for event in log]
    if len(set(ids)) != len(ids) or [event.id for event in again] != ids:
        raise RuntimeError("an event is there twice, or gone")
    kinds = Counter(event.type for event in log)
    if kinds["agent.tool_use"] != kinds["agent.tool_result"] or kinds["session.error"]:
        raise RuntimeError(f"a call without its result, or an error: {kinds}")


class _Follower:
    """A thread that reads a session's stream, and notes when the next stamped event is there."""

    def __init__(self, client: Anthropic, session_id: str) -> None:
        self._client = client
        self._session_id = session_id
        self._follows, self._seen = threading.Event(), threading.Event()
        self._at = 0.0
        self._thread = threading.Thread(target=self._follow)

    def __enter__(self) -> Self:
        self._thread.start()
        if not self._follows.wait(10):
            raise RuntimeError("the stream did not open")
        time.sleep(_FOLLOWED)
        return self

    def __exit__(self, *_error: object) -> None:
        self._thread.join(30)

    def next_event(self) -> float:
        """When the next event was there, by the monotonic clock."""
        if not self._seen.wait(30):
            raise RuntimeError("no brain went on")
        return self._at

    def _follow(self) -> None:
        with self._client.beta.sessions.events.stream(self._session_id) as events:
            self._follows.set()
            for event in events:
                if getattr(event, "processed_at", None) is not None:
                    self._at = time.monotonic()
                    self._seen.set()
                    return
