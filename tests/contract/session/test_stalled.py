"""Sessions that do not get on are found in every store, with what tells why."""

from __future__ import annotations

import dataclasses

from services.session.domain.event import CallKind
from services.session.domain.ports import Call, CallState, Stalled
from services.session.domain.session import MICROS, Activity, Status
from tests.doubles.session_events import said
from tests.doubles.session_rows import REF, create, stamped, state

MINUTE = 60 * MICROS
RUNNING = Activity(Status.RUNNING, running_since=5)


async def found(store, *, quiet=MINUTE, limit=10):
    return await store.read(lambda tx: tx.stalled(tx.now() - quiet, limit))


async def save(store, one, **changes):
    changed = dataclasses.replace(one, **changes)
    await store.write(lambda tx: tx.save(changed))
    return changed


async def test_one_that_works_is_found_with_its_last_event_and_its_brain(store):
    one = await create(store)
    await store.write(lambda tx: tx.append(one.id, [stamped(1), stamped(2, said("hm", "e2"))]))
    later = await store.read(lambda tx: tx.now() + MINUTE)
    await save(
        store,
        one,
        activity=RUNNING,
        needs_brain=True,
        head_seq=2,
        head_at=7,
        generation=3,
        holder="brain",
        lease_expires_at=later,
    )
    [stalled] = await found(store)
    assert stalled == Stalled(
        REF,
        since=7,
        head_seq=2,
        last_type="agent.message",
        held=True,
        holder="brain",
        generation=3,
        calling=False,
    )


async def test_open_call_is_told_and_a_closed_one_is_not(store):
    one = await create(store)
    await save(store, one, activity=RUNNING, needs_brain=True)
    call = Call("c1", CallKind.ALLOW)
    await store.write(lambda tx: tx.open_calls(one.id, [call]))
    assert [stalled.calling for stalled in await found(store)] == [True]
    closed = dataclasses.replace(call, state=CallState.CLOSED)
    await store.write(lambda tx: tx.save_calls(one.id, [closed]))
    assert [stalled.calling for stalled in await found(store)] == [False]


async def test_one_without_an_event_counts_from_when_it_began_to_run(store):
    one = await create(store)
    await save(store, one, activity=RUNNING, needs_brain=True)
    [stalled] = await found(store)
    assert (stalled.since, stalled.last_type, stalled.held) == (5, "", False)


async def test_one_that_does_not_run_yet_has_no_beginning(store):
    one = await create(store)
    await save(store, one, needs_brain=True, head_at=7, lease_expires_at=1)
    [stalled] = await found(store)
    assert (stalled.since, stalled.held) == (None, False)


async def test_one_that_gets_on_or_needs_no_brain_is_not_found(store):
    one = await create(store)
    assert await found(store) == []
    now = await store.read(lambda tx: tx.now())
    await save(store, one, activity=RUNNING, needs_brain=True, head_at=now)
    assert await found(store) == []


async def test_no_more_are_found_than_are_asked_for_the_longest_first(store):
    for number in (3, 1, 2):
        await create(store, state(f"sesn_{number}", needs_brain=True, updated_at=number))
    first = [stalled.ref.session_id for stalled in await found(store, limit=2)]
    assert first == ["sesn_1", "sesn_2"]


async def test_those_of_one_workspace_are_found_alone(store):
    await create(store, state("sesn_theirs", workspace_id="wrkspc_other", needs_brain=True))
    await create(store, state("sesn_ours", needs_brain=True))
    ours = await store.read(lambda tx: tx.stalled(tx.now(), 10, REF.workspace_id))
    assert [stalled.ref.session_id for stalled in ours] == ["sesn_ours"]
    assert len(await found(store, quiet=0)) == 2
