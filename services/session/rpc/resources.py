"""ResourceService: what sessions have mounted."""

# ruff: noqa: N802  # gRPC calls methods by the contract's names

from __future__ import annotations

from typing import TYPE_CHECKING

import structlog

from drover.session.v1 import resource_service_pb2 as pb
from drover.session.v1.resource_service_pb2_grpc import ResourceServiceServicer
from services.session.domain import lifecycle, resources
from services.session.domain.admission import check_open
from services.session.domain.ports import About
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
            begin = int(cursors.open(scope, request.page)[0] or 0)
        end = begin + request.limit if request.HasField("limit") else len(found)
        response = pb.ListSessionResourcesResponse(data=found[begin:end])
        if end < len(found):
            response.next_page = cursors.seal(scope, [end])
        return response

    async def GetSessionResource(
        self, request: pb.GetSessionResourceRequest, _context: object
    ) -> pb.GetSessionResourceResponse:
        """Reads a resource."""
        found = await self._of(request.session_id)
        return pb.GetSessionResourceResponse(resource=resources.find(found, request.resource_id))

    async def UpdateSessionResource(
        self, request: pb.UpdateSessionResourceRequest, context: Context
    ) -> pb.UpdateSessionResourceResponse:
        """Gives a repository another token. Written to the vault proxy first, and always."""
        parts, session = self._parts, ref(request.session_id)
        resources.check_token(request.authorization_token, "authorization_token")
        kind = pb.UpdateSessionResourceResponse
        call = Once(parts, context, kind, lambda _: request.session_id)
        if (earlier := await call.earlier()) is not None:
            return earlier
        before = await parts.store.read(lambda tx: lifecycle.read(tx, session))
        resources.find(before.details.resources, request.resource_id)
        check_open(before.state)
        tokens = {request.resource_id: request.authorization_token}
        await parts.vaults.put(request.session_id, tokens)

        def write(tx: Transaction) -> tuple[pb.UpdateSessionResourceResponse, News | None]:
            snapshot = lifecycle.read(tx, session)
            check_open(snapshot.state)
            found = resources.find(snapshot.details.resources, request.resource_id)
            resources.touch(found, snapshot.now)
            tx.save_details(request.session_id, snapshot.details)
            return pb.UpdateSessionResourceResponse(resource=found), None

        answer, new = await call.commit(write, about=About(session))
        if new:
            _log.info(
                "token_rotated", session_id=request.session_id, resource_id=request.resource_id
            )
        return answer

    async def AddSessionResource(
        self, request: pb.AddSessionResourceRequest, _context: object
    ) -> pb.AddSessionResourceResponse:
        """Adds nothing: see the contract."""
        await self._of(request.session_id)
        raise resources.refuse_more(request.WhichOneof("resource") or "")

    async def DeleteSessionResource(
        self, request: pb.DeleteSessionResourceRequest, _context: object
    ) -> pb.DeleteSessionResourceResponse:
        """Takes nothing away: see the contract."""
        resources.find(await self._of(request.session_id), request.resource_id)
        raise resources.refuse_less()

    async def _of(self, session_id: str) -> Sequence[SessionResource]:
        """A session's resources. Raises NOT_FOUND."""
        session = ref(session_id)
        snapshot = await self._parts.store.read(lambda tx: lifecycle.read(tx, session))
        return snapshot.details.resources
