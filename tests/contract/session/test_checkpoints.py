"""What a store of checkpoints keeps to, over every store of sessions."""

from __future__ import annotations

import dataclasses

import pytest

from chassis.errors import DroverError, Reason
from services.session.domain import checkpoints as domain
from services.session.domain.checkpoints import Checkpoint
from services.session.domain.session import SessionRef, Status
from services.session.store.checkpoints import SqlCheckpointStore
from tests.doubles.session_checkpoints import MemoryCheckpointStore
from tests.doubles.session_rows import REF, create, state
from tests.doubles.session_store import MemoryStore

STANDARD, OTHER = ("standard", "1"), ("standard", "2")
FORMATS = frozenset({STANDARD})
ELSEWHERE = SessionRef("wrkspc_other", REF.session_id)


@pytest.fixture
def checkpoints(store):
    """Checkpoints of the store's sessions."""
    if isinstance(store, MemoryStore):
        return MemoryCheckpointStore(store)
    return SqlCheckpointStore(store._database)


def folded(seq=10, data=b"\0folded\xff", kept_as=STANDARD):
    return Checkpoint(kept_as, seq, data)


async def held(store, **fields):
    return await create(store, state(head_seq=20, generation=3, **fields))


async def refusal(saving):
    with pytest.raises(DroverError) as caught:
        await saving
    return caught.value.reason


async def test_checkpoint_is_answered_as_it_was_given(store, checkpoints):
    await held(store)
    given = folded(data=bytes(range(256)) * 5000)
    await checkpoints.save(REF, 3, given)
    assert await checkpoints.load(REF, {OTHER, STANDARD}) == given


async def test_session_without_one_has_none(store, checkpoints):
    await held(store)
    assert await checkpoints.load(REF, FORMATS) is None


async def test_format_that_nobody_asks_for_is_not_answered(store, checkpoints):
    await held(store)
    await checkpoints.save(REF, 3, folded(kept_as=OTHER))
    assert await checkpoints.load(REF, FORMATS) is None
    assert await checkpoints.load(REF, {("other", "2")}) is None


async def test_next_one_takes_the_place_of_the_last_in_whatever_format(store, checkpoints):
    await held(store)
    await checkpoints.save(REF, 3, folded(seq=10, kept_as=OTHER))
    await checkpoints.save(REF, 3, folded(seq=20))
    assert (await checkpoints.load(REF, {OTHER, STANDARD})) == folded(seq=20)


async def test_each_session_has_its_own(store, checkpoints):
    await held(store)
    await create(store, state("sesn_2", head_seq=20, generation=3))
    other = SessionRef(REF.workspace_id, "sesn_2")
    await checkpoints.save(REF, 3, folded(data=b"one"))
    await checkpoints.save(other, 3, folded(data=b"other"))
    assert (await checkpoints.load(REF, FORMATS)).data == b"one"
    assert (await checkpoints.load(other, FORMATS)).data == b"other"


@pytest.mark.parametrize("generation", [2, 4])
async def test_only_whoever_has_or_had_the_last_lease_may_keep_one(store, checkpoints, generation):
    await held(store)
    assert await refusal(checkpoints.save(REF, generation, folded())) is Reason.LEASE_LOST
    assert await checkpoints.load(REF, FORMATS) is None


async def test_position_beyond_the_log_is_refused(store, checkpoints):
    await held(store)
    await checkpoints.save(REF, 3, folded(seq=20))
    assert await refusal(checkpoints.save(REF, 3, folded(seq=21))) is Reason.INVALID_ARGUMENT


@pytest.mark.parametrize("size", [0, domain.MAX_BYTES + 1])
async def test_size_is_bounded(store, checkpoints, size):
    await held(store)
    saving = checkpoints.save(REF, 3, folded(data=bytes(size)))
    assert await refusal(saving) is Reason.INVALID_ARGUMENT


async def test_largest_one_is_kept(store, checkpoints):
    await held(store)
    await checkpoints.save(REF, 3, folded(data=bytes(domain.MAX_BYTES)))
    assert len((await checkpoints.load(REF, FORMATS)).data) == domain.MAX_BYTES


async def test_session_at_its_end_keeps_none(store, checkpoints):
    one = await held(store)
    ended = dataclasses.replace(one.activity, status=Status.TERMINATED)
    await store.write(lambda tx: tx.save(dataclasses.replace(one, activity=ended)))
    assert await refusal(checkpoints.save(REF, 3, folded())) is Reason.ARCHIVED


async def test_it_goes_with_its_session(store, checkpoints):
    await held(store)
    await checkpoints.save(REF, 3, folded())
    await store.write(lambda tx: tx.remove(REF.session_id))
    assert await checkpoints.load(REF, FORMATS) is None
    assert await refusal(checkpoints.save(REF, 3, folded())) is Reason.NOT_FOUND


async def test_it_is_discarded_alone(store, checkpoints):
    await held(store)
    await checkpoints.save(REF, 3, folded())
    await checkpoints.discard(REF)
    assert await checkpoints.load(REF, FORMATS) is None
    assert await store.read(lambda tx: tx.state(REF)) is not None
    await checkpoints.discard(REF)


async def test_another_workspace_sees_keeps_and_discards_nothing(store, checkpoints):
    await held(store)
    assert await refusal(checkpoints.save(ELSEWHERE, 3, folded())) is Reason.NOT_FOUND
    await checkpoints.save(REF, 3, folded())
    assert await checkpoints.load(ELSEWHERE, FORMATS) is None
    await checkpoints.discard(ELSEWHERE)
    assert await checkpoints.load(REF, FORMATS) == folded()
