"""Who shares a subscription with whom, and what one reader's trouble means for the others."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import orjson
import pytest

from chassis.errors import DroverError, Reason
from drover.session.v1 import session_service_pb2 as pb
from gateway.fanout import Fanout
from gateway.reader import Reader, ReaderGoneError
from gateway.subscription import Resumption, Subscription
from gateway.view import View
from tests.doubles.feed import Call, Feed
from tests.doubles.sse_reader import Connection, body, frames
from tests.doubles.virtual_time import VirtualLoop, in_virtual_time
from tests.unit.gateway.test_sse import cache

STALL = 60.0


class World:
    """A fan-out over one session's feed, whose answers and deliveries tests decide."""

    def __init__(self, group: asyncio.TaskGroup, *, ring_bytes: int = 1_000_000) -> None:
        self.feed = Feed()
        self.group = group
        self.clock: VirtualLoop = asyncio.get_running_loop()  # type: ignore[assignment]
        self.fanout = Fanout(group, 15.0, self.clock, ring_bytes=ring_bytes)
        self._frames = cache()[0]

    def subscription(self, view: View) -> Subscription:
        return Subscription(
            self.feed.subscribe,
            pb.StreamEventsRequest(session_id="s"),
            view,
            cache=self._frames,
            resumption=Resumption(),
            clock=self.clock,
            open_seconds=5,
        )

    async def come(self, after: str | None = None) -> tuple[Connection, Reader]:
        """A reader whose subscription stands."""
        return self.join(await self.opened(View(after)))

    async def opened(self, view: View) -> Subscription:
        """A subscription that stands."""
        subscription = self.subscription(view)
        opening = asyncio.ensure_future(subscription.open())
        await asyncio.sleep(0)
        self.feed.calls[-1].let_in()
        await opening
        return subscription

    def join(self, subscription: Subscription) -> tuple[Connection, Reader]:
        connection = Connection()
        reader = Reader(connection.wire, STALL)
        reader.listen()
        self.fanout.join(reader, "key", subscription)
        return connection, reader

    async def deliver(self, *calls: Call) -> None:
        """Has everything arrive on these subscriptions, on all unless named."""
        for call in calls or tuple(self.feed.calls):
            call.deliver(1_000)
        await asyncio.sleep(0.01)

    async def until(self, holds: Callable[[], bool]) -> None:
        """Goes on until something holds."""
        async with asyncio.timeout(30):
            while not holds():  # noqa: ASYNC110  # nothing announces it, and time costs nothing
                await asyncio.sleep(0.01)

    def close(self) -> None:
        self.fanout.close()
        for reader in list(self.fanout._readers):
            self.fanout.leave(reader)
            reader.close()


@asynccontextmanager
async def world(*, ring_bytes: int = 1_000_000) -> AsyncIterator[World]:
    async with asyncio.TaskGroup() as group:
        made = World(group, ring_bytes=ring_bytes)
        try:
            yield made
        finally:
            made.close()


def seen(connection: Connection) -> list[str]:
    """What a reader that takes everything has seen: ids, in brackets those of echoes."""
    connection.take(1_000_000)
    return [
        frame.get("id") or f"({orjson.loads(frame['data'])['id']})"
        for frame in frames(body(bytes(connection.taken)))
    ]


@in_virtual_time
async def test_readers_of_a_session_share_one_subscription() -> None:
    async with world() as w:
        readers = [(await w.come())[0] for _ in range(5)]
        assert len(w.feed.calls) == 1
        w.feed.append("a")
        w.feed.append("b")
        await w.deliver()
        assert [seen(reader) for reader in readers] == [["a", "b"]] * 5


@in_virtual_time
async def test_a_reader_with_a_position_is_given_what_it_missed_and_shares_on() -> None:
    async with world() as w:
        await w.come()
        for event_id in "abcd":
            w.feed.append(event_id)
        await w.deliver()
        late, _ = await w.come("b")
        assert len(w.feed.calls) == 1
        w.feed.append("e")
        await w.deliver()
        assert seen(late) == ["c", "d", "e"]


