"""BrainService on the wire."""

from __future__ import annotations

from typing import TYPE_CHECKING

from drover.brain.v1.brain_service_pb2 import WakeRequest, WakeResponse
from drover.brain.v1.brain_service_pb2_grpc import BrainServiceServicer

if TYPE_CHECKING:
    from services.brain.loop.pool import BrainPool


class BrainRpc(BrainServiceServicer):
    """Answers `Wake` from a pool of workers."""

    def __init__(self, pool: BrainPool) -> None:
        self._pool = pool

    async def Wake(self, request: WakeRequest, context: object) -> WakeResponse:  # noqa: ARG002, N802
        """See the contract. Cancelling it leaves the worker at work."""
        return WakeResponse(generation=await self._pool.wake(request.session_id))
