"""What every store keeps of files to be deleted, and of the memory stores of sessions."""

from __future__ import annotations

import pytest

from chassis.errors import DroverError, Reason
from drover.session.v1 import session_pb2
from services.session.domain.ports import SessionQuery
from services.session.store import files_part
from services.session.store.copies import SqlCopyStore
from tests.doubles import session_files
from tests.doubles.session_copies import MemoryCopyStore
from tests.doubles.session_rows import REF, create, state
from tests.doubles.session_store import MemoryStore
from tests.doubles.session_world import WORKSPACE, other_workspace

HOUR = 3_600_000_000


@pytest.fixture
def at_once(monkeypatch):
    """Has what is foreseen come due at once."""
    for module in (files_part, session_files):
        monkeypatch.setattr(module, "FORESEEN_MICROS", 0)


async def due(store, lease=0):
    releases = await store.write(lambda tx: tx.lease_file_releases(10, lease))
    return [(one.ref, one.file_id) for one in releases]


async def test_a_deletion_is_due_until_it_is_done(store):
    await store.write(lambda tx: tx.release_files(REF, "file_1"))
    await store.write(lambda tx: tx.release_files(REF))
    assert await due(store) == [(REF, "file_1"), (REF, "")]
    first, second = await store.write(lambda tx: tx.lease_file_releases(10, 0))
    await store.write(lambda tx: tx.postpone_file_release(first.id, HOUR))
    assert await due(store) == [(REF, "")]
    await store.write(lambda tx: tx.postpone_file_release(first.id, 0))
    again = await store.write(lambda tx: tx.lease_file_releases(10, 0))
    assert {one.id: one.attempts for one in again} == {first.id: 2, second.id: 0}
    await store.write(lambda tx: tx.finish_file_releases([first.id, second.id]))
    assert await due(store) == []


async def test_a_leased_deletion_is_nobody_elses_until_its_lease_is_over(store):
    for number in range(3):
        await store.write(lambda tx, number=number: tx.release_files(REF, f"file_{number}"))
    first = await store.write(lambda tx: tx.lease_file_releases(2, HOUR))
    assert (len(first), len(await due(store))) == (2, 1)


async def test_what_is_foreseen_is_not_due_and_can_be_withdrawn_once(store):
    await store.write(lambda tx: [tx.foresee_files(REF), tx.foresee_files(REF, "file_1")])
    assert await due(store) == []
    for ref, file_id in ((REF, "file_2"), (other_workspace(REF), ""), (REF, "")):
        wrong = (ref, file_id) != (REF, "")
        assert await withdrawn(store, ref, file_id) is not wrong
    assert not await withdrawn(store, REF, "")
    assert await withdrawn(store, REF, "file_1")


@pytest.mark.usefixtures("at_once")
async def test_what_has_come_due_cannot_be_withdrawn_any_more(store):
    await store.write(lambda tx: tx.foresee_files(REF))
    assert await due(store, HOUR) == [(REF, "")]
    assert not await withdrawn(store, REF, "")


@pytest.mark.usefixtures("at_once")
async def test_a_withdrawal_goes_with_the_transaction_that_it_is_of(store):
    await store.write(lambda tx: tx.foresee_files(REF))

    def fail(tx):
        tx.keep_files(REF)
        msg = "no"
        raise LookupError(msg)

    with pytest.raises(LookupError):
        await store.write(fail)
    assert await due(store) == [(REF, "")]


async def test_what_is_foreseen_comes_due_when_that_is_hastened(store):
    await store.write(lambda tx: [tx.foresee_files(REF), tx.foresee_files(REF, "file_1")])
    assert await store.write(lambda tx: tx.hasten_files(REF))
    assert await due(store) == [(REF, "")]
    assert not await store.write(lambda tx: tx.hasten_files(REF))
    await store.write(lambda tx: tx.keep_files(REF, "file_1"))
    assert not await store.write(lambda tx: tx.hasten_files(REF, "file_1"))
    assert await due(store) == [(REF, "")]


async def test_a_step_of_a_copy_withdraws_too(store, clock):
    steps = copies_of(store, clock)
    await store.write(lambda tx: tx.foresee_files(REF))
    await steps.step(lambda tx: tx.keep_files(REF))
    with pytest.raises(DroverError) as caught:
        await steps.step(lambda tx: tx.keep_files(REF))
    assert caught.value.reason is Reason.UNAVAILABLE


async def test_sessions_are_listed_by_the_memory_stores_that_they_have(store, clock):
    await create(store)
    await create(store, state("sesn_2"), resources=[attached("m1"), attached("m2")])
    await create(store, state("sesn_3"), resources=[attached("m2")])
    for wanted, found in {"m1": {"sesn_2"}, "m2": {"sesn_2", "sesn_3"}, "m3": set()}.items():
        assert await listed(store, wanted) == found
    await store.write(lambda tx: tx.remove("sesn_2"))
    assert await listed(store, "m1") == set()
    large, copied = await store.read(lambda tx: tx.details("sesn_3")), state("sesn_4")

    def copy(tx):
        tx.begin(copied, large, [])
        tx.publish(copied)

    await copies_of(store, clock).step(copy)
    assert await listed(store, "m2") == {"sesn_3", "sesn_4"}


async def listed(store, memory_store_id):
    query = SessionQuery(WORKSPACE, limit=10, memory_store_id=memory_store_id)
    return {one.id for one, _ in await store.read(lambda tx: tx.sessions(query))}


async def withdrawn(store, ref, file_id):
    try:
        await store.write(lambda tx: tx.keep_files(ref, file_id))
    except DroverError as error:
        assert error.reason is Reason.UNAVAILABLE  # noqa: PT017
        return False
    return True


def attached(store_id):
    return session_pb2.SessionResource(
        memory_store=session_pb2.MemoryStoreResource(memory_store_id=store_id)
    )


def copies_of(store, clock):
    if isinstance(store, MemoryStore):
        return MemoryCopyStore(store)
    return SqlCopyStore(store._database, clock)
