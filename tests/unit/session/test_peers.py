"""What replicas say to each other, and what they make of it."""

from __future__ import annotations

import asyncio
import base64

import pytest

from drover.session.v1 import lease_pb2, notice_pb2
from services.session import peers, previews
from services.session.domain.news import News
from services.session.domain.session import SessionRef
from services.session.feed import Feed
from services.session.peers import Peers
from storage.notices import MAX_PAYLOAD
from tests.doubles.session_events import message, said
from tests.doubles.session_world import ManualClock
from tests.unit.session.test_feed import delta, stamped, start, taken

REF = SessionRef("wrkspc_default", "sesn_1")


class Hall:
    """Where everyone hears what is said, when the test wants it said."""

    def __init__(self):
        self.parties = []
        self.said = []

    def say(self, *speakers):
        """Has them, or all, say what they have to say; whether there was anything."""
        said = []
        for party in speakers or self.parties:
            said += party.compose()
        self.said += said
        for notice in said:
            assert len(notice) <= MAX_PAYLOAD
            for party in self.parties:
                party.heard(notice)
        return bool(said)

    def settle(self):
        while self.say():
            pass


class Room:
    """One replica's `Notices`: it takes down that it was rung."""

    def __init__(self):
        self.rung = 0

    def ring(self):
        self.rung += 1


class Lookout:
    def __init__(self):
        self.changes = []
        self.everywhere = 0
        self.asked = []

    def look(self, changes):
        self.changes += changes

    def look_everywhere(self):
        self.everywhere += 1

    def look_at(self, session_id):
        self.asked.append(session_id)


@pytest.fixture
def clock():
    return ManualClock()


@pytest.fixture
def hall():
    return Hall()


def join(hall, name, clock):
    feed, lookout = Feed(), Lookout()
    peer = Peers(name, Room(), feed, lookout, clock)
    peer.feed, peer.lookout = feed, lookout
    feed.join(peer)
    hall.parties.append(peer)
    peer.joined()
    return peer


@pytest.fixture
def pair(hall, clock):
    one, other = join(hall, "one", clock), join(hall, "other", clock)
    hall.settle()
    return one, other


def test_alone_there_is_nothing_to_say_but_that_one_is_there(hall, clock):
    one = join(hall, "one", clock)
    hall.settle()
    assert len(hall.said) == 1
    one.hear(News(REF, stamped=[stamped(1)]))
    assert not hall.say()


def test_a_commit_is_told_to_the_others_and_not_to_oneself(hall, pair):
    one, other = pair
    one.hear(News(REF, stamped=[stamped(1)], opened=True))
    assert one._notices.rung
    hall.settle()
    assert one.lookout.changes == []
    [change] = other.lookout.changes
    assert (change.session_id, change.grown, change.input, change.lease) == (
        "sesn_1",
        True,
        False,
        True,
    )


def test_commits_of_one_session_are_told_of_together(hall, pair):
    one, other = pair
    for seq in range(1, 100):
        one.hear(News(REF, stamped=[stamped(seq)]))
    one.hear(
        News(REF, echoes=[message()], inbox_tail=1, input=lease_pb2.InputWaiting(message=True))
    )
    hall.settle()
    [change] = other.lookout.changes
    assert change.grown
    assert change.input


def test_work_that_is_queued_is_told_to_the_others(hall, pair):
    one, other = pair
    one.hear(News(REF, work="env_1"))
    one.hear(News(REF, stamped=[stamped(1)]))
    hall.settle()
    [change] = other.lookout.changes
    assert (change.session_id, change.work, change.grown) == ("sesn_1", "env_1", True)


def test_a_renewal_is_not_worth_telling(hall, pair):
    one, _ = pair
    one.hear(News(REF, generation=3))
    assert not hall.say()


def test_many_sessions_are_told_of_in_as_many_notices_as_it_takes(hall, pair):
    one, other = pair
    names = [f"sesn_{number:026}" for number in range(2000)]
    for name in names:
        one.hear(News(SessionRef("w", name), stamped=[stamped(1)]))
    assert hall.say(one)
    assert [change.session_id for change in other.lookout.changes] == names
    assert len(one.compose()) == 0
    assert other.lookout.everywhere == 1  # as it joined: nothing was missed since


def test_too_many_sessions_are_left_to_polling(hall, pair, monkeypatch):
    monkeypatch.setattr(peers, "_MAX_CHANGES", 3)
    one, other = pair
    for number in range(5):
        one.hear(News(SessionRef("w", f"sesn_{number}"), stamped=[stamped(1)]))
    hall.settle()
    assert len(other.lookout.changes) == 3


def test_a_replica_that_is_silent_for_long_is_told_nothing_more(hall, pair, clock):
    one, _ = pair
    clock.move(11)
    one._forget()
    one.hear(News(REF, stamped=[stamped(1)]))
    assert not hall.say(one)


