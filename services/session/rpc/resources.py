"""ResourceService: what sessions have mounted."""

# ruff: noqa: N802  # gRPC calls methods by the contract's names

from __future__ import annotations

from typing import TYPE_CHECKING

import structlog

from drover.session.v1 import resource_service_pb2 as pb
from drover.session.v1 import session_pb2
from drover.session.v1.resource_service_pb2_grpc import ResourceServiceServicer
from services.session.domain import lifecycle
from services.session.domain.admission import check_open
from services.session.domain.ports import About
from services.session.domain.resources import files, kinds, repositories
from services.session.rpc.giving import giving
from services.session.rpc.once import Once
from services.session.rpc.parts import ref

if TYPE_CHECKING:
    from collections.abc import Sequence

    from drover.session.v1.session_pb2 import SessionResource
    from services.session.domain.news import News
    from services.session.domain.ports import Transaction
    from services.session.rpc.parts import Context, Parts

_log = structlog.get_logger("session.resources")


class ResourceRpc(ResourceServiceServicer):
    """ResourceService."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts

    async def ListSessionResources(
        self, request: pb.ListSessionResourcesRequest, _context: object
    ) -> pb.ListSessionResourcesResponse:
        """Lists a session's resources."""
        found, cursors = await self._of(request.session_id), self._parts.cursors
        scope, begin = ("resources", request.session_id), 0
        if request.HasField("page"):
            begin = kinds.behind(found, *cursors.open(scope, request.page))
        end = begin + request.limit if request.HasField("limit") else len(found)
        response = pb.ListSessionResourcesResponse(data=found[begin:end])
        if end < len(found):
            response.next_page = cursors.seal(scope, [end, kinds.name(found[end - 1])])
        return response

    async def GetSessionResource(
        self, request: pb.GetSessionResourceRequest, _context: object
    ) -> pb.GetSessionResourceResponse:
        """Reads a resource."""
        found = await self._of(request.session_id)
        return pb.GetSessionResourceResponse(resource=kinds.find(found, request.resource_id))

    async def UpdateSessionResource(
        self, request: pb.UpdateSessionResourceRequest, context: Context
    ) -> pb.UpdateSessionResourceResponse:
        """Gives a repository another token. Written to the vault proxy first, and always."""
        parts, session = self._parts, ref(request.session_id)
        repositories.check_token(request.authorization_token, "authorization_token")
        kind = pb.UpdateSessionResourceResponse
        call = Once(parts, context, kind, lambda _: request.session_id)
        if (earlier := await call.earlier()) is not None:
            return earlier
        before = await parts.store.read(lambda tx: lifecycle.read(tx, session))
        repositories.check_takes_token(kinds.find(before.details.resources, request.resource_id))
        check_open(before.state)
        tokens = {request.resource_id: request.authorization_token}
        await parts.vaults.put(request.session_id, tokens)

        def write(tx: Transaction) -> tuple[pb.UpdateSessionResourceResponse, News | None]:
            snapshot = lifecycle.read(tx, session)
            check_open(snapshot.state)
            found = kinds.find(snapshot.details.resources, request.resource_id)
            repositories.touch(found, snapshot.now)
            tx.save_details(request.session_id, snapshot.details)
            return pb.UpdateSessionResourceResponse(resource=found), None

        answer, new = await call.commit(write, about=About(session))
        if new:
            _log.info(
                "token_rotated", session_id=request.session_id, resource_id=request.resource_id
            )
        return answer

    async def AddSessionResource(
        self, request: pb.AddSessionResourceRequest, context: Context
    ) -> pb.AddSessionResourceResponse:
        """Adds a file: a copy of it is made first, which goes again if the session does not get it.

        Refused for all others: see the contract.
        """
        parts, session = self._parts, ref(request.session_id)
        if not request.HasField("file"):
            await self._of(request.session_id)
            raise files.refuse_other(request.WhichOneof("resource") or "")
        kind = pb.AddSessionResourceResponse
        call = Once(parts, context, kind, lambda _: request.session_id)
        if (earlier := await call.earlier()) is not None:
            return earlier
        copy = files.accept(request.file, "", parts.ids)
        added = session_pb2.SessionResource(file=copy.resource)

        def check(tx: Transaction) -> lifecycle.Snapshot:
            snapshot = lifecycle.read(tx, session)
            check_open(snapshot.state)
            kinds.check_environment([added], snapshot.details.environment, "type")
            files.check_room(snapshot.details.resources, added.file)
            return snapshot

        await parts.store.read(check)

        def write(tx: Transaction) -> tuple[pb.AddSessionResourceResponse, News | None]:
            snapshot = check(tx)
            tx.keep_files(session, copy.copy_id)
            kinds.stamp([added], snapshot.now)
            details = snapshot.details
            details.resources = (*details.resources, added)
            tx.save_details(request.session_id, details)
            return pb.AddSessionResourceResponse(resource=added), None

        async with giving(parts, session, [copy], file_id=copy.copy_id):
            answer, new = await call.commit(write, about=About(session))
        if new:
            _log.info("file_added", session_id=request.session_id, file_id=copy.copy_id)
        return answer

    async def DeleteSessionResource(
        self, request: pb.DeleteSessionResourceRequest, context: Context
    ) -> pb.DeleteSessionResourceResponse:
        """Takes a file away, and has the session's copy deleted, be it once the registry is back.

        Refused for repositories: see the contract.
        """
        parts, session = self._parts, ref(request.session_id)
        deleted = pb.DeleteSessionResourceResponse(id=request.resource_id)

        def write(tx: Transaction) -> tuple[pb.DeleteSessionResourceResponse, News | None]:
            snapshot = lifecycle.read(tx, session)
            details = snapshot.details
            details.resources, file_id = files.without(details.resources, request.resource_id)
            check_open(snapshot.state)
            tx.save_details(request.session_id, details)
            tx.release_files(session, file_id)
            return deleted, None

        kind = pb.DeleteSessionResourceResponse
        call = Once(parts, context, kind, lambda _: request.session_id)
        answer, new = await call.commit(write, about=About(session))
        if new:
            parts.files_due()
            _log.info(
                "file_removed", session_id=request.session_id, resource_id=request.resource_id
            )
        return answer

    async def _of(self, session_id: str) -> Sequence[SessionResource]:
        """A session's resources. Raises NOT_FOUND."""
        session = ref(session_id)
        snapshot = await self._parts.store.read(lambda tx: lifecycle.read(tx, session))
        return snapshot.details.resources