@in_virtual_time
async def test_a_reader_whose_place_is_at_hand_asks_the_service_for_nothing() -> None:
    async with world() as w:
        await w.come()
        for event_id in "abc":
            w.feed.append(event_id)
        await w.deliver()
        asked = len(w.feed.past)
        for position, missed in {"b": ["c"], "c": []}.items():
            subscription = w.subscription(View(position))
            assert w.fanout.can_share("key", subscription)
            reader, _ = w.join(subscription)
            assert seen(reader) == missed
        for position in (None, "", "z"):
            assert not w.fanout.can_share("key", w.subscription(View(position)))
        assert len(w.feed.past) == asked


@in_virtual_time
async def test_a_reader_from_long_ago_catches_up_by_itself_and_then_shares() -> None:
    async with world(ring_bytes=500) as w:
        first, _ = await w.come()
        for number in range(20):
            w.feed.append(f"e{number}")
            await w.deliver()
            seen(first)
        old, _ = await w.come("")
        assert len(w.feed.calls) == 2
        await w.deliver()
        await w.until(lambda: len(seen(old)) == 20)
        w.feed.append("last")
        await w.deliver()
        assert len(w.feed.calls) == 1
        assert seen(old) == [*(f"e{number}" for number in range(20)), "last"]


@in_virtual_time
async def test_a_reader_is_not_shown_what_was_there_before_it_came() -> None:
    async with world() as w:
        await w.come()
        w.feed.append("a")  # the shared subscription has not got it yet
        new, _ = await w.come()
        assert len(w.feed.calls) == 2
        w.feed.append("b")
        await w.deliver()
        assert len(w.feed.calls) == 1
        assert seen(new) == ["b"]


@in_virtual_time
async def test_the_shared_one_takes_in_who_is_ahead_as_soon_as_it_gets_there() -> None:
    async with world() as w:
        await w.come()
        shared = w.feed.calls[0]
        w.feed.append("a")
        new, _ = await w.come()
        w.feed.append("b")
        await w.deliver(w.feed.calls[1])
        assert len(w.feed.calls) == 2
        await w.deliver(shared)
        assert w.feed.calls == [shared]
        assert seen(new) == ["b"]


@in_virtual_time
async def test_nobody_joins_a_subscription_that_is_broken() -> None:
    async with world() as w:
        await w.come()
        w.feed.is_down = True
        w.feed.calls[0].cut()
        await asyncio.sleep(0.01)
        w.feed.is_down = False
        new, _ = await w.come()
        w.feed.echo("a")  # it has been told that its stream stands
        await w.deliver()
        assert seen(new) == ["(a)"]


@in_virtual_time
async def test_nobody_joins_a_hub_that_ends() -> None:
    async with world() as w:
        _, last = await w.come()
        subscription = await w.opened(View())
        w.fanout.leave(last)
        next_one, _ = w.join(subscription)
        await asyncio.sleep(0.01)
        w.feed.append("a")
        await w.deliver()
        assert seen(next_one) == ["a"]


@in_virtual_time
async def test_the_last_reader_to_leave_ends_the_subscription() -> None:
    async with world() as w:
        readers = [(await w.come())[1] for _ in range(3)]
        for reader in readers:
            assert len(w.feed.calls) == 1
            w.fanout.leave(reader)
        await asyncio.sleep(0.01)
        assert w.feed.calls == []


@in_virtual_time
async def test_a_subscription_that_never_began_to_be_read_is_ended_too() -> None:
    async with world() as w:
        _, reader = await w.come()
        w.fanout.leave(reader)  # before its hub's task has run
        await asyncio.sleep(0.01)
        assert w.feed.calls == []


@in_virtual_time
async def test_a_reader_that_does_not_read_holds_up_nobody() -> None:
    async with world() as w:
        stuck, _ = await w.come()
        quick, _ = await w.come()
        for number in range(50):
            w.feed.append(f"e{number}")
            await w.deliver()
            assert seen(quick)[-1] == f"e{number}"
        assert len(stuck.taken) == 0
        assert seen(stuck)
        assert seen(stuck) == seen(quick)


@in_virtual_time
async def test_a_reader_that_has_fallen_out_of_what_is_kept_is_told_its_position() -> None:
    async with world(ring_bytes=1_000) as w:
        slow, reader = await w.come()
        quick, _ = await w.come()
        for number in range(20):
            w.feed.append(f"e{number}")
            await w.deliver()
            seen(quick)
        before = seen(slow)
        assert await reader.has_fallen_behind()
        assert reader.view.position == before[-1] != "e19"
        w.fanout.join(reader, "key", w.subscription(reader.view))
        await asyncio.sleep(0.01)
        w.feed.calls[-1].let_in()
        await asyncio.sleep(0.01)
        await w.deliver()
        await w.until(lambda: len(seen(slow)) == 20)
        w.feed.append("e20")
        await w.deliver()
        assert len(w.feed.calls) == 1
        assert seen(slow) == [f"e{number}" for number in range(21)]


