"""The memory stores, in the registry."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import grpc

from chassis.errors import DroverError, Reason
from chassis.grpc.status import from_rpc_error
from drover.memory.v1 import memory_service_pb2 as pb
from drover.memory.v1.memory_pb2 import Actor, SessionActor
from drover.memory.v1.memory_service_pb2_grpc import MemoryServiceStub

if TYPE_CHECKING:
    from collections.abc import Awaitable, Sequence
    from typing import TypeVar

    import grpc.aio

    from drover.memory.v1.memory_pb2 import Memory
    from drover.memory.v1.memory_service_pb2_grpc import MemoryServiceAsyncStub

    Answer = TypeVar("Answer")

DEADLINE: Final = 5.0
"""Seconds for an answer, which a call waits for."""


class MemoryClient:
    """Follows and changes memories over gRPC, in the workspace of the call under way."""

    def __init__(self, channel: grpc.aio.Channel, *, deadline: float = DEADLINE) -> None:
        self._service: MemoryServiceAsyncStub = MemoryServiceStub(channel)
        self._deadline = deadline

    async def follow(self, stores: Sequence[tuple[str, int]]) -> Sequence[pb.StoreChanges]:
        """What has changed in stores, each since a revision. Raises `DroverError`."""
        request = pb.FollowMemoriesRequest(
            stores=[
                pb.StorePosition(memory_store_id=store_id, revision=revision)
                for store_id, revision in stores
            ]
        )
        answer = await _answer(self._service.FollowMemories(request, timeout=self._deadline))
        if len(answer.stores) != len(stores):
            raise DroverError(Reason.INTERNAL, "the registry answered of other memory stores")
        return answer.stores

    async def create(self, store_id: str, path: str, text: str, session_id: str) -> Memory:
        """Stores a new memory. Raises `DroverError`."""
        request = pb.CreateMemoryRequest(
            memory_store_id=store_id, path=path, content=text, actor=_actor(session_id)
        )
        answer = await _answer(self._service.CreateMemory(request, timeout=self._deadline))
        return answer.memory

    async def update(
        self,
        store_id: str,
        memory_id: str,
        expected: str,
        session_id: str,
        *,
        path: str | None = None,
        text: str | None = None,
    ) -> Memory:
        """Changes a memory whose content has the digest that is expected. Raises `DroverError`."""
        request = pb.UpdateMemoryRequest(
            memory_store_id=store_id,
            memory_id=memory_id,
            path=path,
            content=text,
            actor=_actor(session_id),
        )
        request.precondition.content_sha256.content_sha256 = expected
        answer = await _answer(self._service.UpdateMemory(request, timeout=self._deadline))
        return answer.memory

    async def delete(self, store_id: str, memory_id: str, expected: str, session_id: str) -> None:
        """Deletes a memory whose content has the digest that is expected. Raises `DroverError`."""
        request = pb.DeleteMemoryRequest(
            memory_store_id=store_id,
            memory_id=memory_id,
            expected_content_sha256=expected,
            actor=_actor(session_id),
        )
        await _answer(self._service.DeleteMemory(request, timeout=self._deadline))


def _actor(session_id: str) -> Actor:
    return Actor(session_actor=SessionActor(session_id=session_id))


async def _answer(asked: Awaitable[Answer]) -> Answer:
    try:
        return await asked
    except grpc.RpcError as error:
        raise from_rpc_error(error, "the registry") from error
