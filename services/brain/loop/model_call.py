"""One model request: the prepared bytes out, previews on the way, the whole response as events."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import structlog

from drover.session.v1.preview_pb2 import (
    ContentDelta,
    EventDelta,
    EventStart,
    Preview,
    PreviewedEvent,
    TextDelta,
)
from services.brain.domain import budget
from services.brain.domain.policy import SANDBOX_TOOLS, Permission
from services.brain.domain.response import Grown, ResponseAssembler, Started, ToolBegun
from services.brain.loop import spans
from services.brain.loop.attaching import attached
from services.brain.loop.sync_points import Point
from services.brain.model.port import ModelError

if TYPE_CHECKING:
    from collections.abc import Callable

    from catalogue.models import Catalogue
    from drover.event.v1.event_pb2 import Event
    from drover.event.v1.span_event_pb2 import ModelUsage
    from services.brain.clients.files import Files
    from services.brain.domain.events import EventFactory
    from services.brain.domain.response import Signal
    from services.brain.domain.state import State
    from services.brain.harness.port import ModelRequest
    from services.brain.loop.sync_points import SyncPoints
    from services.brain.model.port import ModelClient

_log = structlog.get_logger("brain.model")


def unseen(_preview: Preview) -> None:
    """For a response that nobody watches being written."""


def no_sandbox() -> None:
    """For a response whose calls, if it has any, are not run."""


class ModelCall:
    """One request, which may be interrupted. `request` is the id of its start in the log."""

    def __init__(
        self,
        model: ModelClient,
        factory: EventFactory,
        state: State,
        *,
        request: str,
        models: Catalogue,
        files: Files,
        points: SyncPoints,
        preview: Callable[[Preview], None] = unseen,
        on_sandbox: Callable[[], None] = no_sandbox,
    ) -> None:
        self._model = model
        self._state = state
        self._request = request
        self._models = models
        self._files = files
        self._model_id = ""
        self._preview = preview
        self._on_sandbox = on_sandbox
        self._points = points
        self._response = ResponseAssembler(factory)
        self._previewed: set[str] = set()
        self._task: asyncio.Task[list[Event]] | None = None
        self._interrupted = False

    def usage(self) -> ModelUsage:
        """The tokens that the model has told of so far."""
        return self._billed(self._response.usage())

    def _billed(self, usage: ModelUsage) -> ModelUsage:
        budget.bill(usage, self._model_id, self._models)
        return usage

    def interrupt(self) -> None:
        """Stops the request; `perform` then answers None."""
        if not self._interrupted:
            self._interrupted = True
            if self._task is not None:
                self._task.cancel()

    async def perform(self, request: ModelRequest) -> list[Event] | None:
        """Streams the response to its end and answers its events. Raises `ModelError`."""
        self._model_id = request.model
        if self._stopped():
            return None
        self._task = asyncio.create_task(self._stream(request))
        try:
            return await self._task
        except asyncio.CancelledError:
            current = asyncio.current_task()
            if self._stopped() and (current is None or not current.cancelling()):
                return None
            raise

    def _stopped(self) -> bool:
        return self._interrupted

    async def _stream(self, request: ModelRequest) -> list[Event]:
        request = await attached(request, self._files)
        with spans.chat(self._state, request.model, self._model.provider) as span:
            try:
                await self._read(request)
            except ModelError as error:
                spans.failed(span, error.kind)
                raise
            spans.answered(span, self._response)
        if self._response.ignored:
            _log.warning("blocks_ignored", kinds=self._response.ignored)
        response = self._response.finish(self._request, self._state.permissions)
        self._billed(response[-1].span_model_request_end.model_usage)
        return response

    async def _read(self, request: ModelRequest) -> None:
        first = True
        async with self._model.stream(request.body, betas=request.betas) as raw_events:
            async for raw in raw_events:
                if first:
                    first = False
                    await self._points.reach(Point.FIRST_MODEL_EVENT)
                signal = self._response.feed(raw)
                if signal is not None:
                    self._show(signal)

    def _show(self, signal: Signal) -> None:
        match signal:
            case Grown():
                if signal.id not in self._previewed:
                    self._start("agent.message", signal.id)
                delta = ContentDelta(index=signal.index, content=TextDelta(text=signal.text))
                self._preview(Preview(event_delta=EventDelta(event_id=signal.id, delta=delta)))
            case Started():
                self._start(signal.type, signal.id)
            case ToolBegun():
                allowed = self._state.permissions.of(signal.name) is Permission.ALLOW
                if allowed and signal.name in SANDBOX_TOOLS:
                    self._on_sandbox()

    def _start(self, kind: str, event_id: str) -> None:
        self._previewed.add(event_id)
        self._preview(Preview(event_start=EventStart(event=PreviewedEvent(type=kind, id=event_id))))
