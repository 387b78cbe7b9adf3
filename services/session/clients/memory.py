"""The registry's memory stores, as far as sessions are given some."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

import grpc
import grpc.aio

from chassis.errors import Reason
from chassis.grpc.status import from_rpc_error
from drover.memory.v1 import memory_store_service_pb2 as pb
from drover.memory.v1.memory_store_service_pb2_grpc import MemoryStoreServiceStub

if TYPE_CHECKING:
    from collections.abc import Collection

    from drover.memory.v1 import memory_pb2

_DEADLINE: Final = 10.0


class MemoryStores:
    """MemoryStoreService over gRPC."""

    def __init__(self, channel: grpc.aio.Channel) -> None:
        self._stub = MemoryStoreServiceStub(channel)

    async def known(self, store_ids: Collection[str]) -> dict[str, memory_pb2.MemoryStore]:
        """Those of the stores that the workspace has. Raises `DroverError`."""
        found = await asyncio.gather(*map(self._find, store_ids))
        return {store.id: store for store in found if store is not None}

    async def _find(self, store_id: str) -> memory_pb2.MemoryStore | None:
        request = pb.GetMemoryStoreRequest(memory_store_id=store_id)
        try:
            answer = await self._stub.GetMemoryStore(request, timeout=_DEADLINE)
        except grpc.RpcError as rpc_error:
            error = from_rpc_error(rpc_error, "the registry service")
            if error.reason is Reason.NOT_FOUND:
                return None
            raise error from rpc_error
        return answer.memory_store
