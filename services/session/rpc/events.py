"""Reading and sending events."""

# ruff: noqa: N802  # gRPC calls methods by the contract's names

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Final

from drover.session.v1 import session_service_pb2 as pb
from drover.session.v1.session_service_pb2_grpc import SessionServiceServicer
from services.session.domain import about, sources
from services.session.domain import event as events_of
from services.session.domain.accept import accept
from services.session.domain.admission import refuse
from services.session.domain.append import Holder, emit
from services.session.domain.bounds import Around
from services.session.domain.listing import EventsQuery, Place, list_events
from services.session.rpc.once import Once
from services.session.rpc.parts import ref, time_range

if TYPE_CHECKING:
    from drover.event.v1 import event_pb2
    from services.session.domain.news import News
    from services.session.domain.ports import Transaction
    from services.session.domain.session import SessionRef
    from services.session.rpc.parts import Context, Parts

_DEFAULT_LIMIT: Final = 1000
_OTHER_BOUNDS: Final = (
    "after_seq",
    "before_seq",
    "created_at_gt",
    "created_at_gte",
    "created_at_lt",
    "created_at_lte",
)


class EventsRpc(SessionServiceServicer):
    """The part of the service that is about single events."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts

    async def GetEvents(
        self, request: pb.GetEventsRequest, _context: object
    ) -> pb.GetEventsResponse:
        """Any slice of a session's log, with what waits in its inbox at the end."""
        query, session = _query(request), ref(request.session_id)
        events, next_page = await list_page(
            self._parts,
            session,
            query,
            # The page size is the caller's to change from page to page.
            scope=("events", session, dataclasses.replace(query, limit=0)),
            page=request.page if request.HasField("page") else None,
        )
        return pb.GetEventsResponse(data=events, next_page=next_page)

    async def EmitEvents(
        self, request: pb.EmitEventsRequest, context: Context
    ) -> pb.EmitEventsResponse:
        """Sends events to a session: all are stored, or none."""
        parts, session = self._parts, ref(request.session_id)

        def takes_system(model_id: str) -> bool:
            return parts.models.of(model_id).mid_conversation_system

        def write(tx: Transaction) -> tuple[pb.EmitEventsResponse, News]:
            if request.generation:
                holder = Holder(session, request.generation)
                events, news = emit(tx, holder, request.events, parts.ids)
            else:
                accepted = accept(tx, session, request.events, parts.ids, takes_system)
                events, news = accepted.events, accepted.news
            return pb.EmitEventsResponse(data=events), news

        announce = about.emitting if request.generation else about.accepting
        call = Once(parts, context, pb.EmitEventsResponse, lambda _: request.session_id)
        if not request.generation and (shown := sources.uses(request.events, "events")):
            if (earlier := await call.earlier()) is not None:
                return earlier
            await parts.files.check(shown)
        answer, _ = await call.commit(write, about=announce(session, request.events))
        return answer


async def list_page(
    parts: Parts, session: SessionRef, query: EventsQuery, *, scope: object, page: str | None
) -> tuple[list[event_pb2.Event], str | None]:
    """A page of events, and the cursor of the next one."""
    place = None
    if page is not None:
        *pinned, in_inbox, at = parts.cursors.open(scope, page)
        floor, head, first, tail = (int(one or 0) for one in pinned)
        place = Place(floor, head, first, tail, bool(in_inbox), int(at or 0))
    result = await parts.store.read(lambda tx: list_events(tx, session, query, place))
    following = result.next
    if following is None:
        return result.events, None
    return result.events, parts.cursors.seal(scope, dataclasses.astuple(following))


def _query(request: pb.GetEventsRequest) -> EventsQuery:
    for index, wanted in enumerate(request.types):
        if wanted not in events_of.listable_types():
            raise refuse(f"types.{index}", f"{wanted} is not an event type that is listed")
    return EventsQuery(
        limit=request.limit if request.HasField("limit") else _DEFAULT_LIMIT,
        descending=request.order == pb.SORT_ORDER_DESC,
        types=tuple(sorted(set(request.types))),
        thread_id=request.thread_id if request.HasField("thread_id") else None,
        times=time_range(
            gt=request.created_at_gt if request.HasField("created_at_gt") else None,
            gte=request.created_at_gte if request.HasField("created_at_gte") else None,
            lt=request.created_at_lt if request.HasField("created_at_lt") else None,
            lte=request.created_at_lte if request.HasField("created_at_lte") else None,
        ),
        after_seq=request.after_seq if request.HasField("after_seq") else 0,
        before_seq=request.before_seq if request.HasField("before_seq") else None,
        around=_around(request),
    )


def _around(request: pb.GetEventsRequest) -> Around | None:
    for neighbours in ("events_before", "events_after"):
        if request.HasField(neighbours) and not request.HasField("around_event_id"):
            raise refuse(neighbours, "counts from around_event_id, which is not given")
    if not request.HasField("around_event_id"):
        return None
    for other in _OTHER_BOUNDS:
        if request.HasField(other):
            raise refuse(other, "is not given together with around_event_id")
    return Around(request.around_event_id, request.events_before, request.events_after)
