"""Sessions that do not get on are told of: once, for as long as it lasts, and no others."""

from __future__ import annotations

import pytest
from structlog.testing import capture_logs

from drover.session.v1 import lease_pb2
from services.session.stuck import StuckSessions
from tests.doubles.session_events import (
    ASK,
    confirmation,
    idle,
    message,
    running,
    said,
    tool_use,
)
from tests.doubles.session_world import World

SECONDS = 60
TAKE = lease_pb2.TAKE_INPUT_NEXT


class Watched:
    """A session, and what is told of it."""

    def __init__(self, *initial):
        self.world = World(*initial)
        self.looks = StuckSessions(self.world.store, self, SECONDS)
        self.told = []
        self.now = None

    def stuck(self, sessions, found):
        self.now = sessions

    async def look(self, *, after=0):
        """What is logged when it is looked, some seconds later."""
        self.world.clock.move(after)
        with capture_logs() as logs:
            await self.looks.look()
        return [line["event"] for line in logs]

    async def one(self, *, after):
        """The one line that is logged."""
        self.world.clock.move(after)
        with capture_logs() as logs:
            await self.looks.look()
        [line] = logs
        return line


def at_work(*events):
    """A session whose brain has taken its message."""
    watched = Watched(message())
    generation = watched.world.open()
    watched.world.append(generation, running(), *events, take=TAKE)
    return watched, generation


async def test_session_that_needs_a_brain_and_gets_none_is_told_of():
    watched = Watched(message())
    assert await watched.look() == []
    line = await watched.one(after=SECONDS)
    assert line["event"] == "session_stuck"
    assert line["session_id"] == watched.world.ref.session_id
    assert (line["waits_for"], line["holder"], line["seconds"]) == ("a brain", "", SECONDS)
    assert watched.now == 1


async def test_session_whose_brain_does_nothing_is_told_of_with_its_brain():
    watched, generation = at_work()
    watched.world.clock.move(SECONDS - 1)
    watched.world.append(generation)  # the lease lives on, the log does not grow
    assert await watched.look() == []
    line = await watched.one(after=1)
    assert (line["holder"], line["generation"]) == ("brain", generation)
    assert line["last_event"] == "session.status_running"
    assert line["waits_for"] == "its brain"


@pytest.mark.parametrize(
    ("event", "waits_for"), [(tool_use("sevt_call"), "its tools"), (said("hm"), "its brain")]
)
async def test_what_a_session_waits_for_is_told(event, waits_for):
    watched, generation = at_work(event)
    watched.world.clock.move(SECONDS)
    watched.world.append(generation)
    assert (await watched.one(after=0))["waits_for"] == waits_for


async def test_one_that_is_stuck_is_told_of_once_and_again_when_it_gets_on():
    watched, generation = at_work()
    assert await watched.look(after=SECONDS) == ["session_stuck"]
    assert await watched.look(after=SECONDS) == []
    watched.world.append(generation, said("at last"))
    assert await watched.look() == ["session_no_longer_stuck"]
    assert watched.now == 0
    assert await watched.look(after=SECONDS) == ["session_stuck"]


async def test_one_that_is_stuck_anew_between_two_looks_is_told_of_anew():
    watched, generation = at_work()
    assert await watched.look(after=SECONDS) == ["session_stuck"]
    watched.world.append(generation, said("at last"))
    assert await watched.look(after=SECONDS) == ["session_no_longer_stuck", "session_stuck"]


async def test_session_at_rest_is_not_told_of_nor_when_it_is_woken_after_long():
    watched, generation = at_work(idle())
    watched.world.append(generation, release=True)
    assert await watched.look(after=24 * 3600) == []
    watched.world.accept(message())
    assert await watched.look() == []
    assert await watched.look(after=SECONDS - 1) == []
    assert await watched.look(after=1) == ["session_stuck"]


async def test_session_that_waits_for_a_person_is_not_told_of():
    watched, generation = at_work(tool_use("sevt_call", ASK), idle("sevt_call"))
    watched.world.append(generation, release=True)
    assert await watched.look(after=24 * 3600) == []
    watched.world.accept(confirmation("sevt_call"))
    assert await watched.look() == []
    assert await watched.look(after=SECONDS) == ["session_stuck"]


async def test_session_that_is_gone_is_no_longer_stuck():
    watched, generation = at_work()
    assert await watched.look(after=SECONDS) == ["session_stuck"]
    watched.world.append(generation, idle(), release=True)
    watched.world.delete()
    assert await watched.look() == ["session_no_longer_stuck"]
    assert watched.now == 0
