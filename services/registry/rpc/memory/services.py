"""The services of memory, as a server offers them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from chassis.clock import SystemClock
from chassis.ids import new_id
from drover.memory.v1.memory_service_pb2_grpc import add_MemoryServiceServicer_to_server
from drover.memory.v1.memory_store_service_pb2_grpc import add_MemoryStoreServiceServicer_to_server
from drover.memory.v1.memory_version_service_pb2_grpc import (
    add_MemoryVersionServiceServicer_to_server,
)
from services.registry.rpc.memory.memories import MemoryRpc
from services.registry.rpc.memory.stores import MemoryStoreRpc
from services.registry.rpc.memory.versions import MemoryVersionRpc

if TYPE_CHECKING:
    from chassis.grpc.server import GrpcServer
    from services.registry.domain.memory.ports import Memories, MemoryStores, MemoryVersions


def add_memory_services(
    server: GrpcServer, stores: MemoryStores, memories: Memories, versions: MemoryVersions
) -> None:
    """Has `server` serve memory out of these."""
    clock = SystemClock()
    server.add(add_MemoryStoreServiceServicer_to_server, MemoryStoreRpc(stores, clock, new_id))
    server.add(add_MemoryServiceServicer_to_server, MemoryRpc(memories, clock, new_id))
    server.add(add_MemoryVersionServiceServicer_to_server, MemoryVersionRpc(versions, clock))
