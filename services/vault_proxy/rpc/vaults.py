"""VaultService: what it says on the wire, in terms of the domain and the store."""

# ruff: noqa: N802  # gRPC calls methods by the contract's names

from __future__ import annotations

from typing import TYPE_CHECKING

import structlog

from catalogue.resources.paging import DEFAULT_LIMIT, CursorBinding, Position, cut
from catalogue.resources.stamps import micros
from chassis.context import current_call
from drover.vault.v1 import vault_service_pb2 as pb
from drover.vault.v1.vault_service_pb2_grpc import VaultServiceServicer
from services.vault_proxy.domain.missing import refuse_variables
from services.vault_proxy.domain.vault import new_vault, updated_vault
from services.vault_proxy.domain.vault_ports import Listing
from services.vault_proxy.rpc.once import is_new, once

if TYPE_CHECKING:
    from chassis.clock import Clock
    from chassis.ids import IdSource
    from drover.vault.v1.vault_pb2 import Vault
    from services.vault_proxy.domain.vault_ports import VaultStore
    from services.vault_proxy.grants.authority import Authorities
    from services.vault_proxy.rpc.once import Context
    from services.vault_proxy.vault.holdings import Holdings
    from services.vault_proxy.vault.session_secrets import KeptSessionSecrets

_log = structlog.get_logger("vault_proxy.vaults")


class VaultRpc(VaultServiceServicer):
    """Serves vaults out of a store, within the calling workspace."""

    def __init__(  # what it serves out of
        self,
        store: VaultStore,
        holdings: Holdings,
        secrets: KeptSessionSecrets,
        authorities: Authorities,
        *,
        clock: Clock,
        ids: IdSource,
    ) -> None:
        self._store = store
        self._holdings = holdings
        self._secrets = secrets
        self._authorities = authorities
        self._clock = clock
        self._ids = ids

    async def CreateVault(
        self, request: pb.CreateVaultRequest, context: Context
    ) -> pb.CreateVaultResponse:
        """Creates an empty vault."""
        vault = new_vault(request, self._ids("vlt"), self._clock.now())
        call = once(pb.CreateVaultResponse, "vault")
        vault = await self._store.add(current_call().workspace_id, vault, call)
        if is_new(call, context):
            _log.info("vault_created", vault_id=vault.id)
        return pb.CreateVaultResponse(vault=vault)

    async def GetVault(self, request: pb.GetVaultRequest, _context: object) -> pb.GetVaultResponse:
        """Reads a vault."""
        vault = await self._store.get(current_call().workspace_id, request.vault_id)
        return pb.GetVaultResponse(vault=vault)

    async def UpdateVault(
        self, request: pb.UpdateVaultRequest, context: Context
    ) -> pb.UpdateVaultResponse:
        """Changes a vault; omitted fields keep their values."""
        now = self._clock.now()

        def change(stored: Vault) -> Vault:
            return updated_vault(stored, request, now)

        call = once(pb.UpdateVaultResponse, "vault")
        workspace_id = current_call().workspace_id
        vault = await self._store.revise(workspace_id, request.vault_id, change, call)
        if is_new(call, context):
            _log.info("vault_updated", vault_id=vault.id)
        return pb.UpdateVaultResponse(vault=vault)

    async def ListVaults(
        self, request: pb.ListVaultsRequest, _context: object
    ) -> pb.ListVaultsResponse:
        """Lists vaults, newest first."""
        workspace_id = current_call().workspace_id
        binding = CursorBinding(("vaults", workspace_id, str(request.include_archived)))
        limit = request.limit if request.HasField("limit") else DEFAULT_LIMIT
        after = binding.read(request.page) if request.HasField("page") else None
        listing = Listing(limit + 1, after, request.include_archived)
        vaults, last = cut(await self._store.page(workspace_id, listing), limit)
        answer = pb.ListVaultsResponse(data=vaults)
        if last is not None:
            answer.next_page = binding.write(Position(micros(last.created_at), last.id))
        return answer

    async def DeleteVault(
        self, request: pb.DeleteVaultRequest, context: Context
    ) -> pb.DeleteVaultResponse:
        """Deletes a vault and its credentials."""
        call = once(pb.DeleteVaultResponse, "id")
        with self._holdings.changing():
            await self._store.delete(current_call().workspace_id, request.vault_id, call)
        if is_new(call, context):
            _log.info("vault_deleted", vault_id=request.vault_id)
        return pb.DeleteVaultResponse(id=request.vault_id)

    async def ArchiveVault(
        self, request: pb.ArchiveVaultRequest, context: Context
    ) -> pb.ArchiveVaultResponse:
        """Archives a vault and its credentials, and purges their secrets."""
        call = once(pb.ArchiveVaultResponse, "vault")
        with self._holdings.changing():
            vault = await self._store.archive(
                current_call().workspace_id, request.vault_id, self._clock.now(), call
            )
        if is_new(call, context):
            _log.info("vault_archived", vault_id=vault.id)
        return pb.ArchiveVaultResponse(vault=vault)

    async def CheckVaults(
        self, request: pb.CheckVaultsRequest, _context: object
    ) -> pb.CheckVaultsResponse:
        """Refuses vaults that a new session may not name."""
        workspace_id = current_call().workspace_id
        await self._store.check(workspace_id, request.vault_ids)
        if request.self_hosted:
            records = await self._holdings.records(workspace_id, request.vault_ids)
            refuse_variables(record.credential for record in records)
        return pb.CheckVaultsResponse()

    async def PutSessionSecret(
        self, request: pb.PutSessionSecretRequest, _context: object
    ) -> pb.PutSessionSecretResponse:
        """Keeps the secret of a session's resource."""
        workspace_id = current_call().workspace_id
        await self._secrets.put(
            workspace_id, request.session_id, request.resource_id, request.value
        )
        return pb.PutSessionSecretResponse()

    async def CopySessionSecrets(
        self, request: pb.CopySessionSecretsRequest, _context: object
    ) -> pb.CopySessionSecretsResponse:
        """Keeps the secrets of a session for another one, too."""
        await self._secrets.copy(
            current_call().workspace_id,
            request.session_id,
            request.to_session_id,
            request.resource_ids,
        )
        return pb.CopySessionSecretsResponse()

    async def ForgetSession(
        self, request: pb.ForgetSessionRequest, _context: object
    ) -> pb.ForgetSessionResponse:
        """Removes secrets of a session: of one resource, or with the authority all there are."""
        workspace_id = current_call().workspace_id
        await self._secrets.forget(workspace_id, request.session_id, request.resource_id)
        if not request.resource_id:
            await self._authorities.forget(workspace_id, request.session_id)
        return pb.ForgetSessionResponse()
