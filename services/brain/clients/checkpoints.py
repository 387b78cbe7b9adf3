"""Checkpoints on their way to the session service. Nobody waits for them."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final, Self

import structlog

from chassis.errors import DroverError
from services.brain.clients.failures import translated

if TYPE_CHECKING:
    from drover.session.v1.checkpoint_service_pb2 import SaveCheckpointRequest
    from drover.session.v1.checkpoint_service_pb2_grpc import CheckpointServiceAsyncStub
    from services.brain.metrics import CheckpointMetrics

MAX_UNDER_WAY: Final = 4
"""Checkpoints that are being sent; another one is dropped, since each may be megabytes."""

DEADLINE: Final = 10.0
"""Seconds until a checkpoint that the session service does not take is given up."""

_log = structlog.get_logger("brain.checkpoints")


class CheckpointSender:
    """Sends checkpoints in the background; leaving its context drops those under way."""

    def __init__(self, service: CheckpointServiceAsyncStub, metrics: CheckpointMetrics) -> None:
        self._service = service
        self._metrics = metrics
        self._under_way: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_error: object) -> None:
        for task in self._under_way:
            task.cancel()
        await asyncio.gather(*self._under_way, return_exceptions=True)

    def send(self, request: SaveCheckpointRequest) -> None:
        """Sends one, or drops it: losing a checkpoint costs a later brain some time, no more."""
        if len(self._under_way) >= MAX_UNDER_WAY:
            self._metrics.count("lost")
            return
        task = asyncio.create_task(self._send(request))
        self._under_way.add(task)
        task.add_done_callback(self._under_way.discard)

    async def _send(self, request: SaveCheckpointRequest) -> None:
        try:
            with translated("the session service"):
                await self._service.SaveCheckpoint(request, timeout=DEADLINE)
        except DroverError as error:
            self._metrics.count("lost")
            _log.info("checkpoint_lost", session_id=request.session_id, reason=error.reason)
        else:
            self._metrics.count("saved")
