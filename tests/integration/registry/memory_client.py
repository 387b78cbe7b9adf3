"""A client of the three services of memory, as short as tests like it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from google.protobuf.field_mask_pb2 import FieldMask

from drover.memory.v1 import (
    memory_service_pb2,
    memory_store_service_pb2,
    memory_version_service_pb2,
)
from drover.memory.v1.memory_service_pb2_grpc import MemoryServiceStub
from drover.memory.v1.memory_store_service_pb2_grpc import MemoryStoreServiceStub
from drover.memory.v1.memory_version_service_pb2_grpc import MemoryVersionServiceStub

if TYPE_CHECKING:
    import grpc.aio

    from drover.memory.v1.memory_pb2 import Memory, MemoryStore

_MODULES = (memory_store_service_pb2, memory_service_pb2, memory_version_service_pb2)


class MemoryClient:
    """Calls by the names of RPCs."""

    def __init__(self, channel: grpc.aio.Channel) -> None:
        self._stubs = (
            MemoryStoreServiceStub(channel),
            MemoryServiceStub(channel),
            MemoryVersionServiceStub(channel),
        )

    def method(self, rpc: str) -> Any:
        [method] = [getattr(stub, rpc) for stub in self._stubs if hasattr(stub, rpc)]
        return method

    def request(self, rpc: str, **fields: Any) -> Any:
        [kind] = [
            getattr(module, f"{rpc}Request")
            for module in _MODULES
            if hasattr(module, f"{rpc}Request")
        ]
        return kind(**fields)

    async def call(self, rpc: str, **fields: Any) -> Any:
        return await self.method(rpc)(self.request(rpc, **fields))

    async def store(self, name: str = "Notes", **fields: Any) -> MemoryStore:
        return (await self.call("CreateMemoryStore", name=name, **fields)).memory_store

    async def revise(self, store: MemoryStore, *mask: str, **fields: Any) -> MemoryStore:
        paths = FieldMask(paths=mask) if mask else None
        answer = await self.call(
            "UpdateMemoryStore", memory_store_id=store.id, update_mask=paths, **fields
        )
        return answer.memory_store

    async def memory(self, store: MemoryStore, path: str = "/a", **fields: Any) -> Memory:
        answer = await self.call("CreateMemory", memory_store_id=store.id, path=path, **fields)
        return answer.memory

    async def change(self, memory: Memory, **fields: Any) -> Memory:
        answer = await self.call(
            "UpdateMemory", memory_store_id=memory.memory_store_id, memory_id=memory.id, **fields
        )
        return answer.memory

    async def history(self, store: MemoryStore, **fields: Any) -> list[Any]:
        answer = await self.call("ListMemoryVersions", memory_store_id=store.id, **fields)
        return list(answer.data)
