"""Appends whose acknowledgement was lost, settled from the log."""

from __future__ import annotations

from drover.event.v1.event_pb2 import Event
from drover.session.v1.lease_pb2 import TAKE_INPUT_NEXT, AppendEvents, InputWaiting
from services.brain.clients.reconcile import reconcile
from tests.unit.brain.logs import message

WAITING = InputWaiting(message=True)


def ours(name: str) -> Event:
    event = Event(id=name)
    event.span_model_request_start.SetInParent()
    return event


def answer(name: str) -> Event:
    event = Event(id=name)
    event.user_custom_tool_result.SetInParent()
    return event


def log(*events: Event) -> list[Event]:
    for seq, event in enumerate(events, start=11):
        event.seq = seq
    return list(events)


def test_nothing_that_was_missed_settles_nothing() -> None:
    append = AppendEvents(request_id=1, events=[ours("a")])
    assert reconcile([append], [], WAITING) == ([], [])


def test_appends_are_settled_in_order_with_what_came_before_them() -> None:
    taken = message("hi")
    missed = log(answer("x"), taken, ours("a"), ours("b"), ours("c"), answer("y"))
    appends = [
        AppendEvents(request_id=1, take=TAKE_INPUT_NEXT, events=[ours("a"), ours("b")]),
        AppendEvents(request_id=2, events=[ours("c")]),
        AppendEvents(request_id=3, events=[ours("d")]),
    ]
    acknowledged, rest = reconcile(appends, missed, WAITING)
    assert [ack.request_id for ack in acknowledged] == [1, 2]
    assert [ack.head_seq for ack in acknowledged] == [14, 15]
    assert [event.id for event in acknowledged[0].taken] == ["x", taken.id]
    assert [event.id for event in rest] == ["y"]


def test_append_is_settled_although_its_first_event_came_second_to_a_clients() -> None:
    append = AppendEvents(request_id=1, events=[ours("void"), ours("b"), ours("c")])
    acknowledged, rest = reconcile([append], log(answer("x"), ours("b"), ours("c")), WAITING)
    assert [event.id for event in acknowledged[0].taken] == ["x"]
    assert acknowledged[0].head_seq == 13
    assert rest == []


def test_append_that_only_takes_is_settled_by_what_was_taken() -> None:
    take = AppendEvents(request_id=1, take=TAKE_INPUT_NEXT)
    acknowledged, rest = reconcile([take], log(answer("x"), message("hi"), answer("y")), WAITING)
    assert [ack.head_seq for ack in acknowledged] == [12]
    assert [event.id for event in rest] == ["y"]
    assert reconcile([take], log(answer("x")), WAITING)[0] == []