def test_a_replica_that_comes_later_is_found_and_finds_the_others(hall, pair, clock):
    one, _ = pair
    late = join(hall, "late", clock)
    hall.settle()
    assert late._peers.keys() == {"one", "other"}
    one.hear(News(REF, stamped=[stamped(1)]))
    hall.settle()
    assert late.lookout.changes


async def test_previews_cross_only_where_they_are_wanted(hall, pair):
    one, other = pair
    plain = other.feed.subscribe("sesn_1", frozenset())
    one.preview("sesn_1", start("e0"))
    assert not hall.say(one)
    asked = other.feed.subscribe("sesn_1", frozenset({"agent.message"}))
    hall.settle()
    for preview in (start("e1"), delta("e1"), delta("e1")):
        one.preview("sesn_1", preview)
    hall.settle()
    other.feed.hear(News(REF, stamped=[stamped(1)]))
    assert await taken(asked) == ["event_start", "event_delta", "e1"]
    assert await taken(plain) == ["e1"]


async def test_a_wish_for_previews_ends_unless_it_is_repeated(hall, pair, clock):
    one, other = pair
    subscription = other.feed.subscribe("sesn_1", frozenset({"agent.message"}))
    hall.settle()
    clock.move(6)
    other._greet()
    hall.settle()
    clock.move(6)
    one._forget()
    one.preview("sesn_1", start("e1"))
    assert hall.say(one)
    other.feed.unsubscribe("sesn_1", subscription)
    clock.move(9)
    other._greet()
    hall.settle()
    clock.move(2)
    one._forget()
    one.preview("sesn_1", start("e2"))
    assert not hall.say(one)


async def test_a_notice_that_was_lost_ends_the_previews_that_came_from_elsewhere(hall, pair):
    one, other = pair
    relayed = other.feed.subscribe("sesn_1", frozenset({"agent.message"}))
    local = other.feed.subscribe("sesn_2", frozenset({"agent.message"}))
    hall.settle()
    other.preview("sesn_2", start("own"))
    one.preview("sesn_1", start("e1"))
    hall.settle()
    one.preview("sesn_1", delta("e1"))
    looks = other.lookout.everywhere
    one.compose()  # and nobody hears it
    one.preview("sesn_1", delta("e1"))
    other.preview("sesn_2", delta("own"))
    hall.settle()
    assert await taken(relayed) == ["event_start"]
    assert await taken(local) == ["event_start", "event_delta"]
    assert other.lookout.everywhere == looks + 1


async def test_a_preview_that_is_behind_is_dropped_with_the_rest_of_its_event(
    hall, pair, monkeypatch
):
    monkeypatch.setattr(previews, "_MAX_CHARACTERS", 100)
    one, other = pair
    asked = other.feed.subscribe("sesn_1", frozenset({"agent.message"}))
    hall.settle()
    big = delta("e1")
    big.event_delta.delta.content.text = "x" * 60
    for preview in (start("e1"), big, big, delta("e1")):
        one.preview("sesn_1", preview)
    hall.settle()
    one.preview("sesn_1", delta("e1"))
    assert not hall.say(one)
    assert await taken(asked) == ["event_start", "event_delta"]


async def test_a_long_delta_is_cut_and_short_ones_are_joined(hall, pair):
    one, other = pair
    other.feed.subscribe("sesn_1", frozenset({"agent.message"}))
    hall.settle()
    one.preview("sesn_1", start("e1"))
    text = "".join(chr(0x4E00 + number % 1000) for number in range(10_000))
    for piece in (text[:9_000], *text[9_000:]):
        part = delta("e1")
        part.event_delta.delta.content.text = piece
        one.preview("sesn_1", part)
    shown = [
        preview.preview.event_delta.delta.content.text
        for notice in one.compose()
        for preview in notice_pb2.Notice.FromString(base64.b64decode(notice)).previews
    ]
    assert "".join(shown) == text
    assert len(shown) <= 12


def test_an_event_that_is_complete_gets_no_more_previews(hall, pair):
    one, other = pair
    other.feed.subscribe("sesn_1", frozenset({"agent.message"}))
    hall.settle()

    async def run():
        one.preview("sesn_1", start("e1"))
        hall.settle()
        one.hear(News(REF, stamped=[stamped(1, said("hi", "e1"))]))
        hall.settle()
        one.preview("sesn_1", delta("e1"))

    asyncio.run(run())
    assert not hall.say(one)


@pytest.mark.parametrize("notice", ["", "%%%", "AAAA", base64.b64encode(b"\xff" * 9).decode()])
def test_what_cannot_be_read_is_let_pass(pair, notice):
    _, other = pair
    other.heard(notice)
    assert other._peers.keys() == {"one"}
