"""Pages of events: the log, then the inbox, each event exactly once."""

from __future__ import annotations

import itertools

import pytest

from chassis.errors import DroverError, Reason
from drover.session.v1 import lease_pb2
from services.session.domain import bounds
from services.session.domain.bounds import Around
from services.session.domain.ports import TimeRange
from services.session.domain.session import ThreadState
from tests.doubles.session_events import message, running, said
from tests.doubles.session_world import World, kinds

MICROS = 1_000_000


def mixed():
    """Four events in the log, three in the inbox."""
    world = World(message("m1"), *(message(f"m{n}") for n in (2, 3, 4)))
    generation = world.open()
    world.append(generation, running(), said("a"), said("b"), take=lease_pb2.TAKE_INPUT_NEXT)
    return world, generation


def walk(world, between=lambda: None, **query):
    """Every page, with something happening between two of them."""
    pages, place = [], None
    while True:
        page = world.page(place, **query)
        pages.append(page.events)
        place = page.next
        if place is None:
            return pages
        between()


@pytest.mark.parametrize("limit", range(1, 9))
@pytest.mark.parametrize("descending", [False, True])
def test_pages_of_any_size_make_up_the_whole_listing(limit, descending):
    world, _ = mixed()
    pages = walk(world, limit=limit, descending=descending)
    whole = world.events(descending=descending)
    assert [event.id for page in pages for event in page] == [event.id for event in whole]
    assert all(pages)
    assert kinds(world.events())[4:] == ["user_message"] * 3
    assert world.events(descending=True) == world.events()[::-1]


@pytest.mark.parametrize("limit", [1, 2, 3])
@pytest.mark.parametrize("descending", [False, True])
def test_events_that_move_meanwhile_are_listed_exactly_once(limit, descending):
    world, generation = mixed()
    expected = {event.id for event in world.events()}

    def move():
        world.append(generation, said("more"), take=lease_pb2.TAKE_INPUT_NEXT)
        world.accept(message("late"))

    pages = walk(world, move, limit=limit, descending=descending)
    seen = [event.id for page in pages for event in page]
    assert len(seen) == len(set(seen))
    assert expected <= set(seen)


def test_an_event_that_moved_is_listed_as_it_is_in_the_log():
    world, generation = mixed()
    first = world.page(None, limit=4)
    world.append(generation, take=lease_pb2.TAKE_INPUT_ALL)
    rest = world.page(first.next, limit=10)
    assert [event.seq for event in rest.events] == [5, 6, 7]


def test_a_listing_ends_however_much_comes_in():
    world, _ = mixed()
    pages = walk(world, lambda: world.accept(message()), limit=1)
    assert len(pages) == 7


def test_types_filter_both_parts():
    world, _ = mixed()
    assert kinds(world.events(types=("user.message",))) == ["user_message"] * 4
    assert kinds(world.events(types=("agent.message",))) == ["agent_message"] * 2
    assert all(walk(world, limit=1, types=("user.message",)))


def test_positions_bound_the_log():
    world, _ = mixed()
    assert [event.seq for event in world.events(after_seq=2)] == [3, 4, 0, 0, 0]
    assert [event.seq for event in world.events(after_seq=1, before_seq=4)] == [2, 3]
    assert [event.seq for event in world.events(before_seq=4, descending=True)] == [3, 2, 1]
    assert world.events(before_seq=0) == []
    assert [e.seq for page in walk(world, limit=1, before_seq=4) for e in page] == [1, 2, 3]


def test_time_filters_compare_stamps_and_leave_the_inbox_out():
    world, generation = mixed()
    at = world.log[-1].processed_at.ToMicroseconds()
    world.clock.move(1)
    world.append(generation, said("later"))
    assert len(world.events(times=TimeRange(high=at))) == 4
    assert kinds(world.events(times=TimeRange(low=at + 1))) == ["agent_message"]
    assert len(world.events(times=TimeRange(low=at, high=at + MICROS))) == 5


def test_pages_are_bounded_in_bytes_and_never_empty():
    world = World()
    generation = world.open()
    for _ in range(6):
        world.append(generation, said("x" * 1000))
    pages = walk(world, limit=100, max_bytes=2500)
    assert [len(page) for page in pages] == [2, 2, 2]
    assert [len(page) for page in walk(world, limit=100, max_bytes=10)] == [1] * 6


def test_a_session_without_events_has_one_empty_page():
    world = World()
    for descending, limit in itertools.product((False, True), (1, 10)):
        assert walk(world, limit=limit, descending=descending) == [[]]


def grown(count=30):
    """A log of so many events, one a second, of which every third is the child thread's."""
    world = World()
    generation = world.open()
    add_child(world)
    for number in range(1, count + 1):
        world.clock.move(1)
        event = running() if number % 5 == 0 else said(str(number))
        event.id = f"e{number}"
        event.thread_id = "sthr_child" if number % 3 == 0 else ""
        world.append(generation, event)
    return world


