"""Small parts of the shell: previews that wait, states that are kept, patience, time limits."""

from __future__ import annotations

import asyncio
import random

import pytest

from drover.event.v1.content_pb2 import ContentBlock, TextBlock
from drover.session.v1.lease_pb2 import AppendEvents, HoldLeaseRequest, LeaseRequest
from drover.session.v1.preview_pb2 import (
    ContentDelta,
    EventDelta,
    EventStart,
    Preview,
    PreviewedEvent,
    TextDelta,
)
from services.brain.clients.hands import DEFAULT_DEADLINE, time_limit
from services.brain.clients.outbox import MAX_PREVIEWS, Outbox
from services.brain.domain import content
from services.brain.domain.calls import Answerer, Call
from services.brain.loop.retry import RetryPolicy
from services.brain.loop.state_cache import CachedState, StateCache
from tests.unit.brain import logs


def start(event_id: str) -> Preview:
    event = PreviewedEvent(type="agent.message", id=event_id)
    return Preview(event_start=EventStart(event=event))


def delta(event_id: str, text: str, index: int = 0) -> Preview:
    piece = ContentDelta(index=index, content=TextDelta(text=text))
    return Preview(event_delta=EventDelta(event_id=event_id, delta=piece))


async def written(outbox: Outbox) -> list[LeaseRequest]:
    return [request for message in await messages(outbox) for request in message.requests][:-1]


async def messages(outbox: Outbox) -> list[HoldLeaseRequest]:
    """What is written up to a renewal, which is the last."""
    found: list[HoldLeaseRequest] = []
    done = asyncio.Event()

    async def write(message: HoldLeaseRequest) -> None:
        found.append(message)
        if message.requests[-1].HasField("renew"):
            done.set()

    outbox.put(LeaseRequest(renew={}))
    draining = asyncio.create_task(outbox.drain(write))
    await done.wait()
    draining.cancel()
    return found


async def test_deltas_that_wait_are_joined_in_order() -> None:
    outbox = Outbox()
    outbox.wanted = True
    for preview in (start("a"), delta("a", "one "), delta("a", "two"), delta("a", "x", 1)):
        outbox.put_preview(preview)
    outbox.put(LeaseRequest(append=AppendEvents(request_id=1)))
    outbox.put_preview(delta("a", "later", 1))
    requests = await written(outbox)
    deltas = [request.preview.event_delta.delta for request in requests]
    assert [piece.content.text for piece in deltas] == ["", "one two", "x", "", "later"]


def spoken(number: int, size: int = 1) -> LeaseRequest:
    append = AppendEvents(request_id=number)
    append.events.add().agent_message.content.add().text.text = "x" * size
    return LeaseRequest(append=append)


async def test_what_waits_travels_together_within_bounds() -> None:
    outbox = Outbox()
    for number, size in enumerate((1, 1, 700_000, 700_000, 3_000_000, 1)):
        outbox.put(spoken(number, size))
    together = [
        [request.append.request_id for request in message.requests]
        for message in await messages(outbox)
    ]
    assert together == [[0, 1, 2], [3], [4], [5, 0]]  # the last one renews


async def test_preview_that_was_dropped_once_does_not_go_on() -> None:
    outbox = Outbox()
    outbox.wanted = True
    for number in range(MAX_PREVIEWS):
        outbox.put_preview(start(f"event {number}"))
    outbox.put_preview(start("late"))
    await written(outbox)
    outbox.put_preview(delta("late", "too late"))
    outbox.put_preview(delta("event 1", "in time"))
    requests = await written(outbox)
    assert [request.preview.event_delta.delta.content.text for request in requests] == ["in time"]


async def test_previews_that_nobody_wants_are_not_sent_and_begin_with_an_event() -> None:
    outbox = Outbox()
    outbox.put_preview(start("a"))
    outbox.wanted = True
    for preview in (delta("a", "half of it"), start("b"), delta("b", "all of it")):
        outbox.put_preview(preview)
    outbox.wanted = False  # as the next connection says
    outbox.put_preview(start("c"))
    requests = await written(outbox)
    assert [request.preview.event_start.event.id for request in requests] == ["b", ""]
    assert requests[1].preview.event_delta.delta.content.text == "all of it"


