"""The vault proxy process: builds the service and runs it."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from pydantic import Field

from chassis import lifecycle
from chassis.clock import SystemClock
from chassis.errors import CannotStartError, DroverError
from chassis.grpc.server import GrpcServer
from chassis.ids import new_id
from chassis.settings import SecretText
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
from services.vault_proxy.crypto.envelope import Envelopes
from services.vault_proxy.crypto.settings import KeySettings
from services.vault_proxy.rpc.audit import AuditRpc
from services.vault_proxy.rpc.credential_proxy import CredentialProxyRpc
from services.vault_proxy.rpc.credentials import CredentialRpc
from services.vault_proxy.rpc.keys import KeyRpc
from services.vault_proxy.rpc.vaults import VaultRpc
from services.vault_proxy.store.audit import SqlAuditStore
from services.vault_proxy.store.credentials import SqlCredentialStore
from services.vault_proxy.store.schema import SCHEMA
from services.vault_proxy.store.session_secrets import SqlSessionSecretStore
from services.vault_proxy.store.vaults import SqlVaultStore
from services.vault_proxy.store.wrapped_keys import SqlWrappedKeys
from services.vault_proxy.undumpable import keep_memory_closed
from services.vault_proxy.vault.holdings import Holdings
from services.vault_proxy.vault.installation import installation_key
from services.vault_proxy.vault.rotation import Rotation
from services.vault_proxy.vault.safe import Safe
from services.vault_proxy.vault.server_credentials import VaultServerCredentials
from services.vault_proxy.vault.session_secrets import KeptSessionSecrets
from services.vault_proxy.vault.trail import AuditTrail
from storage import open_database
from storage.health import follow
from storage.once import Answers

if TYPE_CHECKING:
    from chassis.clock import Clock
    from services.vault_proxy.crypto.keyring import Keyring
    from services.vault_proxy.crypto.sealer import InstallationKey
    from services.vault_proxy.domain.server_credential import CredentialProbe
    from storage import Database

SERVICE = "vault_proxy"


class VaultProxySettings(KeySettings):
    """The vault proxy's: its database, the keys of what is in it, and how long it remembers."""

    vault_proxy_database_url: SecretText = Field(
        default=None, description="The database of the vault proxy alone."
    )
    vault_audit_days: int = Field(
        default=90, ge=1, description="Entries of the audit trail are kept for so many days."
    )


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


async def build(settings: VaultProxySettings, stack: AsyncExitStack) -> GrpcServer:
    """A started vault proxy; `stack` stops it and closes its database."""
    database = await open_database(settings.database(SERVICE).open(), SCHEMA)
    stack.push_async_callback(database.close)
    clock = SystemClock()
    registry = await exposed(settings.metrics_listen, stack)
    server = GrpcServer(
        settings.listen, settings.token(), reflection=settings.reflection, registry=registry
    )
    tasks = await stack.enter_async_context(asyncio.TaskGroup())
    vault = await _open_vault(settings, database, clock, server, stack, probe=None)
    server.add(add_CredentialProxyServiceServicer_to_server, CredentialProxyRpc())
    for forever in (
        Answers(database, clock).sweep(),
        vault.trail.forget(settings.vault_audit_days),
    ):
        stack.callback(tasks.create_task(forever).cancel)
    await server.start()
    stack.push_async_callback(server.stop)
    stack.callback(tasks.create_task(follow(database, server)).cancel)
    return server


async def _open_vault(  # a room, and what it stands on
    settings: VaultProxySettings,
    database: Database,
    clock: Clock,
    server: GrpcServer,
    stack: AsyncExitStack,
    *,
    probe: CredentialProbe | None,
) -> Vault:
    """The vault, served by `server`. Raises `CannotStartError` where its keys are not to be had."""
    wrapped = SqlWrappedKeys(database)
    keyring = settings.keyring(make=await wrapped.load() is None)
    keys = await _installation_key(wrapped, keyring)
    envelopes = Envelopes(keyring, clock, settings.vault_key_cache_seconds)
    vaults, credentials = SqlVaultStore(database, clock), SqlCredentialStore(database, clock)
    holdings = Holdings(credentials, envelopes, clock)
    safe = Safe(credentials, envelopes, holdings)
    secrets = KeptSessionSecrets(SqlSessionSecretStore(database), envelopes, clock)
    audit = SqlAuditStore(database)
    trail = await stack.enter_async_context(AuditTrail(audit, new_id, clock))
    server.add(
        add_VaultServiceServicer_to_server, VaultRpc(vaults, holdings, secrets, clock, new_id)
    )
    server.add(
        add_VaultCredentialServiceServicer_to_server,
        CredentialRpc(credentials, safe, holdings, probe, clock, new_id),
    )
    server.add(add_VaultAuditServiceServicer_to_server, AuditRpc(audit, trail))
    server.add(
        add_VaultKeyServiceServicer_to_server,
        KeyRpc(Rotation(wrapped, keyring), wrapped, keyring),
    )
    servers = VaultServerCredentials(credentials, holdings, safe)
    return Vault(keys, trail, holdings, servers, secrets)


async def _installation_key(wrapped: SqlWrappedKeys, keyring: Keyring) -> InstallationKey:
    try:
        return await installation_key(wrapped, keyring)
    except DroverError as error:
        msg = f"the installation's key cannot be opened: {error.message}"
        raise CannotStartError(msg) from error


def main() -> None:
    """Runs the vault proxy until it is told to stop."""
    keep_memory_closed()
    settings = lifecycle.configured(VaultProxySettings, service=SERVICE)
    lifecycle.run(partial(build, settings), service=SERVICE, log_level=settings.log_level)


if __name__ == "__main__":
    main()
