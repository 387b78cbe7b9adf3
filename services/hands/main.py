"""The hands process: wiring."""

from __future__ import annotations

import asyncio
import os
from contextlib import AsyncExitStack
from functools import partial
from typing import TYPE_CHECKING, Final

import structlog

from catalogue.sandboxes import ceilings
from chassis import lifecycle
from chassis.clock import SystemClock
from chassis.ids import new_id
from chassis.telemetry.metrics import exposed
from drover.hands.v1.hands_service_pb2_grpc import add_HandsServiceServicer_to_server
from identity.about import tell
from identity.leaving import announced
from identity.peers import Peers
from identity.table import Caller
from services.hands.backends.choice import Choice
from services.hands.backends.docker.settings import DEFAULT_HOST, EngineSettings
from services.hands.backends.kubernetes.backend import KubernetesBackend
from services.hands.backends.kubernetes.settings import ClusterSettings
from services.hands.backends.local import LocalBackend
from services.hands.checkpoints.archiver import Archiver
from services.hands.checkpoints.keeper import Keeper
from services.hands.checkpoints.metrics import CheckpointMetrics
from services.hands.checkpoints.origins import Origins
from services.hands.checkpoints.pruning import Pruner
from services.hands.checkpoints.restoring import Restorer
from services.hands.checkpoints.taking import Taker
from services.hands.clients.mcp import McpClient
from services.hands.clients.memory import MemoryClient
from services.hands.clients.registry import RegistryClient
from services.hands.clients.vault_proxy import VaultProxyClient
from services.hands.clients.web import WebClient
from services.hands.custody import Custody
from services.hands.disk import DiskWatcher
from services.hands.domain import protections
from services.hands.domain.limits import MIB
from services.hands.egress.grants import Grants
from services.hands.egress.metrics import EgressMetrics
from services.hands.egress.network import Network
from services.hands.egress.proxy import ProxyAddress
from services.hands.executor import Executor
from services.hands.given import Given
from services.hands.memory.attendant import MemoryDirectories
from services.hands.metrics import PoolMetrics
from services.hands.outputs.record import mark_restored
from services.hands.packages.builder import Terms
from services.hands.packages.settings import indexes
from services.hands.packages.shelf import Shelf
from services.hands.pool import Pool
from services.hands.pool_settings import pools
from services.hands.remote.granted import RemoteGrants
from services.hands.remote.mcp import McpTools
from services.hands.remote.outside import Outside
from services.hands.remote.spilling import Spilling
from services.hands.remote.web import WebPages
from services.hands.rpc import HandsRpc
from services.hands.settings import HandsSettings
from services.hands.store.checkpoints import SqlCheckpoints
from services.hands.store.handovers import SqlHandOvers
from services.hands.store.journal import SqlJournal
from services.hands.store.owners import SqlOwners
from services.hands.store.schema import SCHEMA
from services.hands.traffic import CountedMemories, Traffic
from services.hands.workspace import Workspaces
from storage import open_database
from storage.health import follow

if TYPE_CHECKING:
    from pathlib import Path

    import grpc.aio
    from prometheus_client import CollectorRegistry

    from chassis.grpc.server import GrpcServer
    from services.hands.backends.port import Backend
    from services.hands.lifecycle import Lifecycle
    from storage import Database

SERVICE: Final = "hands"
_REAP_SECONDS: Final = 15.0
_GRACE_SECONDS: Final = 3.0
"""To answer for calls whose sandbox was ended."""
_log = structlog.get_logger("hands.main")
_MAX_ENTRIES: Final = 1_000_000
"""Files and directories of a workspace that is kept in a store."""


