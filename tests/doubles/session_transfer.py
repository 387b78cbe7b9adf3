"""Exports, imports and forks over stores in memory, record by record."""

from __future__ import annotations

from drover.session.v1 import transfer_pb2
from services.session.domain import exporting, fork, importing
from services.session.domain.lifecycle import Snapshot
from tests.doubles.session_copies import MemoryCopyStore
from tests.doubles.session_world import WORKSPACE


def exported(store, ref):
    """The records of a session, as they leave."""
    export = store.run(lambda tx: exporting.begin(tx, ref), keep=False)
    records = [transfer_pb2.SessionRecord(session=export.snapshot)]
    while export.next is not None:
        page, export = store.run(
            lambda tx, before=export: exporting.advance(tx, ref, before), keep=False
        )
        records += page
    return [*records, exporting.end(export)]


async def imported(store, records, workspace_id=WORKSPACE):
    """Takes records in, one a step; answers the state that is shown. Raises the refusal."""
    steps = MemoryCopyStore(store)
    first, *rest = records

    def begin(tx):
        begun = importing.begin(first.session, workspace_id, tx.now())
        tx.begin(begun.state, begun.details, begun.threads)
        return begun

    done = await steps.step(begin)
    for record in rest:
        if record.HasField("end"):
            state = importing.finish(done, record.end)
            await steps.step(lambda tx, state=state: tx.publish(state))
            return state
        take, event = importing.add, record.event
        if record.HasField("waiting"):
            take, event = importing.wait, record.waiting
        done = await steps.step(lambda tx, t=take, d=done, e=event: t(tx, d, [e]))
    return None


async def forked(world, event_id=None):
    """A fork of the world's session: the session as it is answered."""
    steps = MemoryCopyStore(world.store)
    planned = world.store.run(lambda tx: fork.plan(tx, world.ref, event_id, world.ids), keep=False)
    await steps.step(lambda tx: tx.begin(planned.state, planned.details, planned.threads))
    progress = fork.Progress(0)
    while progress.state is None:
        progress = await steps.step(
            lambda tx, at=progress.at: fork.advance(tx, planned, at, world.ids)
        )
    return Snapshot(progress.state, planned.details, planned.state.created_at)