def add_child(world):
    child = ThreadState("sthr_child", world.ref.session_id, 1, 1, world.state.primary_thread_id)
    world.store.run(lambda tx: tx.save_thread(child))


def numbers(events):
    return [event.seq for event in events]


def refused(call):
    with pytest.raises(DroverError) as caught:
        call()
    return caught.value


def test_a_slice_around_an_event_has_its_neighbours_by_position():
    world = grown()
    assert numbers(world.events(around=Around("e10", 2, 3))) == [8, 9, 10, 11, 12, 13]
    assert numbers(world.events(around=Around("e10", 0, 0))) == [10]
    assert numbers(world.events(around=Around("e2", 9, 0))) == [1, 2]
    assert numbers(world.events(around=Around("e29", 1, 9), descending=True)) == [30, 29, 28]
    pages = walk(world, limit=2, around=Around("e10", 2, 2))
    assert [numbers(page) for page in pages] == [[8, 9], [10, 11], [12]]


def test_neighbours_are_counted_among_what_matches():
    world = grown()
    status = ("session.status_running",)
    assert numbers(world.events(around=Around("e12", 1, 2), types=status)) == [10, 15, 20]
    assert numbers(world.events(around=Around("e15", 1, 1), types=status)) == [10, 15, 20]
    child = {"thread_id": "sthr_child"}
    assert numbers(world.events(around=Around("e10", 2, 1), **child)) == [6, 9, 12]
    both = world.events(around=Around("e10", 0, 9), types=status, **child)
    assert numbers(both) == [15, 30]
    primary = {"thread_id": world.state.primary_thread_id}
    assert numbers(world.events(around=Around("e10", 3, 2), **primary)) == [5, 7, 8, 10, 11, 13]


def test_a_slice_around_what_has_no_place_is_refused():
    world = grown()
    world.accept(message("later", "waits"))
    for event_id, text in (("nowhere", "no such event"), ("waits", "waits in the inbox")):
        error = refused(lambda one=event_id: world.events(around=Around(one, 1, 1)))
        assert error.reason is Reason.INVALID_ARGUMENT
        assert error.message.startswith("around_event_id: ")
        assert text in error.message


def test_a_thread_has_its_own_events_and_the_primary_one_the_inbox():
    world = grown(9)
    world.accept(message("later", "waits"))
    assert numbers(world.events(thread_id="sthr_child")) == [3, 6, 9]
    primary = world.events(thread_id=world.state.primary_thread_id)
    assert numbers(primary) == [1, 2, 4, 5, 7, 8, 0]
    assert refused(lambda: world.events(thread_id="sthr_other")).reason is Reason.NOT_FOUND


@pytest.mark.parametrize("descending", [False, True])
def test_what_no_index_tells_is_sought_a_stretch_at_a_time(descending, monkeypatch):
    monkeypatch.setattr(bounds, "SCAN", 4)
    world = grown()
    primary = world.state.primary_thread_id
    for query in (
        {"thread_id": primary},
        {"thread_id": primary, "types": ("session.status_running",)},
        {"thread_id": "sthr_child", "types": ("session.status_running",)},
    ):
        pages = walk(world, limit=3, descending=descending, **query)
        found = [event.seq for page in pages for event in page]
        of_child = query["thread_id"] != primary
        expected = [
            seq
            for seq in range(1, 31)
            if (seq % 3 == 0) is of_child and ("types" not in query or seq % 5 == 0)
        ]
        assert found == (expected[::-1] if descending else expected)
        assert max(map(len, pages)) <= 3
        near = walk(world, limit=9, around=Around("e16", 3, 2), **query)
        assert sorted(event.seq for page in near for event in page) == [
            *[seq for seq in expected if seq < 16][-3:],
            *([16] if 16 in expected else []),
            *[seq for seq in expected if seq > 16][:2],
        ]


def test_the_inbox_is_read_from_what_waits_and_not_from_its_beginning():
    world = World(message("first"))
    generation = world.open()
    for _ in range(20):
        world.append(generation, take=2)
        world.accept(message("next"))
    asked = []

    class Watched:
        def __init__(self, tx):
            self._tx = tx

        def __getattr__(self, name):
            return getattr(self._tx, name)

        def inbox(self, session_id, query):
            asked.append(query)
            return self._tx.inbox(session_id, query)

    run = world.store.run
    world.store.run = lambda fn, **more: run(lambda tx: fn(Watched(tx)), **more)
    assert numbers(world.events()) == [*range(1, 21), 0]
    assert [(query.after, query.upto) for query in asked] == [(20, 21)]