async def build(settings: HandsSettings, stack: AsyncExitStack) -> GrpcServer:
    """Builds the service and serves; `stack` ends it.

    It reports healthy only once nothing is left of a process that died before it.
    """
    registry = await exposed(settings.metrics_listen, stack)
    peers = Peers.of(settings, Caller.HANDS, registry)
    server = peers.server(settings, registry)
    directory = settings.data_dir.absolute() / "hands"
    directory.mkdir(parents=True, exist_ok=True)
    database = await open_database(settings.database(SERVICE).open(), SCHEMA)
    stack.push_async_callback(database.close)
    backend = Choice(
        directory,
        {
            "local": partial(
                LocalBackend, directory, protections.minimum(settings.sandbox_minimum)
            ),
            "docker": partial(_docker, directory, settings),
            "kubernetes": partial(_kubernetes, directory, settings),
        },
        settings.sandbox,
    )
    stack.push_async_callback(backend.close)
    await backend.start()
    workspaces = Workspaces(directory, privileged=os.geteuid() == 0)
    await workspaces.start()

    tasks = await stack.enter_async_context(asyncio.TaskGroup())
    keeper = await _keeper(
        settings, stack, tasks, database=database, workspaces=workspaces, registry=registry
    )
    vault_proxy = _channel(settings.vault_proxy_address, Caller.VAULT_PROXY, peers, stack)
    records = _channel(settings.registry_address, Caller.REGISTRY, peers, stack)
    grants = _grants(vault_proxy, tasks)
    given = _given(settings, records, database, workspaces, tasks, traffic=Traffic(registry))
    told: Lifecycle = keeper
    if given is not None:
        stack.push_async_callback(given.close)
        keeper.precede(given.publisher.publish)
        told = given.told(keeper)
    pool = Pool(
        backend,
        workspaces,
        tasks,
        standard=settings.standard(),
        pools=pools(settings.hands_pools),
        size=settings.pool_size(),
        clock=SystemClock(),
        ids=new_id,
        lifecycle=told,
        network=await _network(settings, grants, peers, tasks, registry),
        packages=await _packages(settings, directory),
    )
    stack.push_async_callback(pool.close)
    if given is not None:
        await given.equip(pool)
    custody = Custody(SqlHandOvers(database, SystemClock()), pool, workspaces, told)
    await custody.recover()
    outside = None
    if vault_proxy is not None and grants is not None:
        outside = _outside(vault_proxy, grants, Spilling(pool, custody))
    executor = Executor(SqlJournal(database, SystemClock()), pool, tasks, custody, outside)
    watcher = DiskWatcher(pool, workspaces, settings.disk_limits(), SystemClock())
    watch = tasks.create_task(watcher.run(), name="disk")
    stack.callback(watch.cancel)
    reaper = tasks.create_task(_reap(pool, executor, custody, given), name="reaper")
    stack.callback(reaper.cancel)
    pool.fill()

    registry.register(PoolMetrics(pool, SystemClock()))
    mcp = outside.mcp if outside is not None else None
    server.add(
        add_HandsServiceServicer_to_server,
        HandsRpc(executor, mcp, has_registry=records is not None),
    )
    tell(server, SERVICE)
    await server.start()
    stack.push_async_callback(
        _stop, server, executor, pool, keeper, seconds=settings.hands_drain_seconds
    )
    await stack.enter_async_context(announced(settings.drain_seconds, server))
    health = tasks.create_task(follow(database, server), name="health")
    stack.callback(health.cancel)
    return server


def _outside(channel: grpc.aio.Channel, grants: Grants, spilling: Spilling) -> Outside:
    clock = SystemClock()
    used = RemoteGrants(grants, clock)
    mcp = McpTools(McpClient(channel), used, spilling, clock)
    return Outside(mcp, WebPages(WebClient(channel), used, clock), used)


def _docker(directory: Path, settings: HandsSettings) -> Backend:
    # The engine's SDK is slow to import, and most installations never need it.
    from services.hands.backends.docker.backend import DockerBackend  # noqa: PLC0415

    engine = EngineSettings(
        host=os.environ.get("DOCKER_HOST") or DEFAULT_HOST,
        image=settings.sandbox_image,
        runtime=settings.sandbox_runtime,
        engine_minimum=settings.sandbox_engine_minimum,
        runc_minimum=settings.sandbox_runc_minimum,
        minimum=protections.minimum(settings.sandbox_minimum),
        volume=settings.sandbox_data_volume,
        data=settings.data_dir.absolute(),
    )
    return DockerBackend(directory, engine)


def _kubernetes(directory: Path, settings: HandsSettings) -> Backend:
    # The default image is one that an engine builds; a cluster would fetch a stranger's.
    image = settings.sandbox_image if "sandbox_image" in settings.model_fields_set else ""
    least = protections.minimum(settings.sandbox_minimum)
    cluster = ClusterSettings.of(settings, image, settings.sandbox_runtime, least, os.environ)
    return KubernetesBackend(directory, cluster)


def _channel(
    address: str, callee: Caller, peers: Peers, stack: AsyncExitStack
) -> grpc.aio.Channel | None:
    """A channel to another service, where there is one. Nothing is dialled before it is used."""
    if not address:
        return None
    channel = peers.channel(address, callee)
    stack.push_async_callback(channel.close, None)
    return channel


def _grants(vault_proxy: grpc.aio.Channel | None, tasks: asyncio.TaskGroup) -> Grants | None:
    if vault_proxy is None:
        return None
    return Grants(VaultProxyClient(vault_proxy, SystemClock()), tasks, SystemClock())


