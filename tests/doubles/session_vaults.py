"""A vault proxy that keeps what it is told of sessions, for tests of the session service."""

from __future__ import annotations

from contextlib import asynccontextmanager

from chassis.context import current_call
from chassis.errors import DroverError, Reason
from chassis.grpc.server import GrpcServer
from chassis.secret import Secret
from drover.vault.v1 import vault_service_pb2 as pb
from drover.vault.v1.vault_service_pb2_grpc import (
    VaultServiceServicer,
    add_VaultServiceServicer_to_server,
)
from tests.doubles.session_stack import TOKEN


class FakeVaults(VaultServiceServicer):
    """`kept` are secrets by session and resource; `away` refuses everything.

    `variables` are those of `vaults` that hold variables for sandboxes.
    """

    def __init__(self):
        self.address = ""
        self.vaults = set()
        self.variables = set()
        self.kept = {}
        self.forgotten = []
        self.away = False

    def _check_here(self):
        if self.away:
            raise DroverError(Reason.UNAVAILABLE, "the key provider does not answer")

    async def CheckVaults(self, request, _context):
        self._check_here()
        for vault_id in request.vault_ids:
            if vault_id not in self.vaults:
                raise DroverError(Reason.NOT_FOUND, f"vault_ids: {vault_id} not found")
            if request.self_hosted and vault_id in self.variables:
                raise DroverError(Reason.INVALID_ARGUMENT, f"vault_ids: {vault_id} has variables")
        return pb.CheckVaultsResponse()

    async def PutSessionSecret(self, request, _context):
        self._check_here()
        self.kept[request.session_id, request.resource_id] = request.value
        return pb.PutSessionSecretResponse()

    async def CopySessionSecrets(self, request, _context):
        self._check_here()
        for resource_id in request.resource_ids:
            if (value := self.kept.get((request.session_id, resource_id))) is not None:
                self.kept[request.to_session_id, resource_id] = value
        return pb.CopySessionSecretsResponse()

    async def ForgetSession(self, request, _context):
        self._check_here()
        self.forgotten.append((current_call().workspace_id, request.session_id))
        for key in [key for key in self.kept if key[0] == request.session_id]:
            del self.kept[key]
        return pb.ForgetSessionResponse()


@asynccontextmanager
async def running_vaults():
    vaults = FakeVaults()
    server = GrpcServer("127.0.0.1:0", Secret(TOKEN), reflection=False)
    server.add(add_VaultServiceServicer_to_server, vaults)
    await server.start()
    vaults.address = server.address
    try:
        yield vaults
    finally:
        await server.stop(0)
