"""When a broken subscription is taken up again, and when it is given up."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import grpc
import grpc.aio
import pytest

from chassis.errors import DroverError, Reason
from chassis.grpc.status import DETAILS_KEY, to_status
from drover.session.v1 import session_service_pb2 as pb
from gateway.sse import FrameCache
from gateway.subscription import POSITION_KEY, Resumption, Subscription
from gateway.view import View
from tests.doubles.platform import message
from tests.unit.gateway.test_sse import cache

SECONDS = 30.0


class Time:
    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        return self.now


class Call:
    """A stream that gives what it was given, then ends as it was told."""

    def __init__(self, steps: Iterable[Any], position: str | None = "") -> None:
        self._steps = iter(steps)
        self._position = position

    async def initial_metadata(self) -> Any:
        return [] if self._position is None else [(POSITION_KEY, self._position)]

    async def read(self) -> Any:
        step = next(self._steps, grpc.aio.EOF)
        if callable(step):
            step()
            return await self.read()
        if isinstance(step, DroverError):
            raise failed(step)
        if step is grpc.aio.EOF:
            return step
        events = step if isinstance(step, list) else [step]
        frames = [pb.StreamFrame(event=event) for event in events]
        return pb.StreamEventsResponse(frames=frames).SerializeToString()

    def done(self) -> bool:
        return False

    async def code(self) -> Any:
        return grpc.StatusCode.OK

    def cancel(self) -> None:
        pass


def failed(error: DroverError) -> grpc.aio.AioRpcError:
    details = grpc.aio.Metadata((DETAILS_KEY, to_status(error).SerializeToString()))
    return grpc.aio.AioRpcError(
        grpc.StatusCode[error.rule.grpc], grpc.aio.Metadata(), details, error.message
    )


BROKEN = DroverError(Reason.UNAVAILABLE, "broken")


def following(
    calls: list[Call], time: Any, seconds: float = SECONDS
) -> tuple[Subscription, list[str]]:
    asked: list[str] = []

    def call(request: Any, *, wait_for_ready: bool = False) -> Any:
        del wait_for_ready
        asked.append(request.after_event_id if request.HasField("after_event_id") else "now")
        return calls.pop(0)

    frames: FrameCache = cache()[0]
    return (
        Subscription(
            call,
            pb.StreamEventsRequest(session_id="s"),
            View(),
            cache=frames,
            resumption=Resumption(seconds, first=0, most=0),
            clock=time,
            open_seconds=5,
        ),
        asked,
    )


async def chunks(subscription: Subscription) -> list[list[str]]:
    """The ids of the events given together, `-` for one without a stamp."""
    await subscription.open()
    return [
        [frame.id if frame.seq else "-" for frame in frames]
        async for frames in subscription.frames()
    ]


async def shown(subscription: Subscription) -> list[str]:
    return [frame for chunk in await chunks(subscription) for frame in chunk]


def event(number: int, *, echo: bool = False) -> Any:
    return message(f"sevt_{number}", "x", seq=0 if echo else number)


async def test_it_goes_on_behind_the_last_stamped_event_shown() -> None:
    calls = [
        Call([event(6), event(7), event(9, echo=True), BROKEN], "sevt_5"),
        Call([event(7), event(8), event(9, echo=True), event(9), BROKEN], "sevt_7"),
        Call([event(10)]),
    ]
    subscription, asked = following(calls, Time())
    assert await shown(subscription) == [
        *("sevt_6", "sevt_7", "-", "sevt_8", "sevt_9", "sevt_10"),
    ]
    assert asked == ["now", "sevt_7", "sevt_9"]


async def test_the_frames_of_one_message_are_shown_together_each_once() -> None:
    calls = [
        Call([[event(6), event(8, echo=True)], [event(7)], BROKEN], "sevt_5"),
        Call([[event(7), event(8, echo=True)], [event(7), event(8), event(9)]]),
    ]
    subscription, asked = following(calls, Time())
    assert await chunks(subscription) == [["sevt_6", "-"], ["sevt_7"], ["sevt_8", "sevt_9"]]
    assert asked == ["now", "sevt_7"]


@pytest.mark.parametrize("position", ["sevt_5", ""])
async def test_before_the_first_event_it_goes_on_where_it_began(position: str) -> None:
    subscription, asked = following([Call([BROKEN], position), Call([event(6)])], Time())
    assert await shown(subscription) == ["sevt_6"]
    assert asked == ["now", position]


async def test_without_a_position_it_does_not_guess() -> None:
    subscription, asked = following([Call([BROKEN], None)], Time())
    with pytest.raises(DroverError, match="broken"):
        await shown(subscription)
    assert asked == ["now"]


@pytest.mark.parametrize("reason", [Reason.NOT_FOUND, Reason.PERMISSION_DENIED, Reason.INTERNAL])
async def test_what_will_not_change_is_not_tried_again(reason: Reason) -> None:
    subscription, asked = following([Call([DroverError(reason, "over")])], Time())
    with pytest.raises(DroverError, match="over"):
        await shown(subscription)
    assert len(asked) == 1


async def test_an_outage_is_borne_for_so_long_and_no_longer() -> None:
    time = Time()

    def wait() -> None:
        time.now += SECONDS / 4

    calls = [Call([wait, BROKEN], "sevt_5") for _ in range(20)]
    subscription, asked = following(calls, time)
    with pytest.raises(DroverError, match="broken"):
        await shown(subscription)
    assert len(asked) == 5


async def test_outages_far_apart_are_borne_each_for_itself() -> None:
    time = Time()

    def long_silence() -> None:
        time.now += 100 * SECONDS

    calls = [Call([long_silence, BROKEN], "sevt_5") for _ in range(20)]
    subscription, asked = following([*calls, Call([event(6)])], time)
    assert await shown(subscription) == ["sevt_6"]
    assert len(asked) == 21


async def test_a_reader_that_fell_behind_is_taken_on() -> None:
    behind = DroverError(Reason.RESOURCE_EXHAUSTED, "the reader took nothing for too long")
    subscription, asked = following([Call([event(6), behind]), Call([event(7)])], Time())
    assert await shown(subscription) == ["sevt_6", "sevt_7"]
    assert asked == ["now", "sevt_6"]
