"""Sending and listing events over gRPC."""

from __future__ import annotations

import asyncio

from chassis.errors import Reason
from drover.session.v1 import session_service_pb2 as pb
from tests.doubles.session_events import confirmation, idle, message, running, said
from tests.doubles.session_stack import refusal
from tests.doubles.session_world import kinds


async def pages(service, session_id, between=None, **fields):
    """Every event, page by page, with something done between two pages."""
    seen, page = [], None
    while True:
        response = await service.events(session_id, page=page, **fields)
        seen += response.data
        if not response.HasField("next_page"):
            return seen
        page = response.next_page
        if between is not None:
            await between()


async def test_a_mixed_batch_with_one_bad_event_stores_none(service):
    session = await service.create()
    error = await refusal(
        service.emit(session.id, message("one"), confirmation("nowhere"), message("two"))
    )
    assert error.reason is Reason.INVALID_ARGUMENT
    assert error.message.startswith("events.1.tool_use_id: ")
    assert not (await service.events(session.id)).data


async def test_events_come_back_with_ids_in_the_order_sent(service):
    session = await service.create()
    stored = await service.emit(session.id, message("one"), message("two"))
    assert [event.user_message.content[0].text.text for event in stored] == ["one", "two"]
    assert stored == list((await service.events(session.id)).data)


async def test_without_a_generation_only_client_types_are_taken(service):
    session = await service.create()
    error = await refusal(service.emit(session.id, said("forged")))
    assert "agent.message is not sent by clients" in error.message


async def test_with_its_generation_the_holder_appends_and_repeats_without_effect(service):
    session = await service.create(message())
    lease = await service.lease(session.id).open()
    events = [running(), said("hi", "mine")]
    stored = await service.emit(session.id, *events, generation=lease.generation)
    assert [event.seq for event in stored] == [1, 2]
    again = await service.emit(session.id, said("hi", "mine"), generation=lease.generation)
    assert again == stored[1:]
    stale = service.emit(session.id, said("late"), generation=lease.generation + 1)
    assert (await refusal(stale)).reason is Reason.LEASE_LOST


async def test_every_event_is_listed_exactly_once_while_events_move(service):
    session = await service.create(*(message(str(n)) for n in range(10)))
    lease = await service.lease(session.id).open()
    expected = {event.id for event in (await service.events(session.id)).data}

    async def move():
        await lease.append(said("…"), take=2)
        await service.emit(session.id, message("late"))

    for order in (pb.SORT_ORDER_ASC, pb.SORT_ORDER_DESC):
        seen = [event.id for event in await pages(service, session.id, move, limit=2, order=order)]
        assert len(seen) == len(set(seen))
        assert expected <= set(seen)


async def test_a_foreign_cursor_is_refused(service):
    one = await service.create(message("a"), message("b"))
    other = await service.create(message("a"), message("b"))
    cursor = (await service.events(one.id, limit=1)).next_page
    for session_id, fields in (
        (other.id, {}),
        (one.id, {"order": pb.SORT_ORDER_DESC}),
        (one.id, {"types": ["user.message"]}),
        (one.id, {"after_seq": 1}),
    ):
        error = await refusal(service.events(session_id, page=cursor, **fields))
        assert error.reason is Reason.INVALID_ARGUMENT
        assert error.message.startswith("page: ")
    assert len(await pages(service, one.id, limit=1)) == 2


async def test_types_are_those_of_the_contract(service):
    session = await service.create(message())
    for wanted in ("session.deleted", "event_start", "user_message", ""):
        error = await refusal(service.events(session.id, types=["user.message", wanted]))
        assert error.message.startswith("types.1: ")
    found = await service.events(session.id, types=["agent.message"])
    assert not found.data


async def test_time_filters_skip_what_is_not_stamped(service):
    session = await service.create(message("one"), message("two"))
    lease = await service.lease(session.id).open()
    [taken] = (await lease.append(take=2)).taken
    at = taken.processed_at
    assert list((await service.events(session.id, created_at_lte=at)).data) == [taken]
    assert list((await service.events(session.id, created_at_gte=at)).data) == [taken]
    assert not (await service.events(session.id, created_at_gt=at)).data
    assert not (await service.events(session.id, created_at_lt=at)).data


async def test_a_page_is_bounded_in_bytes(service):
    session = await service.create()
    for _ in range(3):
        await service.emit(session.id, message("x" * 5_000_000))
    first = await service.events(session.id)
    assert len(first.data) == 1
    assert first.HasField("next_page")
    assert len(await pages(service, session.id)) == 3


async def test_a_hundred_posters_at_once_lose_nothing_and_keep_their_order(service):
    session = await service.create(message("first"))
    lease = await service.lease(session.id).open()
    await lease.append(running(), take=2)

    async def post(number):
        return await service.emit(session.id, message(f"{number}a"), message(f"{number}b"))

    accepted = await asyncio.gather(*(post(number) for number in range(100)))
    ids = {event.id for events in accepted for event in events}
    waiting = [event.id for event in (await service.events(session.id)).data if not event.seq]
    assert set(waiting) == ids
    taken = (await lease.append(idle(), take=3, release=True)).taken
    assert [event.id for event in taken] == waiting
    for first, second in accepted:
        assert waiting.index(second.id) == waiting.index(first.id) + 1


async def test_positions_slice_the_log(service):
    session = await service.create(message("one"), message("two"))
    lease = await service.lease(session.id).open()
    await lease.append(said("a"), said("b"), take=2)
    found = (await service.events(session.id, after_seq=1, before_seq=3)).data
    assert [event.seq for event in found] == [2]
    assert kinds((await service.events(session.id, after_seq=2)).data) == [
        "agent_message",
        "user_message",
    ]
