"""The vault proxy process: builds the service and runs it."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

from catalogue.host_list import HostList
from catalogue.package_hosts import package_hosts
from catalogue.registries import is_registry
from catalogue.repositories import parse_hosts
from chassis import lifecycle
from chassis.clock import Clock, SystemClock
from chassis.ids import new_id
from chassis.telemetry.metrics import exposed
from drover.vault.v1.credential_proxy_service_pb2_grpc import (
    add_CredentialProxyServiceServicer_to_server,
)
from drover.vault.v1.vault_audit_service_pb2_grpc import add_VaultAuditServiceServicer_to_server
from drover.vault.v1.vault_credential_service_pb2_grpc import (
    add_VaultCredentialServiceServicer_to_server,
)
from drover.vault.v1.vault_key_service_pb2_grpc import add_VaultKeyServiceServicer_to_server
from drover.vault.v1.vault_service_pb2_grpc import add_VaultServiceServicer_to_server
from identity.about import tell
from identity.leaving import announced
from identity.peers import Peers
from identity.table import Caller
from services.vault_proxy.clients.sessions import SessionClient
from services.vault_proxy.conditions import addresses, opened, trusted
from services.vault_proxy.crypto.envelope import Envelopes
from services.vault_proxy.domain.addresses import AddressRules, InClear
from services.vault_proxy.domain.paths import operator_rules
from services.vault_proxy.domain.policy import Installation
from services.vault_proxy.git.access import RepositoryAccess
from services.vault_proxy.git.rules import RepositoryRules
from services.vault_proxy.grants.authority import Authorities
from services.vault_proxy.grants.giving import Giving, Leftovers
from services.vault_proxy.grants.known import KnownSessions
from services.vault_proxy.grants.sessions import GrantedSessions
from services.vault_proxy.mcp.later import McpLater, Needs
from services.vault_proxy.outbound import Outbound
from services.vault_proxy.proxy.dial import (
    AnyAddress,
    JudgingDialler,
    Resolve,
    system_resolver,
)
from services.vault_proxy.proxy.server import Parts, serving
from services.vault_proxy.rpc.audit import AuditRpc
from services.vault_proxy.rpc.credential_proxy import CredentialProxyRpc
from services.vault_proxy.rpc.credentials import CredentialRpc
from services.vault_proxy.rpc.keys import KeyRpc
from services.vault_proxy.rpc.vaults import VaultRpc
from services.vault_proxy.settings import VaultProxySettings
from services.vault_proxy.store.audit import SqlAuditStore
from services.vault_proxy.store.counts import SqlCounts
from services.vault_proxy.store.credentials import SqlCredentialStore
from services.vault_proxy.store.grants import SqlAuthorities, SqlRevocations
from services.vault_proxy.store.schema import SCHEMA
from services.vault_proxy.store.session_secrets import SqlSessionSecretStore
from services.vault_proxy.store.vaults import SqlVaultStore
from services.vault_proxy.store.wrapped_keys import SqlWrappedKeys
from services.vault_proxy.undumpable import keep_memory_closed
from services.vault_proxy.vault.holdings import Holdings
from services.vault_proxy.vault.rotation import Rotation
from services.vault_proxy.vault.safe import Safe
from services.vault_proxy.vault.server_credentials import VaultServerCredentials
from services.vault_proxy.vault.session_secrets import KeptSessionSecrets
from services.vault_proxy.vault.trail import AuditTrail
from storage import open_database
from storage.health import follow
from storage.once import Answers

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

    from chassis.grpc.server import GrpcServer
    from identity.credentials import Credentials
    from services.vault_proxy.crypto.sealer import InstallationKey
    from services.vault_proxy.domain.addresses import AddressRules
    from storage import Database

SERVICE: Final = "vault_proxy"


class Ground(NamedTuple):
    """What every room stands on."""

    settings: VaultProxySettings
    stack: AsyncExitStack
    tasks: asyncio.TaskGroup
    database: Database
    clock: Clock
    registry: CollectorRegistry
    server: GrpcServer


class Vault(NamedTuple):
    """What the rooms that use credentials are given."""

    keys: InstallationKey
    """Signs grants, and seals what the process keeps: `Sealer` and `SigningKeys`."""
    trail: AuditTrail
    """`Audit`"""
    holdings: Holdings
    """`Credentials`"""
    servers: VaultServerCredentials
    """`ServerCredentials`"""
    session_secrets: KeptSessionSecrets
    """`SessionSecrets`"""
    authorities: Authorities
    credentials: SqlCredentialStore
    safe: Safe


class Outside(NamedTuple):
    """The ways out of this process, judged each time."""

    addresses: AddressRules
    resolve: Resolve
    outbound: Outbound
    operators: Outbound
    """To what the operator has named: the address is his word."""


async def build(settings: VaultProxySettings, stack: AsyncExitStack) -> GrpcServer:
    """A started vault proxy; `stack` stops it and closes its database."""
    registry = await exposed(settings.metrics_listen, stack)
    peers = Peers.of(settings, Caller.VAULT_PROXY, registry)
    server = peers.server(settings, registry)
    database = await open_database(settings.database(SERVICE).open(), SCHEMA)
    stack.push_async_callback(database.close)
    tasks = await stack.enter_async_context(asyncio.TaskGroup())
    ground = Ground(settings, stack, tasks, database, SystemClock(), registry, server)
    channel = peers.channel(settings.address_of("session"), Caller.SESSION)
    reader = SessionClient(await stack.enter_async_context(channel))
    vault = await _vault(ground)
    outside = await _outside(ground)
    sessions = await _grants(ground, vault, outside, reader)
    for forever in (
        Answers(database, ground.clock).sweep(),
        vault.trail.forget(settings.vault_audit_days),
        vault.session_secrets.sweep(reader),
        Leftovers(SqlAuthorities(database), SqlRevocations(database), reader, ground.clock).sweep(),
    ):
        stack.callback(tasks.create_task(forever).cancel)
    tell(server, SERVICE)
    await server.start()
    stack.push_async_callback(server.stop)
    if settings.egress_listen:
        peers.keep_here(settings.egress_listen, "DROVER_EGRESS_LISTEN")
        await _egress(ground, vault, outside, sessions, peers.tls)
    await stack.enter_async_context(announced(settings.drain_seconds, server))
    stack.callback(tasks.create_task(follow(database, server)).cancel)
    return server


async def _vault(ground: Ground) -> Vault:
    """Vaults, credentials, the audit trail. Raises `CannotStartError` where keys are wanting."""
    database, clock, server = ground.database, ground.clock, ground.server
    wrapped = SqlWrappedKeys(database)
    keyring = ground.settings.keyring(make=await wrapped.load() is None)
    keys = await opened(wrapped, keyring)
    envelopes = Envelopes(keyring, clock, ground.settings.vault_key_cache_seconds)
    vaults, credentials = SqlVaultStore(database, clock), SqlCredentialStore(database, clock)
    holdings = Holdings(credentials, envelopes, clock)
    safe = Safe(credentials, envelopes, holdings)
    kept = KeptSessionSecrets(SqlSessionSecretStore(database), envelopes, clock)
    audit = SqlAuditStore(database)
    trail = await ground.stack.enter_async_context(AuditTrail(audit, new_id, clock))
    authorities = Authorities(SqlAuthorities(database), keys, clock)
    server.add(
        add_VaultServiceServicer_to_server,
        VaultRpc(vaults, holdings, kept, authorities, clock=clock, ids=new_id),
    )
    server.add(add_VaultAuditServiceServicer_to_server, AuditRpc(audit, trail))
    server.add(
        add_VaultKeyServiceServicer_to_server, KeyRpc(Rotation(wrapped, keyring), wrapped, keyring)
    )
    servers = VaultServerCredentials(credentials, holdings, safe)
    return Vault(keys, trail, holdings, servers, kept, authorities, credentials, safe)


async def _outside(ground: Ground) -> Outside:
    """What may be dialled. Raises `CannotStartError` for a file that cannot be read."""
    rules = addresses(ground.settings, SERVICE)
    resolve = await ground.stack.enter_async_context(system_resolver())
    context = trusted(ground.settings)
    return Outside(
        rules,
        resolve,
        Outbound(
            JudgingDialler(rules, resolve),
            context,
            JudgingDialler(InClear(rules), resolve),
        ),
        Outbound(JudgingDialler(AnyAddress(), resolve), context),
    )


async def _grants(
    ground: Ground, vault: Vault, outside: Outside, reader: SessionClient
) -> GrantedSessions:
    """What hands may ask for, and what sessions may do."""
    settings, clock, database = ground.settings, ground.clock, ground.database
    indexes = package_hosts(settings.package_hosts)
    revocations = SqlRevocations(database)
    known = KnownSessions(
        reader=reader,
        credentials=vault.holdings,
        revocations=revocations,
        package_hosts=indexes,
        key=vault.keys.derived("placeholders"),
        clock=clock,
    )
    signing = vault.keys.derived("grants")
    rules = operator_rules(settings.egress_rules)
    sessions = GrantedSessions(
        known=known,
        installation=Installation.of(outside.addresses, indexes, rules),
        git=RepositoryRules(parse_hosts(settings.git_hosts)),
        authorities=vault.authorities,
        key=signing,
        clock=clock,
    )
    giving = Giving(
        known=known,
        authorities=vault.authorities,
        revocations=revocations,
        audit=vault.trail,
        key=signing,
        clock=clock,
    )
    service = CredentialProxyRpc(
        SqlCounts(database),
        giving,
        sessions,
        servers=await _servers(ground, vault, outside),
        web=settings.web_tools(
            outside.outbound,
            outside.operators,
            audit=vault.trail,
            clock=clock,
            registry=ground.registry,
        ),
    )
    ground.server.add(add_CredentialProxyServiceServicer_to_server, service)
    # The list of registries takes a moment to read: no session's first request should wait for it.
    ground.tasks.create_task(asyncio.to_thread(is_registry, "example.com"))
    return sessions


async def _servers(ground: Ground, vault: Vault, outside: Outside) -> McpLater:
    """MCP for sessions, and for those who save credentials."""
    needs = Needs(
        vault.servers,
        outside.outbound,
        vault.trail,
        ground.clock,
        ground.registry,
        ground.settings.mcp_limits(),
    )
    mcp = await ground.stack.enter_async_context(McpLater(needs, ground.tasks))
    ground.server.add(
        add_VaultCredentialServiceServicer_to_server,
        CredentialRpc(vault.credentials, vault.safe, vault.holdings, mcp, ground.clock, new_id),
    )
    return mcp


async def _egress(
    ground: Ground,
    vault: Vault,
    outside: Outside,
    sessions: GrantedSessions,
    tls: Credentials | None,
) -> None:
    """Serves sandboxes."""
    settings = ground.settings
    parts = Parts(
        sessions=sessions,
        addresses=outside.addresses,
        audit=vault.trail,
        git=RepositoryAccess(vault.session_secrets),
        resolve=outside.resolve,
        trust=trusted(settings),
        opaque=HostList(settings.egress_opaque),
        registry=ground.registry,
        clock=ground.clock,
        tls=None if tls is None else tls.server_context(),
    )
    await ground.stack.enter_async_context(serving(settings.egress_listen, parts))


def main() -> None:
    """Runs the vault proxy until it is told to stop."""
    keep_memory_closed()
    settings = lifecycle.configured(VaultProxySettings, service=SERVICE)
    lifecycle.run(
        partial(build, settings),
        service=SERVICE,
        log_level=settings.log_level,
        stop_seconds=settings.stop_seconds,
    )


if __name__ == "__main__":
    main()
