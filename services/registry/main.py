"""The registry process: builds the service and runs it."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from catalogue.models import load
from catalogue.sandboxes import ceilings, checked
from chassis import lifecycle
from chassis.clock import SystemClock
from chassis.grpc.server import GrpcServer
from chassis.ids import new_id
from chassis.settings import SecretText
from chassis.telemetry.metrics import exposed
from drover.agent.v1.agent_service_pb2_grpc import add_AgentServiceServicer_to_server
from drover.environment.v1.environment_key_service_pb2_grpc import (
    add_EnvironmentKeyServiceServicer_to_server,
)
from drover.environment.v1.environment_service_pb2_grpc import (
    add_EnvironmentServiceServicer_to_server,
)
from drover.file.v1.file_service_pb2_grpc import add_FileServiceServicer_to_server
from drover.key.v1.api_key_service_pb2_grpc import add_ApiKeyServiceServicer_to_server
from identity.about import tell
from identity.leaving import announced
from identity.peers import Peers
from identity.settings import PeerSettings
from identity.table import Caller
from services.registry.domain.skills.limits import MAX_BYTES, MOST_BYTES, SkillLimits
from services.registry.domain.skills.pinning import Pinning
from services.registry.file_options import FileOptions
from services.registry.rpc.agents import AgentRpc
from services.registry.rpc.api_keys import ApiKeyRpc
from services.registry.rpc.environment_keys import EnvironmentKeyRpc
from services.registry.rpc.environments import EnvironmentRpc
from services.registry.rpc.files import FileRpc
from services.registry.rpc.memory.services import add_memory_services
from services.registry.rpc.skills.services import add_skill_services
from services.registry.store.agents import SqlAgentStore
from services.registry.store.api_keys import SqlApiKeyStore
from services.registry.store.environment_keys import SqlEnvironmentKeyStore
from services.registry.store.environments import SqlEnvironmentStore
from services.registry.store.files.store import SqlFileStore
from services.registry.store.files.sweep import FileSweep
from services.registry.store.memory.expiry import Expiry
from services.registry.store.memory.memories import SqlMemories
from services.registry.store.memory.stores import SqlMemoryStores
from services.registry.store.memory.versions import SqlMemoryVersions
from services.registry.store.objects.kept import KeptObjects
from services.registry.store.schema import SCHEMA
from services.registry.store.skills.skills import SqlSkillStore
from storage import open_database
from storage.health import follow
from storage.once import Answers
from storage.settings import DatabaseSettings

SERVICE = "registry"


class RegistrySettings(DatabaseSettings, FileOptions, PeerSettings):
    """The registry's: the list of models, and how large a sandbox may be asked for."""

    registry_database_url: SecretText = Field(
        default=None, description="The database of the registry alone."
    )
    models_file: Path | None = Field(
        default=None, description="JSON file with models and prices of yours, over those shipped."
    )
    sandbox_ceilings: Annotated[str, AfterValidator(checked)] = Field(
        default="",
        description='The most that environments may ask for, such as {"memory_mib": 8192}.',
    )
    search_provider: Literal["none", "brave", "searxng"] = Field(
        default="none", description="What web_search asks; none offers the tool only by name."
    )
    max_skill_bytes: int = Field(
        default=MAX_BYTES, ge=1024, le=MOST_BYTES, description="Bytes of a skill at most, unpacked."
    )


async def build(settings: RegistrySettings, stack: AsyncExitStack) -> GrpcServer:
    """A started registry; `stack` stops it and closes its database."""
    registry = await exposed(settings.metrics_listen, stack)
    server = Peers.of(settings, Caller.REGISTRY, registry).server(settings, registry)
    database = await open_database(settings.database(SERVICE).open(), SCHEMA)
    stack.push_async_callback(database.close)
    clock = SystemClock()
    models = load(settings.models_file)
    agents, environments = SqlAgentStore(database, clock), SqlEnvironmentStore(database, clock)
    objects = KeptObjects(settings.store(), database, clock, new_id)
    skills = SqlSkillStore(database, clock, objects.wake)
    searchable = settings.search_provider != "none"
    server.add(
        add_AgentServiceServicer_to_server,
        AgentRpc(agents, clock, new_id, Pinning(skills), models, searchable=searchable),
    )
    server.add(
        add_EnvironmentServiceServicer_to_server,
        EnvironmentRpc(environments, clock, new_id, ceilings(settings.sandbox_ceilings)),
    )
    server.add(
        add_EnvironmentKeyServiceServicer_to_server,
        EnvironmentKeyRpc(SqlEnvironmentKeyStore(database, clock), clock, new_id),
    )
    server.add(
        add_ApiKeyServiceServicer_to_server,
        ApiKeyRpc(SqlApiKeyStore(database, clock), clock, new_id),
    )
    stores, versions = SqlMemoryStores(database, clock), SqlMemoryVersions(database, clock)
    memories = SqlMemories(database, clock)
    add_memory_services(server, stores, memories, versions)
    files = SqlFileStore(database, objects, clock, new_id, settings.limits())
    served = FileRpc(files, clock, settings.max_uploads, settings.max_downloads)
    server.add(add_FileServiceServicer_to_server, served)
    add_skill_services(server, skills, objects, SkillLimits(settings.max_skill_bytes))
    tasks = await stack.enter_async_context(asyncio.TaskGroup())
    for sweep in (
        Answers(database, clock).sweep(),
        Expiry(database, clock).sweep(),
        FileSweep(database, objects, clock).run(),
        objects.run(),
    ):
        stack.callback(tasks.create_task(sweep).cancel)
    tell(server, SERVICE)
    await server.start()
    stack.push_async_callback(server.stop)
    await stack.enter_async_context(announced(settings.drain_seconds, server))
    health = tasks.create_task(follow(database, server))
    stack.callback(health.cancel)
    return server


def main() -> None:
    """Runs the registry until it is told to stop."""
    settings = lifecycle.configured(RegistrySettings, service=SERVICE)
    lifecycle.run(
        partial(build, settings),
        service=SERVICE,
        log_level=settings.log_level,
        stop_seconds=settings.stop_seconds,
    )


if __name__ == "__main__":
    main()
