"""Slices of a log, by position, type and thread, over every store."""

from __future__ import annotations

import dataclasses
import itertools

import pytest

from services.session.domain.ports import InboxQuery, LogEntry
from services.session.domain.session import MICROS
from tests.doubles.session_events import message, said
from tests.doubles.session_rows import EVERYTHING, REF, create, seqs, stamped, waiting

KINDS = ("user.message", "agent.message", "span.model_request_start")
THREADS = ("", "sthr_sesn_1", "sthr_child")
LARGE = 40_000
"""Characters of a text that does not come with its position."""


def entry(seq, *, large=False):
    """An event of a log in which types and threads take turns, each at its own pace."""
    event = said("x" * (LARGE if large else 10), f"e{seq}")
    event.thread_id = THREADS[seq % len(THREADS)]
    return LogEntry(stamped(seq, event).event, KINDS[seq // 2 % len(KINDS)])


@pytest.fixture
async def filled(store):
    """A store with a log of 60 events, every fifth of them large."""
    await create(store)
    entries = [entry(seq, large=seq % 5 == 0) for seq in range(1, 61)]
    await store.write(lambda tx: tx.append(REF.session_id, entries))
    return store


def matching(query):
    """The positions that a slice has, by the definition of a slice."""
    found = [
        seq
        for seq in range(query.after + 1, min(query.upto, 60) + 1)
        if (not query.types or entry(seq).type in query.types)
        and (not query.threads or entry(seq).event.thread_id in query.threads)
    ]
    return found[::-1] if query.descending else found


SELECTIONS = [
    {"types": types, "threads": threads, "descending": descending}
    for types, threads, descending in itertools.product(
        ((), KINDS[:1], KINDS[1:], KINDS), ((), THREADS[:2], THREADS[2:]), (False, True)
    )
]


@pytest.mark.parametrize("selection", SELECTIONS, ids=str)
async def test_a_slice_has_what_matches_in_order_and_says_whether_there_is_more(filled, selection):
    for after, upto in ((0, 60), (7, 41), (41, 41), (59, 60)):
        query = dataclasses.replace(EVERYTHING, after=after, upto=upto, **selection)
        expected = matching(query)
        assert seqs(await filled.read(lambda tx, q=query: tx.log("sesn_1", q))) == (expected, False)
        for limit in (1, 3, len(expected)):
            query = dataclasses.replace(query, limit=max(1, limit))
            found = seqs(await filled.read(lambda tx, q=query: tx.log("sesn_1", q)))
            assert found == (expected[: query.limit], len(expected) > query.limit)
            places = await filled.read(lambda tx, q=query: tx.positions("sesn_1", q))
            assert places == expected[: query.limit]


async def test_events_come_whole_however_large_they_are(filled):
    events, _ = await filled.read(lambda tx: tx.log("sesn_1", EVERYTHING))
    for event in events:
        expected = stamped(event.seq, entry(event.seq, large=event.seq % 5 == 0).event).event
        assert event == expected


async def test_a_slice_of_large_events_is_bounded_in_bytes(filled):
    query = dataclasses.replace(EVERYTHING, after=9, max_bytes=LARGE + 1000)
    # 10 is large, 11 to 14 are small, and 15 would be too much.
    assert seqs(await filled.read(lambda tx: tx.log("sesn_1", query))) == (
        [10, 11, 12, 13, 14],
        True,
    )
    one = dataclasses.replace(query, max_bytes=1)
    assert seqs(await filled.read(lambda tx: tx.log("sesn_1", one))) == ([10], True)
    assert await filled.read(lambda tx: tx.positions("sesn_1", one)) == list(range(10, 61))


async def test_a_slice_may_reach_beyond_the_end_of_the_log(filled):
    assert seqs(await filled.read(lambda tx: tx.log("sesn_1", EVERYTHING))) == (
        list(range(1, 61)),
        False,
    )


@pytest.mark.parametrize("count", [0, 1, 2, 3, 7, 8, 9, 60])
async def test_a_time_is_found_in_a_log_of_any_length(store, count):
    await create(store)
    # Some share a stamp.
    stamps = [(seq - seq % 3 + 1) * MICROS for seq in range(1, count + 1)]
    entries = [stamped(seq, at=at) for seq, at in enumerate(stamps, start=1)]
    await store.write(lambda tx: tx.append("sesn_1", entries))
    for at in {0, *stamps, *(one + 1 for one in stamps)}:
        expected = next((seq for seq, one in enumerate(stamps, start=1) if one >= at), count + 1)
        found = await store.read(lambda tx, at=at: tx.first_at("sesn_1", count, at))
        assert found == expected


async def test_a_time_is_found_up_to_the_head_alone(filled):
    assert await filled.read(lambda tx: tx.first_at("sesn_1", 20, 40 * MICROS)) == 21
    assert await filled.read(lambda tx: tx.first_at("sesn_1", 60, 40 * MICROS)) == 40


async def test_a_transaction_slices_what_it_appended_itself(filled):
    def fn(tx):
        tx.append("sesn_1", [entry(61)])
        newest = dataclasses.replace(EVERYTHING, upto=61, limit=1, descending=True)
        return seqs(tx.log("sesn_1", newest)), tx.first_at("sesn_1", 61, 61 * MICROS)

    assert await filled.write(fn) == (([61], True), 61)


async def test_a_slice_of_the_inbox_holds_large_events_that_moved_and_that_wait(store):
    await create(store)
    texts = ["a" * LARGE, "b", "c" * LARGE, "d"]
    entries = [waiting(n, message(text, f"m{n}")) for n, text in enumerate(texts, start=1)]
    await store.write(lambda tx: tx.enqueue("sesn_1", entries))

    def move(tx):
        tx.append("sesn_1", [stamped(1, message(texts[0], "m1"))])
        tx.take("sesn_1", [(1, 1)])

    await store.write(move)
    query = InboxQuery(head=0, after=0, upto=9, limit=9, max_bytes=1 << 20)
    found, more = await store.read(lambda tx: tx.inbox("sesn_1", query))
    assert [one.event.user_message.content[0].text.text for one in found] == texts
    assert [one.taken_seq for one in found] == [1, None, None, None]
    assert not more
    for limits, expected in (({"max_bytes": LARGE + 1000}, [1, 2]), ({"limit": 3}, [1, 2, 3])):
        short = dataclasses.replace(query, **limits)
        found, more = await store.read(lambda tx, q=short: tx.inbox("sesn_1", q))
        assert ([one.position for one in found], more) == (expected, True)
