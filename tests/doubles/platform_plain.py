"""Services of the stack of which the gateway's tests ask no more than that they are called."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from google.protobuf.message_factory import GetMessageClass

from drover.memory.v1 import (
    memory_pb2,
    memory_service_pb2,
    memory_store_service_pb2,
    memory_version_service_pb2,
)
from drover.session.v1 import resource_service_pb2, session_pb2
from drover.vault.v1 import (
    credential_pb2,
    vault_audit_service_pb2,
    vault_credential_service_pb2,
    vault_pb2,
    vault_service_pb2,
)
from tests.doubles.asked import Asked, stamp

if TYPE_CHECKING:
    from google.protobuf.descriptor import ServiceDescriptor
    from google.protobuf.message import Message

    from chassis.grpc.server import GrpcServer

_FILES = {
    "registry": (memory_store_service_pb2, memory_service_pb2, memory_version_service_pb2),
    "session": (resource_service_pb2,),
    "vault_proxy": (vault_service_pb2, vault_credential_service_pb2, vault_audit_service_pb2),
}


def _whole() -> dict[str, Message]:
    """By the names of fields, what an answer has in them."""
    credential = credential_pb2.Credential(id="vcrd_1", vault_id="vlt_1")
    credential.auth.static_bearer.mcp_server_url = "https://mcp.example.com"
    resource = session_pb2.SessionResource()
    resource.github_repository.id = "sesrsc_1"
    resource.github_repository.url = "https://github.com/o/r"
    validation = credential_pb2.CredentialValidation(credential_id="vcrd_1", status=1)
    vault = vault_pb2.Vault(id="vlt_1", display_name="Ada")
    store = memory_pb2.MemoryStore(id="memstore_1", name="Notes")
    memory = memory_pb2.Memory(id="mem_1", memory_store_id="memstore_1", path="/a.md")
    version = memory_pb2.MemoryVersion(id="memver_1", memory_id="mem_1", operation=1)
    version.created_by.api_actor.api_key_id = "apikey_1"
    version.created_at.CopyFrom(stamp())
    for made in (credential, vault, resource.github_repository, store, memory):
        made.created_at.CopyFrom(stamp())
        made.updated_at.CopyFrom(stamp())
    validation.validated_at.CopyFrom(stamp())
    return {
        "credential": credential,
        "vault": vault,
        "resource": resource,
        "validation": validation,
        "memory_store": store,
        "memory": memory,
        "memory_version": version,
    }


class Plain(Asked):
    """Answers every method of some services, with whole objects and empty lists."""

    def add_to(self, server: GrpcServer, process: str) -> None:
        """Serves what a process of the stack serves besides its better known services."""
        for file in _FILES.get(process, ()):
            grpc = importlib.import_module(f"{file.__name__}_grpc")
            for service in file.DESCRIPTOR.services_by_name.values():
                servicer = getattr(grpc, f"{service.name}Servicer")
                made = type(service.name, (servicer,), self._methods(service))()
                server.add(getattr(grpc, f"add_{service.name}Servicer_to_server"), made)

    def _methods(self, service: ServiceDescriptor) -> dict[str, Any]:
        return {method.name: self._method(method.output_type) for method in service.methods}

    def _method(self, output: Any) -> Any:
        kind, whole = GetMessageClass(output), _whole()
        given = {field.name: whole[field.name] for field in output.fields if field.name in whole}

        async def answer(_self: object, request: Message, _context: object) -> Message:
            self.note(request)
            return kind(**given)

        return answer
