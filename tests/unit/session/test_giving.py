"""Copies that no session got: deleted at once, or once they cannot come any more."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace

import pytest

from chassis.errors import DroverError, Reason
from services.session.domain.file_ports import FORESEEN_MICROS
from services.session.domain.session import MICROS
from services.session.rpc.giving import giving
from tests.doubles.session_world import World


def refusal(reason):
    return DroverError(reason, "not copied")


def parts(world, told, failure=None):
    async def copy(_session_id, _copies):
        if failure is not None:
            raise failure

    files = SimpleNamespace(copy=copy)
    return SimpleNamespace(store=world.store, files=files, files_due=lambda: told.append(1))


@pytest.mark.parametrize(
    ("failure", "file_id", "at_once"),
    [
        (refusal(Reason.NOT_FOUND), "file_1", True),
        (refusal(Reason.UNAVAILABLE), "file_1", False),
        (asyncio.CancelledError(), "file_1", False),
        (refusal(Reason.UNAVAILABLE), "", True),
    ],
)
async def test_a_copy_that_may_still_come_is_deleted_behind_it(failure, file_id, at_once):
    world, told = World(), []
    with pytest.raises(type(failure)):
        async with giving(parts(world, told, failure), world.ref, ["a copy"], file_id=file_id):
            raise AssertionError
    due = world.store.run(lambda tx: tx.lease_file_releases(10, 0), keep=False)
    assert (bool(due), bool(told)) == (at_once, at_once)
    world.clock.move(FORESEEN_MICROS / MICROS)
    assert world.store.run(lambda tx: tx.lease_file_releases(10, 0), keep=False)


async def test_what_was_copied_and_not_given_is_deleted_at_once():
    world, told = World(), []
    with pytest.raises(LookupError):
        async with giving(parts(world, told), world.ref, ["a copy"], file_id="file_1"):
            raise LookupError
    assert told == [1]
    assert world.store.run(lambda tx: tx.lease_file_releases(10, 0), keep=False)
