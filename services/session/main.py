"""The session process: builds the service and runs it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Annotated

import grpc.aio
from pydantic import AfterValidator, Field

from catalogue.models import load
from catalogue.repositories import DEFAULT_HOSTS, checked_hosts, parse_hosts
from chassis import lifecycle
from chassis.clock import Clock, SystemClock
from chassis.grpc.server import GrpcServer
from chassis.ids import new_id
from chassis.settings import SecretText
from chassis.telemetry.metrics import exposed
from drover.session.v1.checkpoint_service_pb2_grpc import add_CheckpointServiceServicer_to_server
from drover.session.v1.operations_service_pb2_grpc import add_OperationsServiceServicer_to_server
from drover.session.v1.resource_service_pb2_grpc import add_ResourceServiceServicer_to_server
from drover.session.v1.session_service_pb2_grpc import add_SessionServiceServicer_to_server
from drover.work.v1.work_service_pb2_grpc import add_WorkServiceServicer_to_server
from identity.about import tell
from identity.leaving import announced
from identity.peers import Peers as OtherProcesses
from identity.settings import PeerSettings
from identity.table import Caller
from services.session.clients.brains import Brains
from services.session.clients.files import Files
from services.session.clients.hands import HandsClient
from services.session.clients.memory import MemoryStores
from services.session.clients.registry import Registry
from services.session.clients.vaults import Vaults
from services.session.commits import Commits, Listener
from services.session.copying import Copying
from services.session.dispatch import Dispatcher
from services.session.domain.cursor import Cursors
from services.session.domain.ports import Transaction
from services.session.domain.work import LEASE_SECONDS, LONGEST_LEASE_SECONDS
from services.session.feed import Feed
from services.session.files import FileReleases
from services.session.hands import HandReleases
from services.session.leases import Leases
from services.session.metrics import MeasuredStore, SessionMetrics
from services.session.peers import Peers
from services.session.rpc.checkpoints import CheckpointRpc
from services.session.rpc.operations import OperationsRpc
from services.session.rpc.parts import Parts
from services.session.rpc.resources import ResourceRpc
from services.session.rpc.servicer import SessionRpc
from services.session.rpc.work import WorkRpc
from services.session.store.checkpoints import SqlCheckpointStore
from services.session.store.clock import steady
from services.session.store.copies import SqlCopyStore
from services.session.store.schema import SCHEMA
from services.session.store.store import SqlSessionStore
from services.session.stuck import StuckSessions
from services.session.watch import Watch
from services.session.workers import Doorbell, LapsedWork, Pollers
from storage import Database, open_database
from storage.address import is_sqlite
from storage.answers import BATCH
from storage.health import follow
from storage.notices import open_notices
from storage.once import sweeping
from storage.settings import DatabaseSettings

SERVICE = "session"
_STOP_SECONDS = 1.0
"""Streams end with the process: only what is nearly done is waited for."""
_GRACE_SECONDS = 2.0
"""What has needed a brain for less is left to the replica that brought it about."""


class SessionSettings(DatabaseSettings, PeerSettings):
    """What the session service needs beyond what every process has."""

    session_database_url: SecretText = Field(
        default=None, description="The database of the session alone."
    )
    stuck_reader_seconds: float = Field(
        default=30.0,
        gt=0,
        description="A reader of a stream that takes nothing for so long is disconnected.",
    )
    stuck_session_seconds: float = Field(
        default=60.0,
        gt=0,
        description="A session that works, or should, and gets no event for so long is told of.",
    )
    work_lease_seconds: int = Field(
        default=LEASE_SECONDS,
        ge=1,
        le=LONGEST_LEASE_SECONDS,
        description="A self-hosted worker that is not heard of for so long is lost, unless it asks "
        "for another time: its session goes to the next one.",
    )
    git_hosts: Annotated[str, AfterValidator(checked_hosts)] = Field(
        default=DEFAULT_HOSTS,
        description="The hosts whose repositories sessions may mount, each with where it is "
        "reached: HOST=https://UPSTREAM, separated by commas (docs/credentials.md).",
    )
    models_file: Path | None = Field(
        default=None, description="JSON file with models and prices of yours, over those shipped."
    )


async def build(settings: SessionSettings, stack: AsyncExitStack) -> GrpcServer:
    """A started session service; `stack` stops it and closes its database.

    Without brain addresses sessions wait for a brain; without a hands address the hands of ended
    sessions stay on the list of those to be released.
    """
    registry = await exposed(settings.metrics_listen, stack)
    others = OtherProcesses.of(settings, Caller.SESSION, registry)
    server = others.server(settings, registry)

    def channel(callee: Caller, address: str) -> grpc.aio.Channel:
        opened = others.channel(address, callee)
        stack.push_async_callback(opened.close, None)
        return opened

    url = settings.database(SERVICE).open()
    database = await open_database(url, SCHEMA)
    stack.push_async_callback(database.close)
    clock: Clock = await steady(database, SystemClock()) if is_sqlite(url) else SystemClock()
    sql = SqlSessionStore(database, clock)
    stack.push_async_callback(sql.close)
    metrics = SessionMetrics(registry)
    store = MeasuredStore(sql, metrics)
    copying = await stack.enter_async_context(Copying(SqlCopyStore(database, clock)))

    brains = await stack.enter_async_context(_brains(settings, others))
    notices = open_notices(url, SCHEMA.name)
    dispatcher = Dispatcher(brains, store, grace_seconds=_GRACE_SECONDS if notices else 0)
    leases = Leases(dispatcher.desert)
    feed = Feed(leases.want_previews)
    kept, hands = settings.vault_proxy_address, settings.hands_address
    vaults = Vaults(channel(Caller.VAULT_PROXY, kept) if kept else None)
    registry_channel = channel(Caller.REGISTRY, settings.address_of("registry"))
    files = Files(registry_channel, SystemClock())
    file_releases = FileReleases(store, files)
    releases = []
    if hands:
        client, keeper = HandsClient(channel(Caller.HANDS, hands)), vaults if kept else None
        releases = [HandReleases(store, client, keeper, file_releases.look)]
    listeners: list[Listener] = [dispatcher, leases, *releases]
    doorbell = Doorbell()
    readers: list[Listener] = [feed, metrics, copying, doorbell]
    peers, watch = None, Watch(store, feed, leases, dispatcher, ring=doorbell.ring)
    if notices is not None:
        peers = Peers(new_id("srep"), notices, feed, watch, clock)
        feed.join(peers)
        readers.append(peers)
    commits = await stack.enter_async_context(Commits(store, listeners, readers))
    parts = Parts(
        store=store,
        checkpoints=SqlCheckpointStore(database),
        commits=commits,
        copying=copying,
        feed=feed,
        preview=peers.preview if peers else feed.preview,
        leases=leases,
        registry=Registry(registry_channel),
        vaults=vaults,
        files=files,
        memory_stores=MemoryStores(registry_channel),
        models=load(settings.models_file),
        cursors=Cursors(others.token.open().encode()),
        ids=new_id,
        stuck_seconds=settings.stuck_reader_seconds,
        git_hosts=parse_hosts(settings.git_hosts),
        files_due=file_releases.look,
    )
    _show(metrics, feed, leases, dispatcher, watch)
    _offer(
        server,
        parts,
        WorkRpc(parts, doorbell, Pollers(store), lease_seconds=settings.work_lease_seconds),
    )
    await server.start()
    # After the server, since a brain that is woken calls back at once. At the end they outlive it:
    # what it still commits wakes brains, and streams are told what other replicas do.
    work = [dispatcher.run(commits), sweeping(partial(store.write, _forget_answers))]
    work += [
        brains.run(),
        copying.run(),
        file_releases.run(),
        LapsedWork(store, commits, metrics).run(),
        StuckSessions(store, metrics, settings.stuck_session_seconds).run(),
    ]
    work += [one.run() for one in releases]
    if peers is not None:
        work += [peers.run(), watch.run()]
    await stack.enter_async_context(_running(*work))
    await _stopping(server, database, settings.drain_seconds, dispatcher.leave, stack)
    return server


def _brains(settings: SessionSettings, others: OtherProcesses) -> Brains:
    for one in settings.brain_addresses:  # names, too, which are looked up later
        others.keep_here(one, "DROVER_BRAIN_ADDRESSES")
    return Brains(settings.brain_addresses, partial(others.channel, callee=Caller.BRAIN))


async def _stopping(
    server: GrpcServer,
    database: Database,
    seconds: float,
    left: Callable[[], None],
    stack: AsyncExitStack,
) -> None:
    """Has `stack` end with what others see of this process: its health, then its server.

    In between `left` is called.
    """
    stack.push_async_callback(server.stop, _STOP_SECONDS)
    stack.callback(left)
    await stack.enter_async_context(announced(seconds, server))
    await stack.enter_async_context(_running(follow(database, server)))


def _offer(server: GrpcServer, parts: Parts, work: WorkRpc) -> None:
    server.add(add_SessionServiceServicer_to_server, SessionRpc(parts))
    server.add(add_ResourceServiceServicer_to_server, ResourceRpc(parts))
    server.add(add_CheckpointServiceServicer_to_server, CheckpointRpc(parts.checkpoints))
    server.add(add_WorkServiceServicer_to_server, work)
    server.add(add_OperationsServiceServicer_to_server, OperationsRpc(parts.store))
    tell(server, SERVICE)


def _show(
    metrics: SessionMetrics, feed: Feed, leases: Leases, dispatcher: Dispatcher, watch: Watch
) -> None:
    metrics.gauge("subscriptions", "Streams that are followed here.", lambda: feed.subscriptions)
    metrics.gauge("leases", "Leases whose stream ends here.", lambda: len(leases.sessions))
    metrics.gauge("visits", "Sessions woken from here.", lambda: len(dispatcher.sessions))
    metrics.count("swept", "Sessions in need that only the sweep found.", lambda: dispatcher.swept)
    metrics.count("hints", "Hints of other replicas' commits.", lambda: watch.hints)
    metrics.count("polls", "Looks that no hint had asked for.", lambda: watch.polls)


def _forget_answers(tx: Transaction) -> int:
    return tx.forget_answers(BATCH)


@asynccontextmanager
async def _running(*work: Coroutine[None, None, None]) -> AsyncIterator[None]:
    """Runs work in the background for as long as the context is open.

    Work that fails brings the process down, to be started anew.
    """
    try:
        async with asyncio.TaskGroup() as tasks:
            started = [tasks.create_task(one) for one in work]
            try:
                yield
            finally:
                for task in started:
                    task.cancel()
    except BaseExceptionGroup as group:
        if len(group.exceptions) > 1:
            raise
        raise group.exceptions[0] from None


def main() -> None:
    """Runs the session service until it is told to stop."""
    settings = lifecycle.configured(SessionSettings, service=SERVICE)
    lifecycle.run(
        partial(build, settings),
        service=SERVICE,
        log_level=settings.log_level,
        stop_seconds=settings.stop_seconds,
    )


if __name__ == "__main__":
    main()
