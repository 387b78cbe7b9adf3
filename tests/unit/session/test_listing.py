"""Pages of events: the log, then the inbox, each event exactly once."""

from __future__ import annotations

import itertools

import pytest

from drover.session.v1 import lease_pb2
from services.session.domain.ports import TimeRange
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
