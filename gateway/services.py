"""Which gRPC services the gateway serves over HTTP, and where each is found."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING

from chassis.errors import CannotStartError
from drover.agent.v1 import agent_service_pb2
from drover.environment.v1 import environment_key_service_pb2, environment_service_pb2
from drover.file.v1 import file_service_pb2
from drover.key.v1 import api_key_service_pb2
from drover.memory.v1 import (
    memory_service_pb2,
    memory_store_service_pb2,
    memory_version_service_pb2,
)
from drover.session.v1 import operations_service_pb2, resource_service_pb2, session_service_pb2
from drover.skill.v1 import skill_service_pb2, skill_version_service_pb2
from drover.vault.v1 import (
    vault_audit_service_pb2,
    vault_credential_service_pb2,
    vault_service_pb2,
)
from drover.work.v1 import work_service_pb2

if TYPE_CHECKING:
    from collections.abc import Mapping

    from google.protobuf.descriptor import FileDescriptor, ServiceDescriptor

    from identity.settings import PeerSettings

# A new service of the HTTP API is one line here. The value names the process that serves it.
_FILES: Mapping[FileDescriptor, str] = MappingProxyType(
    {
        agent_service_pb2.DESCRIPTOR: "registry",
        environment_service_pb2.DESCRIPTOR: "registry",
        environment_key_service_pb2.DESCRIPTOR: "registry",
        api_key_service_pb2.DESCRIPTOR: "registry",
        file_service_pb2.DESCRIPTOR: "registry",
        skill_service_pb2.DESCRIPTOR: "registry",
        skill_version_service_pb2.DESCRIPTOR: "registry",
        memory_store_service_pb2.DESCRIPTOR: "registry",
        memory_service_pb2.DESCRIPTOR: "registry",
        memory_version_service_pb2.DESCRIPTOR: "registry",
        session_service_pb2.DESCRIPTOR: "session",
        resource_service_pb2.DESCRIPTOR: "session",
        operations_service_pb2.DESCRIPTOR: "session",
        work_service_pb2.DESCRIPTOR: "session",
        vault_service_pb2.DESCRIPTOR: "vault_proxy",
        vault_credential_service_pb2.DESCRIPTOR: "vault_proxy",
        vault_audit_service_pb2.DESCRIPTOR: "vault_proxy",
    }
)

SERVED: Mapping[ServiceDescriptor, str] = MappingProxyType(
    {
        service: process
        for file, process in _FILES.items()
        for service in file.services_by_name.values()
    }
)
"""The process that serves each service of the HTTP API."""


def addresses(settings: PeerSettings) -> dict[str, str]:
    """The address of every process of the stack. Raises `CannotStartError` for one not set."""
    processes = ("session", "registry", "hands", "vault_proxy")
    found = {process: settings.address_of(process) for process in processes}
    if not settings.brain_addresses:
        msg = "DROVER_BRAIN_ADDRESSES is not set: name where the brains listen"
        raise CannotStartError(msg)
    for number, address in enumerate(settings.brain_addresses, 1):
        found[f"brain-{number}"] = address
    return found


def reads(process: str) -> list[str]:
    """The methods of a process that change nothing, and so may be called a second time."""
    return [
        f"{service.full_name}/{method.name}"
        for service, server in SERVED.items()
        if server == process
        for method in service.methods
        if method.name.startswith(("Get", "List", "Authenticate")) and not method.server_streaming
    ]
