"""Sessions: create, read, change, archive, delete."""

# ruff: noqa: N802  # gRPC calls methods by the contract's names

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

import structlog

from chassis.context import current_call
from chassis.errors import DroverError
from drover.session.v1 import session_service_pb2 as pb
from drover.session.v1.session_service_pb2_grpc import SessionServiceServicer
from services.session.clients.registry import refuse_archived
from services.session.domain import budget, lifecycle, sources, update, view
from services.session.domain.networking import check_servers
from services.session.domain.ports import About
from services.session.domain.resources import kinds
from services.session.domain.resources.given import accept
from services.session.domain.session import SessionDetails, SessionRef
from services.session.domain.support import check_environment
from services.session.domain.web_domains import check_web_domains
from services.session.rpc.giving import giving
from services.session.rpc.once import Once
from services.session.rpc.parts import ref

if TYPE_CHECKING:
    from services.session.domain.news import News
    from services.session.domain.ports import Transaction
    from services.session.rpc.parts import Context, Parts

_log = structlog.get_logger("session.sessions")


class SessionsRpc(SessionServiceServicer):
    """The part of the service that is about sessions as a whole."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts

    async def CreateSession(
        self, request: pb.CreateSessionRequest, context: Context
    ) -> pb.CreateSessionResponse:
        """Creates a session, with input or idle."""
        parts, workspace_id = self._parts, current_call().workspace_id
        given = accept(request.resources, parts.git_hosts, parts.ids)
        shown = sources.uses(request.initial_events, "initial_events")
        call = Once(parts, context, pb.CreateSessionResponse, lambda answer: answer.session.id)
        if (earlier := await call.earlier()) is not None:
            return earlier
        agent, environment = await parts.registry.resolve(request.agent, request.environment_id)
        refuse_archived(environment)
        check_environment(environment)
        kinds.check_environment(given.resources, environment.config)
        check_servers(agent, environment.config)
        check_web_domains(agent, environment.config)
        cap = None
        if request.HasField("budget"):
            cap = budget.cents(request.budget)
            budget.check_model(agent, parts.models)
        details = SessionDetails(
            environment_id=environment.id,
            agent=agent,
            environment=environment.config,
            title=request.title if request.HasField("title") else None,
            metadata=dict(request.metadata),
            budget=cap,
            resources=given.resources,
            vault_ids=tuple(request.vault_ids),
        )
        session_id = parts.ids("sesn")
        hosted = environment.config.HasField("self_hosted")
        await parts.vaults.check(request.vault_ids, self_hosted=hosted)
        await parts.files.check(shown)
        if given.stores:
            given.fill(await parts.memory_stores.known(given.stores))

        def create(tx: Transaction) -> tuple[pb.CreateSessionResponse, News]:
            snapshot, news = lifecycle.create(
                tx,
                workspace_id,
                details,
                request.initial_events,
                parts.ids,
                session_id=session_id,
            )
            return pb.CreateSessionResponse(session=view.session(snapshot)), news

        # Files and secrets first, so that no session is without them; those of one that never came
        # to be are swept away.
        async with giving(parts, SessionRef(workspace_id, session_id), given.copies):
            await parts.vaults.put(session_id, given.tokens)
            answer, new = await call.commit(create)
        if new:
            _log.info("session_created", session_id=answer.session.id)
        return answer

    async def GetSession(
        self, request: pb.GetSessionRequest, _context: object
    ) -> pb.GetSessionResponse:
        """Reads a session."""
        session = ref(request.session_id)
        snapshot = await self._parts.store.read(lambda tx: lifecycle.read(tx, session))
        return pb.GetSessionResponse(session=view.session(snapshot))

    async def UpdateSession(
        self, request: pb.UpdateSessionRequest, context: Context
    ) -> pb.UpdateSessionResponse:
        """Changes a session. A change is an event of its log."""
        parts, session = self._parts, ref(request.session_id)
        update.check(request)
        call = Once(parts, context, pb.UpdateSessionResponse, lambda answer: answer.session.id)
        if (earlier := await call.earlier()) is not None:
            return earlier
        change = update.Change(request)
        if change.names("agent"):
            before = await parts.store.read(lambda tx: lifecycle.read(tx, session))
            update.check_agent_free(before)
            revised = await parts.registry.revise(before.details.agent, request.agent)
            check_servers(revised, before.details.environment)
            check_web_domains(revised, before.details.environment)
            change = update.Change(request, revised, before.details.agent)

        def write(tx: Transaction) -> tuple[pb.UpdateSessionResponse, News]:
            snapshot, news = update.update(tx, session, change, parts.ids)
            return pb.UpdateSessionResponse(session=view.session(snapshot)), news

        answer, _ = await call.commit(write, about=About(session))
        return answer

    async def ArchiveSession(
        self, request: pb.ArchiveSessionRequest, context: Context
    ) -> pb.ArchiveSessionResponse:
        """Ends a session; its log stays readable. Refused while it runs."""
        parts, session = self._parts, ref(request.session_id)
        call = Once(parts, context, pb.ArchiveSessionResponse, lambda answer: answer.session.id)

        def archive(tx: Transaction) -> tuple[pb.ArchiveSessionResponse, News]:
            snapshot, news = lifecycle.archive(tx, session, parts.ids)
            return pb.ArchiveSessionResponse(session=view.session(snapshot)), news

        answer, new = await call.commit(archive, about=About(session, waiting=True))
        if new:
            _log.info("session_archived", session_id=request.session_id)
            with suppress(DroverError):  # what is left of it does no harm
                await parts.checkpoints.discard(session)
        return answer

    async def DeleteSession(
        self, request: pb.DeleteSessionRequest, context: Context
    ) -> pb.DeleteSessionResponse:
        """Deletes a session with its log. Refused while it runs."""
        parts, session = self._parts, ref(request.session_id)
        call = Once(parts, context, pb.DeleteSessionResponse, lambda _: "")
        deleted = pb.DeleteSessionResponse(id=request.session_id)
        answer, new = await call.commit(
            lambda tx: (deleted, lifecycle.delete(tx, session)), about=About(session)
        )
        if new:
            _log.info("session_deleted", session_id=request.session_id)
        return answer
