"""What a subscriber is offered, and what becomes of one that is too slow."""

from __future__ import annotations

import pytest

from drover.event.v1 import event_pb2
from drover.session.v1 import preview_pb2
from drover.session.v1 import session_service_pb2 as pb
from services.session import feed
from services.session.domain.news import News
from services.session.domain.session import SessionRef
from tests.doubles.session_events import message, said

REF = SessionRef("wrkspc_default", "sesn_1")


def stamped(seq, event=None):
    event = event or said("hi", f"e{seq}")
    event.seq = seq
    return event


def start(event_id, kind="agent.message"):
    event = preview_pb2.PreviewedEvent(type=kind, id=event_id)
    return preview_pb2.Preview(event_start=preview_pb2.EventStart(event=event))


def delta(event_id):
    return preview_pb2.Preview(event_delta=preview_pb2.EventDelta(event_id=event_id))


@pytest.fixture
def followed():
    return feed.Feed()


def subscribe(followed, *previews):
    return followed.subscribe(REF.session_id, frozenset(previews))


async def taken(subscription):
    joined = b"".join(frame.data for frame in await subscription.take())
    return [
        frame.event.id or frame.preview.WhichOneof("preview")
        for frame in pb.StreamEventsResponse.FromString(joined).frames
    ]


async def test_echoes_come_before_what_is_stamped(followed):
    subscription = subscribe(followed)
    followed.hear(News(REF, stamped=[stamped(1)], echoes=[message("hi", "m1")]))
    assert await taken(subscription) == ["m1", "e1"]


async def test_one_frame_is_made_for_all_subscribers(followed):
    subscriptions = [subscribe(followed) for _ in range(3)]
    followed.hear(News(REF, stamped=[stamped(1)]))
    frames = [(await one.take())[0] for one in subscriptions]
    assert frames[0] is frames[1] is frames[2]


async def test_another_session_is_another_feed(followed):
    subscription = subscribe(followed)
    followed.hear(News(SessionRef("wrkspc_default", "sesn_2"), stamped=[stamped(1)]))
    followed.hear(News(REF, stamped=[stamped(2)]))
    assert await taken(subscription) == ["e2"]


async def test_a_full_buffer_is_thrown_away_and_says_so(followed, monkeypatch):
    monkeypatch.setattr(feed, "MAX_FRAMES", 3)
    subscription = subscribe(followed)
    for seq in range(1, 6):
        followed.hear(News(REF, stamped=[stamped(seq)]))
    assert subscription.overflowed
    assert await taken(subscription) == []
    subscription.overflowed = False
    followed.hear(News(REF, stamped=[stamped(6)]))
    assert await taken(subscription) == ["e6"]


async def test_a_buffer_is_bounded_in_bytes_but_holds_any_one_event(followed, monkeypatch):
    monkeypatch.setattr(feed, "MAX_BYTES", 100)
    subscription = subscribe(followed)
    followed.hear(News(REF, stamped=[stamped(1, said("x" * 200, "e1"))]))
    assert not subscription.overflowed
    followed.hear(News(REF, stamped=[stamped(2)]))
    assert subscription.overflowed


async def test_a_deleted_session_ends_with_its_last_frame_even_for_the_slow(followed, monkeypatch):
    monkeypatch.setattr(feed, "MAX_FRAMES", 1)
    subscription = subscribe(followed)
    for seq in (1, 2):
        followed.hear(News(REF, stamped=[stamped(seq)]))
    deleted = event_pb2.Event(id="gone")
    deleted.session_deleted.SetInParent()
    followed.hear(News(REF, stamped=[deleted], ends=True, deleted=True))
    assert await taken(subscription) == ["gone"]
    assert subscription.ended


async def test_previews_reach_only_those_who_asked_for_the_type(followed):
    asked, other, none = (
        subscribe(followed, "agent.message"),
        subscribe(followed, "agent.thinking"),
        subscribe(followed),
    )
    for preview in (start("e1"), delta("e1")):
        followed.preview(REF.session_id, preview)
    followed.hear(News(REF, stamped=[stamped(1)]))
    assert await taken(asked) == ["event_start", "event_delta", "e1"]
    assert await taken(other) == ["e1"]
    assert await taken(none) == ["e1"]


async def test_nothing_follows_the_event_itself(followed):
    subscription = subscribe(followed, "agent.message")
    followed.preview(REF.session_id, start("e1"))
    followed.hear(News(REF, stamped=[stamped(1)]))
    followed.preview(REF.session_id, delta("e1"))
    assert await taken(subscription) == ["event_start", "e1"]


async def test_an_aborted_request_ends_its_previews(followed):
    subscription = subscribe(followed, "agent.message")
    followed.preview(REF.session_id, start("e1"))
    end = event_pb2.Event(id="end")
    end.span_model_request_end.SetInParent()
    followed.hear(News(REF, stamped=[stamped(1, end)]))
    followed.preview(REF.session_id, delta("e1"))
    assert await taken(subscription) == ["event_start", "end"]


async def test_a_dropped_delta_ends_that_preview(followed, monkeypatch):
    monkeypatch.setattr(feed, "_MAX_PREVIEWS", 2)
    subscription = subscribe(followed, "agent.message")
    for preview in (start("e1"), delta("e1"), delta("e1")):
        followed.preview(REF.session_id, preview)
    assert await taken(subscription) == ["event_start", "event_delta"]
    followed.preview(REF.session_id, delta("e1"))
    followed.preview(REF.session_id, start("e2"))
    assert await taken(subscription) == ["event_start"]


async def test_previews_never_push_events_out(followed):
    subscription = subscribe(followed, "agent.message")
    followed.preview(REF.session_id, start("e1"))
    for _ in range(10 * feed.MAX_FRAMES):
        followed.preview(REF.session_id, delta("e1"))
    followed.hear(News(REF, stamped=[stamped(1)]))
    assert not subscription.overflowed
    assert (await taken(subscription))[-1] == "e1"


async def test_who_has_left_is_forgotten(followed):
    subscription = subscribe(followed)
    followed.unsubscribe(REF.session_id, subscription)
    followed.hear(News(REF, stamped=[stamped(1)]))
    assert followed.followers(REF.session_id) == 0
