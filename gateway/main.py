"""The gateway process: builds the application and serves it."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from functools import partial
from typing import TYPE_CHECKING

from chassis import lifecycle
from chassis.clock import SystemClock
from chassis.errors import CannotStartError
from chassis.ids import new_id
from chassis.telemetry.metrics import exposed
from gateway import status
from gateway.access import Access, Terms, terms
from gateway.app import Endpoint, GatewayApp, Served
from gateway.auth import ApiKeys, HostNames, key_file
from gateway.downloads import DownloadEndpoint
from gateway.fanout import Fanout
from gateway.guesses import Guesses
from gateway.idempotency import RequestKeys
from gateway.overview import Overview, ticking
from gateway.processes import Processes
from gateway.quotas import Quotas
from gateway.room import Room
from gateway.scopes import ANY, area
from gateway.server import HttpServer
from gateway.services import SERVED, addresses, reads
from gateway.settings import GatewaySettings
from gateway.stored_keys import StoredKeys
from gateway.streams import StreamEndpoints
from gateway.subscription import Resumption
from gateway.traffic import Traffic
from gateway.transcode.openapi import describe
from gateway.transcode.routes import Contract, Kind
from gateway.transcode.template import Router
from gateway.unary import UnaryEndpoint
from gateway.uploads.endpoint import Bounds, UploadEndpoint
from gateway.upstream import Upstream
from gateway.watch import Watches
from gateway.workers import Workers
from identity.about import version
from identity.leaving import announced
from identity.peers import Peers
from identity.table import Caller

if TYPE_CHECKING:
    import grpc.aio
    from prometheus_client import CollectorRegistry

    from gateway.transcode.routes import Route

SERVICE = "gateway"


async def build(settings: GatewaySettings, stack: AsyncExitStack) -> HttpServer:
    """A started gateway; `stack` stops it. Raises `CannotStartError` for an address not set."""
    registry = await exposed(settings.metrics_listen, stack)
    peers = Peers.of(settings, Caller.GATEWAY, registry)
    channels: dict[str, grpc.aio.Channel] = {}
    for process, address in addresses(settings).items():
        channels[process] = peers.channel(
            address,
            process.partition("-")[0],
            deadline=settings.request_seconds,
            retried=reads(process),
        )
        stack.push_async_callback(channels[process].close, None)
    upstream = Upstream(channels, SERVED, deadline=settings.request_seconds)
    clock = SystemClock()
    traffic, contract = Traffic(registry), Contract(SERVED)
    tasks = await stack.enter_async_context(asyncio.TaskGroup())
    stored = StoredKeys.of(upstream, tasks, settings.key_cache_seconds, clock)
    stack.callback(stored.close)
    access = Access(
        ApiKeys(_keys(settings), peers.token),
        stored,
        Workers.of(upstream),
        Guesses(settings.failed_keys_per_minute, clock),
    )
    watches = Watches(tasks, access, settings.recheck_seconds, settings.resume_seconds, clock)
    fanout = Fanout(tasks, settings.keepalive_seconds, clock)
    streams = StreamEndpoints(
        contract.encoders,
        fanout,
        stall_seconds=settings.stall_seconds,
        resumption=Resumption(settings.resume_seconds),
        open_seconds=settings.request_seconds,
        open_streams=traffic.open,
        watches=watches,
        clock=clock,
        ids=new_id,
    )
    keys = RequestKeys(peers.token)
    areas = {area(route.template) for route in contract.routes if not route.rules.admin}
    uploads, downloads = Room(settings.max_uploads), Room(settings.max_downloads)

    def endpoint_of(route: Route) -> Endpoint:
        method = route.method
        if route.kind is Kind.EVENTS:
            return streams.endpoint(route, upstream.stream(method))
        if route.kind is Kind.DOWNLOAD:
            return DownloadEndpoint(
                route, upstream.download(method), downloads, watches, settings.stall_seconds
            )
        encoder, most = contract.encoders.of(route.answer), settings.max_body_bytes
        if (form := route.form) is not None:
            bounds = _skill(settings) if form.many else Bounds(settings.max_file_bytes)
            upload = upstream.upload(method)
            return UploadEndpoint(
                route, form, upload, encoder, bounds, room=uploads, watches=watches
            )
        call = upstream.unary(method)
        return UnaryEndpoint(
            route, call, encoder, most, keys=keys, areas=areas, watches=watches, clock=clock
        )

    router: Router[Served] = Router()
    processes = Processes(addresses(settings), peers.channel, clock)
    overview = Overview(processes, version(), clock)
    ready = status.Readiness(upstream)
    for served in _operations(contract, ready, registry, overview):
        router.add("GET", served.template, served)
    for route in contract.routes:
        served = Served(route.template, endpoint_of(route), terms=terms(route))
        router.add(route.verb, route.template, served)
    hosts = HostNames(settings.listen, settings.allowed_hosts)
    quotas = Quotas(settings.requests_per_minute, clock)
    app = GatewayApp(router, access, hosts, quotas, traffic=traffic, clock=clock, ids=new_id)
    server = HttpServer(app, settings.listen)
    await server.start(tasks)
    stack.push_async_callback(server.stop)
    stack.callback(fanout.close)
    await stack.enter_async_context(announced(settings.drain_seconds, ready, server))
    return server


def _skill(settings: GatewaySettings) -> Bounds:
    """Of a skill's upload: one that does not get smaller, with what an archive says of it."""
    return Bounds(settings.max_skill_bytes + 2 * 1024 * 1024)


def _operations(
    contract: Contract, ready: Endpoint, registry: CollectorRegistry, overview: Endpoint
) -> tuple[Served, ...]:
    description = describe(contract, version())
    return (
        Served("/healthz", status.alive(), any_host=True),
        Served("/readyz", ready, any_host=True),
        Served("/metrics", status.Metrics(registry)),
        Served("/openapi.json", status.description(description)),
        Served("/docs", status.reference()),
        Served("/status", overview, terms=Terms(scope=ANY)),
        Served("/status/stream", ticking, terms=Terms(scope=ANY)),
    )


def _keys(settings: GatewaySettings) -> list[str]:
    if settings.api_key is not None:
        return [settings.api_key.get_secret_value()]
    try:
        return key_file(settings.api_key_file)
    except OSError as error:
        msg = (
            f"the API keys cannot be read from {settings.api_key_file}, nor made there "
            f"({error.strerror}): name their file with DROVER_API_KEY_FILE"
        )
        raise CannotStartError(msg) from error


def main() -> None:
    """Runs the gateway until it is told to stop."""
    settings = lifecycle.configured(GatewaySettings, service=SERVICE)
    lifecycle.run(
        partial(build, settings),
        service=SERVICE,
        log_level=settings.log_level,
        stop_seconds=settings.stop_seconds,
    )


if __name__ == "__main__":
    main()
