"""The vault proxy process: builds the service and runs it."""

from __future__ import annotations

from contextlib import AsyncExitStack
from functools import partial

from chassis import lifecycle
from chassis.grpc.server import GrpcServer
from chassis.settings import Settings
from chassis.telemetry.metrics import exposed
from drover.vault.v1.credential_proxy_service_pb2_grpc import (
    add_CredentialProxyServiceServicer_to_server,
)
from services.vault_proxy.rpc import CredentialProxyRpc

SERVICE = "vault_proxy"


class VaultProxySettings(Settings):
    """The vault proxy needs nothing beyond what every process has."""


async def build(settings: VaultProxySettings, stack: AsyncExitStack) -> GrpcServer:
    """A started vault proxy; `stack` stops it."""
    registry = await exposed(settings.metrics_listen, stack)
    server = GrpcServer(
        settings.listen, settings.token(), reflection=settings.reflection, registry=registry
    )
    server.add(add_CredentialProxyServiceServicer_to_server, CredentialProxyRpc())
    await server.start()
    stack.push_async_callback(server.stop)
    return server


def main() -> None:
    """Runs the vault proxy until it is told to stop."""
    settings = lifecycle.configured(VaultProxySettings, service=SERVICE)
    lifecycle.run(partial(build, settings), service=SERVICE, log_level=settings.log_level)


if __name__ == "__main__":
    main()