async def test_new_connection_repeats_appends_and_ends_previews() -> None:
    outbox = Outbox()
    outbox.wanted = True
    outbox.put_preview(delta("a", "seen"))
    await written(outbox)
    outbox.put_preview(delta("a", "perhaps seen"))
    outbox.restart([LeaseRequest(append=AppendEvents(request_id=7))])
    outbox.put_preview(delta("a", "gap"))
    outbox.put_preview(start("b"))
    requests = await written(outbox)
    assert requests[0].append.request_id == 7
    assert [request.preview.event_start.event.id for request in requests[1:]] == ["b"]


def cached(session_id: str, size: int = 0) -> CachedState:
    state = logs.HARNESS.begin(logs.session())
    state.session_id = session_id
    if size:
        state.transcript.add("user", content.text_block("x" * size))
    return CachedState("standard", state)


def test_cache_hands_a_state_over_and_forgets_it() -> None:
    cache = StateCache()
    kept = cached("a")
    cache.put(kept)
    assert cache.take("a") is kept
    assert cache.take("a") is None


def test_cache_lets_go_of_the_oldest_by_number_and_by_size() -> None:
    cache = StateCache(entries=2, max_bytes=100_000)
    for name in ("a", "b", "c"):
        cache.put(cached(name))
    assert cache.take("a") is None
    cache.put(cached("d", size=95_000))
    assert cache.take("b") is None
    assert cache.take("c") is None
    assert cache.take("d") is not None


def test_results_of_the_last_calls_and_what_was_said_count_in_the_cache() -> None:
    kept, bare = cached("a"), cached("a").size
    kept.state.words.append(("user", "x" * 100))
    call = bash("{}")
    call.resolve("sevt_1", [ContentBlock(text=TextBlock(text="y" * 1000))], is_error=False)
    kept.state.calls["id"] = call
    assert kept.size >= bare + 1100


def test_state_that_is_too_large_is_not_kept() -> None:
    cache = StateCache(max_bytes=10_000)
    cache.put(cached("a", size=20_000))
    assert cache.take("a") is None


def test_patience_grows_to_a_ceiling_and_heeds_what_the_server_asks() -> None:
    policy = RetryPolicy(base=1.0, longest=8.0, chance=random.Random(1))  # noqa: S311
    assert all(policy.delay(1, None) <= 1.0 for _ in range(50))
    assert max(policy.delay(9, None) for _ in range(200)) > 6.0
    assert all(policy.delay(99, None) <= 8.0 for _ in range(50))
    assert all(20.0 <= policy.delay(1, 20.0) <= 22.0 for _ in range(50))
    assert policy.delay(1, 10_000.0) <= 330.0


def bash(arguments: str, name: str = "bash") -> Call:
    return Call("id", name, arguments, "toolu", Answerer.HANDS)


def test_bash_that_asks_for_more_time_gets_it() -> None:
    def limit(name: str, arguments: str) -> float:
        return time_limit(bash(arguments, name))

    assert limit("bash", '{"command": "x"}') == DEFAULT_DEADLINE
    assert limit("bash", '{"command": "x", "timeout_ms": 600000}') == 630.0
    assert limit("bash", '{"timeout_ms": 10}') == DEFAULT_DEADLINE
    assert limit("bash", '{"timeout_ms": "soon"}') == DEFAULT_DEADLINE
    assert limit("read", '{"timeout_ms": 600000}') == DEFAULT_DEADLINE


@pytest.mark.parametrize("asked", ["1e400", "1e300", "9" * 400, "-1e400", "null"])
def test_no_input_that_a_model_writes_keeps_a_call_from_having_a_limit(asked: str) -> None:
    arguments = f'{{"command": "x", "timeout_ms": {asked}}}'
    assert DEFAULT_DEADLINE <= time_limit(bash(arguments)) <= 3630.0


def test_input_that_is_nested_without_end_has_the_usual_limit() -> None:
    arguments = '{"timeout_ms": 1, "x": %s}' % ("[" * 5000 + "]" * 5000)
    assert time_limit(bash(arguments)) == DEFAULT_DEADLINE
