"""VaultCredentialService: what it says on the wire, in terms of the domain and the safe."""

# ruff: noqa: N802  # gRPC calls methods by the contract's names

from __future__ import annotations

from typing import TYPE_CHECKING

import structlog

from catalogue.resources.paging import DEFAULT_LIMIT, CursorBinding, Position, cut
from catalogue.resources.stamps import micros
from chassis.context import current_call
from chassis.errors import DroverError, Reason
from drover.vault.v1 import vault_credential_service_pb2 as pb
from drover.vault.v1.credential_pb2 import (
    CREDENTIAL_VALIDATION_STATUS_INVALID,
    CredentialValidation,
)
from drover.vault.v1.vault_credential_service_pb2_grpc import VaultCredentialServiceServicer
from services.vault_proxy.domain.credential import new_credential, updated_credential
from services.vault_proxy.domain.server_credential import OauthCredential
from services.vault_proxy.domain.vault_ports import Listing
from services.vault_proxy.rpc.once import is_new, once
from services.vault_proxy.vault.server_credentials import opened

if TYPE_CHECKING:
    from chassis.clock import Clock
    from chassis.ids import IdSource
    from drover.vault.v1.credential_pb2 import Credential
    from services.vault_proxy.domain.credential import Written
    from services.vault_proxy.domain.server_credential import CredentialProbe
    from services.vault_proxy.domain.vault_ports import CredentialStore
    from services.vault_proxy.rpc.once import Context
    from services.vault_proxy.vault.holdings import Holdings
    from services.vault_proxy.vault.safe import Safe

_log = structlog.get_logger("vault_proxy.credentials")


class CredentialRpc(VaultCredentialServiceServicer):
    """Serves what is told of credentials, within the calling workspace; no secret of any."""

    def __init__(  # noqa: PLR0917  # what it serves out of
        self,
        store: CredentialStore,
        safe: Safe,
        holdings: Holdings,
        probe: CredentialProbe | None,
        clock: Clock,
        ids: IdSource,
    ) -> None:
        self._store = store
        self._safe = safe
        self._holdings = holdings
        self._probe = probe
        self._clock = clock
        self._ids = ids

    async def CreateCredential(
        self, request: pb.CreateCredentialRequest, context: Context
    ) -> pb.CreateCredentialResponse:
        """Creates a credential, and does not try it."""
        written = new_credential(request, self._ids("vcrd"), self._clock.now())
        call = once(pb.CreateCredentialResponse, "credential")
        credential = await self._safe.add(current_call().workspace_id, written, call)
        if is_new(call, context):
            _log.info(
                "credential_created", vault_id=credential.vault_id, credential_id=credential.id
            )
        return pb.CreateCredentialResponse(credential=credential)

    async def GetCredential(
        self, request: pb.GetCredentialRequest, _context: object
    ) -> pb.GetCredentialResponse:
        """Reads a credential."""
        record = await self._store.load(
            current_call().workspace_id, request.vault_id, request.credential_id
        )
        return pb.GetCredentialResponse(credential=record.credential)

    async def UpdateCredential(
        self, request: pb.UpdateCredentialRequest, context: Context
    ) -> pb.UpdateCredentialResponse:
        """Changes a credential; omitted fields keep their values."""
        now = self._clock.now()

        def change(stored: Credential) -> Written:
            return updated_credential(stored, request, now)

        call = once(pb.UpdateCredentialResponse, "credential")
        credential = await self._safe.revise(
            current_call().workspace_id, request.vault_id, request.credential_id, change, call
        )
        if is_new(call, context):
            _log.info(
                "credential_updated", vault_id=credential.vault_id, credential_id=credential.id
            )
        return pb.UpdateCredentialResponse(credential=credential)

    async def ListCredentials(
        self, request: pb.ListCredentialsRequest, _context: object
    ) -> pb.ListCredentialsResponse:
        """Lists a vault's credentials, newest first."""
        workspace_id, vault_id = current_call().workspace_id, request.vault_id
        binding = CursorBinding(
            ("credentials", workspace_id, vault_id, str(request.include_archived))
        )
        limit = request.limit if request.HasField("limit") else DEFAULT_LIMIT
        after = binding.read(request.page) if request.HasField("page") else None
        listing = Listing(limit + 1, after, request.include_archived)
        credentials, last = cut(await self._store.page(workspace_id, vault_id, listing), limit)
        answer = pb.ListCredentialsResponse(data=credentials)
        if last is not None:
            answer.next_page = binding.write(Position(micros(last.created_at), last.id))
        return answer

    async def DeleteCredential(
        self, request: pb.DeleteCredentialRequest, context: Context
    ) -> pb.DeleteCredentialResponse:
        """Deletes a credential."""
        call = once(pb.DeleteCredentialResponse, "id")
        await self._safe.delete(
            current_call().workspace_id, request.vault_id, request.credential_id, call
        )
        if is_new(call, context):
            _log.info(
                "credential_deleted",
                vault_id=request.vault_id,
                credential_id=request.credential_id,
            )
        return pb.DeleteCredentialResponse(id=request.credential_id)

    async def ArchiveCredential(
        self, request: pb.ArchiveCredentialRequest, context: Context
    ) -> pb.ArchiveCredentialResponse:
        """Archives a credential, and purges its secret."""
        call = once(pb.ArchiveCredentialResponse, "credential")
        credential = await self._safe.archive(
            current_call().workspace_id,
            request.vault_id,
            request.credential_id,
            self._clock.now(),
            call,
        )
        if is_new(call, context):
            _log.info(
                "credential_archived", vault_id=credential.vault_id, credential_id=credential.id
            )
        return pb.ArchiveCredentialResponse(credential=credential)

    async def ValidateCredential(
        self, request: pb.ValidateCredentialRequest, _context: object
    ) -> pb.ValidateCredentialResponse:
        """Tries an MCP server's credential."""
        workspace_id = current_call().workspace_id
        record = await self._store.load(workspace_id, request.vault_id, request.credential_id)
        if not record.credential.auth.HasField("mcp_oauth"):
            raise DroverError(
                Reason.INVALID_ARGUMENT,
                "credential_id: only credentials of the type mcp_oauth can be validated",
            )
        validation = CredentialValidation(status=CREDENTIAL_VALIDATION_STATUS_INVALID)
        if record.sealed is not None:
            if self._probe is None:
                raise DroverError(
                    Reason.UNIMPLEMENTED,
                    "this vault proxy has no client for MCP servers to validate credentials with",
                )
            credential = opened(record, await self._holdings.opened(workspace_id, record))
            if isinstance(credential, OauthCredential):
                validation = await self._probe.validate(workspace_id, credential)
        validation.credential_id = record.credential.id
        validation.vault_id = record.credential.vault_id
        validation.validated_at.FromDatetime(self._clock.now())
        return pb.ValidateCredentialResponse(validation=validation)
