"""Tool calls that are under way, each in a task of its own."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, Final

from services.brain.domain.calls import Answerer
from services.brain.loop import spans
from services.brain.loop.sync_points import Point

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from collections.abc import Set as AbstractSet

    from drover.event.v1.session_event_pb2 import SessionError
    from services.brain.clients.hands import Hands, ToolOutcome
    from services.brain.clients.history import History
    from services.brain.domain.calls import Call
    from services.brain.loop.sync_points import SyncPoints

CANCEL_GRACE: Final = 5.0
"""Seconds that cancelled calls have to come back with what they did."""


class ToolRuns:
    """Runs calls beside each other and collects their outcomes in the order in which they end."""

    def __init__(
        self,
        hands: Hands,
        history: History,
        tasks: asyncio.TaskGroup,
        on_finished: Callable[[], None],
        points: SyncPoints,
    ) -> None:
        self._hands = hands
        self._history = history
        self._tasks = tasks
        self._on_finished = on_finished
        self._points = points
        self._running: dict[str, asyncio.Task[None]] = {}
        self._finished: deque[tuple[str, ToolOutcome]] = deque()
        self._provisioning: asyncio.Task[None] | None = None
        self._troubles: list[SessionError] = []

    @property
    def running(self) -> AbstractSet[str]:
        """Ids of the calls that have not come back."""
        return self._running.keys()

    def provision(self) -> None:
        """Has a sandbox made ready beside whatever else goes on; once."""
        if self._provisioning is None:
            self._provisioning = self._tasks.create_task(self._provision())

    def start(self, calls: Iterable[Call]) -> None:
        """Sends calls to whoever answers them. Their events must be durable by now."""
        for call in calls:
            self._running[call.id] = self._tasks.create_task(self._run(call))

    def finished(self) -> Iterable[tuple[str, ToolOutcome]]:
        """The outcomes that came in since the last time."""
        while self._finished:
            yield self._finished.popleft()

    def troubles(self) -> Sequence[SessionError]:
        """What has gone wrong beside, since the last time."""
        troubles, self._troubles = self._troubles, []
        return troubles

    async def stop(self, calls: Iterable[Call]) -> None:
        """Stops calls, also ones that an earlier brain has sent; returns when they are stopped."""
        sent = []
        for call in calls:
            if call.answerer is Answerer.HANDS:
                sent.append(call.id)
            elif call.id in self._running:
                self._running[call.id].cancel()
        if sent:
            await self._hands.cancel(sent)
        if running := set(self._running.values()):
            _, late = await asyncio.wait(running, timeout=CANCEL_GRACE)
            for task in late:
                task.cancel()
        self._running.clear()

    def close(self) -> None:
        """Lets go of what is still going on: the hands keep it for the next brain."""
        for task in (*self._running.values(), self._provisioning):
            if task is not None:
                task.cancel()

    async def _provision(self) -> None:
        if troubles := await self._hands.provision():
            self._troubles.extend(troubles)
            self._on_finished()

    async def _run(self, call: Call) -> None:
        with spans.execute_tool(call) as span:
            runner = self._history if call.answerer is Answerer.LOG else self._hands
            outcome = await runner.execute(call)
            if outcome.is_error:
                spans.failed(span, "tool_error")
        await self._points.reach(Point.TOOL_FINISHED)
        self._running.pop(call.id, None)
        self._troubles.extend(outcome.errors)
        self._finished.append((call.id, outcome))
        self._on_finished()