@in_virtual_time
async def test_a_reader_that_takes_nothing_at_all_is_dropped() -> None:
    async with world() as w:
        _, reader = await w.come()
        for number in range(20):
            w.feed.append(f"e{number}")
        await w.deliver()
        start = w.clock.now
        with pytest.raises(ReaderGoneError):
            await reader.has_fallen_behind()
        assert STALL - 1 < w.clock.now - start <= STALL


@in_virtual_time
async def test_a_reader_that_takes_little_is_not_dropped() -> None:
    async with world() as w:
        slow, reader = await w.come()
        for number in range(20):
            w.feed.append(f"e{number}")
        await w.deliver()
        gone = asyncio.ensure_future(reader.has_fallen_behind())
        for _ in range(20):
            await asyncio.sleep(STALL / 2)
            slow.take(10)
            assert not gone.done()
        gone.cancel()


@in_virtual_time
async def test_where_nobody_takes_anything_nothing_is_read() -> None:
    async with world() as w:
        stuck, _ = await w.come()
        call = w.feed.calls[0]
        for number in range(40):
            w.feed.append(f"e{number}")
            await w.deliver()
        assert call.unread > 10
        await w.until(lambda: len(seen(stuck)) == 40)
        assert call.unread == 0


@in_virtual_time
async def test_a_connection_that_is_slow_from_the_start_is_not_written_more() -> None:
    async with world() as w:
        subscription = await w.opened(View())
        connection = Connection()
        connection.write(b"x" * 5_000)  # the answer before, say
        reader = Reader(connection.wire, STALL)
        reader.listen()
        w.fanout.join(reader, "key", subscription)
        w.feed.append("a")
        await w.deliver()
        assert connection.get_write_buffer_size() == 5_000


@in_virtual_time
async def test_readers_at_work_do_not_wait_behind_one_that_came_first_and_is_stuck() -> None:
    async with world() as w:
        await w.come()
        for number in range(40):
            w.feed.append(f"e{number}")
            await w.deliver()
        stuck = w.feed.calls[0]
        readers = [(await w.come())[0] for _ in range(5)]
        w.feed.append("a")
        await w.deliver()
        assert len(w.feed.calls) == 2
        assert stuck in w.feed.calls
        assert [seen(reader) for reader in readers] == [["a"]] * 5


@in_virtual_time
async def test_every_reader_is_told_what_the_subscription_ends_with() -> None:
    async with world() as w:
        readers = [(await w.come())[1] for _ in range(3)]
        w.feed.calls[0].cut(DroverError(Reason.NOT_FOUND, "gone"))
        for reader in readers:
            with pytest.raises(DroverError, match="gone"):
                await reader.has_fallen_behind()


@in_virtual_time
async def test_a_reader_that_is_late_at_the_end_is_given_the_rest_first() -> None:
    async with world() as w:
        slow, reader = await w.come()
        quick, other = await w.come()
        for number in range(20):
            w.feed.append(f"e{number}")
            await w.deliver()
            seen(quick)
        w.feed.calls[0].end()
        assert not await other.has_fallen_behind()
        ended = asyncio.ensure_future(reader.has_fallen_behind())
        await asyncio.sleep(0.01)
        assert not ended.done()
        await w.until(lambda: len(seen(slow)) == 20)
        assert seen(slow) == seen(quick)
        assert not await ended


@in_virtual_time
async def test_silence_is_filled_for_all_readers() -> None:
    async with world() as w:
        readers = [(await w.come())[0] for _ in range(2)]
        await asyncio.sleep(50)
        for reader in readers:
            assert seen(reader) == []
            assert body(bytes(reader.taken)) == b": keep-alive\n\n" * 3


@in_virtual_time
async def test_closing_ends_the_streams_that_are_open_and_those_to_come() -> None:
    async with world() as w:
        _, first = await w.come()
        w.fanout.close()
        _, second = await w.come()
        assert not await first.has_fallen_behind()
        assert not await second.has_fallen_behind()