async def _network(
    settings: HandsSettings,
    grants: Grants | None,
    peers: Peers,
    tasks: asyncio.TaskGroup,
    registry: CollectorRegistry,
) -> Network | None:
    """What sandboxes reach the vault proxy's egress port through, where there is one."""
    if not settings.egress_address:
        _log.info("no_network", effect="sandboxes have none: DROVER_EGRESS_ADDRESS is not set")
        return None
    if grants is None:
        settings.address_of("vault_proxy")  # says what is to be set
        return None
    peers.keep_here(settings.egress_address, "DROVER_EGRESS_ADDRESS")
    network = Network(
        settings.data_dir.absolute() / "hands",
        ProxyAddress(settings.egress_address, peers.tls),
        grants,
        tasks,
        most=settings.hands_egress_connections,
        clock=SystemClock(),
        metrics=EgressMetrics(registry),
    )
    await network.start()
    return network


def _given(
    settings: HandsSettings,
    records: grpc.aio.Channel | None,
    database: Database,
    workspaces: Workspaces,
    tasks: asyncio.TaskGroup,
    *,
    traffic: Traffic,
) -> Given | None:
    """What sessions are given and leave, where there is a registry."""
    if records is None:
        return None
    memories = CountedMemories(MemoryClient(records), traffic)
    return Given(
        RegistryClient(records),
        MemoryDirectories(memories, workspaces, tasks, traffic=traffic),
        SqlOwners(database),
        workspaces,
        tasks,
        bounds=settings.output_bounds(),
        directory=settings.data_dir.absolute() / "hands",
        free_bytes=settings.hands_free_mib * MIB,
        clock=SystemClock(),
        traffic=traffic,
    )


async def _packages(settings: HandsSettings, directory: Path) -> Terms:
    shelf = Shelf(directory)
    await asyncio.to_thread(shelf.start)
    bounds = settings.package_bounds(settings.hands_free_mib)
    return Terms(shelf, indexes(settings.package_indexes), bounds)


async def _keeper(
    settings: HandsSettings,
    stack: AsyncExitStack,
    tasks: asyncio.TaskGroup,
    *,
    database: Database,
    workspaces: Workspaces,
    registry: CollectorRegistry,
) -> Keeper:
    directory = settings.data_dir.absolute() / "hands"
    rows, origins = SqlCheckpoints(database, SystemClock()), Origins(directory)
    # What a volume may have before the disk watcher ends its sandbox, and a good deal more.
    most = max(settings.hands_workspace_mib, ceilings(settings.sandbox_ceilings)["workspace_mib"])
    archiver = Archiver(entries=_MAX_ENTRIES, data=2 * int(most) * MIB)
    metrics = CheckpointMetrics(registry)
    objects = settings.store()
    pruner = taker = None
    if objects is not None:
        pruner = Pruner(rows, objects, metrics, SystemClock())
        taker = Taker(rows, objects, workspaces, origins, archiver, pruner, metrics, new_id)
    keeper = Keeper(
        rows,
        workspaces,
        origins,
        Restorer(objects, workspaces, origins, archiver, metrics, new_id, mark_restored),
        taker=taker,
        pruner=pruner,
        tasks=tasks,
        clock=SystemClock(),
        metrics=metrics,
        pace=settings.pace(),
    )
    await keeper.start()
    for work in (keeper.run(), *([pruner.run()] if pruner is not None else [])):
        stack.callback(tasks.create_task(work, name="checkpoints").cancel)
    return keeper


async def _stop(
    server: GrpcServer, executor: Executor, pool: Pool, keeper: Keeper, *, seconds: float
) -> None:
    """Refuses new calls; those under way may end, and are recorded as unknown if they do not."""
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(server.stop(seconds + _GRACE_SECONDS))
        await executor.drain(seconds)
        await pool.close()
        await keeper.close()


async def _reap(pool: Pool, executor: Executor, custody: Custody, given: Given | None) -> None:
    while True:
        await asyncio.sleep(_REAP_SECONDS)
        await pool.reap()
        await custody.tend()
        if given is not None:
            given.tend()
        executor.prune()


def main() -> None:
    """Runs the hands until they are told to stop."""
    settings = lifecycle.configured(HandsSettings, service=SERVICE)
    lifecycle.run(
        partial(build, settings),
        service=SERVICE,
        log_level=settings.log_level,
        stop_seconds=settings.stop_seconds,
    )


if __name__ == "__main__":
    main()
