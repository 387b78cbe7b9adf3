"""What a brain that knows nothing but the log makes of it, against what the brains have done."""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from typing import TYPE_CHECKING, Any

from chassis.context import DEFAULT_WORKSPACE
from services.brain.domain.decision import GoIdle, Mine, Release, Stop
from services.session.domain import budget, inbox, lifecycle, view
from services.session.domain.session import SessionRef

if TYPE_CHECKING:
    from collections.abc import Sequence

    from drover.event.v1.event_pb2 import Event
    from drover.session.v1.session_pb2 import Session
    from services.brain.domain.state import State
    from tests.simulation.client import Told
    from tests.simulation.model import Asked
    from tests.simulation.work import Work
    from tests.simulation.world import World

# What depends on the folding brain's clock, or is made from the rest when it is needed.
_OWN = frozenset({"agent", "permissions", "usage", "prefix", "transcript", "seq"})


def born(world: World, told: Told) -> Session:
    """The session as it was before anything was changed about it."""
    ref = SessionRef(DEFAULT_WORKSPACE, told.session_id)
    snapshot = world.disk.tables.run(lambda tx: lifecycle.read(tx, ref), keep=False)
    session = view.session(snapshot)
    session.agent.CopyFrom(world.agents.agent)
    session.ClearField("budget")
    if told.budget:
        session.budget.CopyFrom(budget.message(told.budget))
    return session


def faults_of(world: World, told: Told, log: Sequence[Event]) -> list[str]:
    """Where bytes that a model was sent, or a state that a brain kept, are not the log's."""
    harness = world.harness
    session_id = told.session_id
    state = harness.begin(born(world, told))
    kept = {
        cached.state.seq: (name, cached.state)
        for name, process in world.processes.items()
        if (states := getattr(process, "cache", None)) is not None
        and (cached := states._states.get(session_id)) is not None
    }
    faults: list[str] = []
    due: dict[Work, list[bytes]] = {}
    last: Work | None = None
    for event in log:
        last = world.authors.of.get(event.id, last)
        harness.project(state, event, 0.0)
        state.seq = event.seq
        if state.request == event.id and last is not None:
            due.setdefault(last, []).append(harness.request(state).body)
        if event.seq in kept:
            name, warm = kept[event.seq]
            faults += [f"{name}: {one}" for one in _differences(state, warm)]
    faults += _left_undone(world, state)
    return faults + _unexplained(world.model.asked, session_id, due, last)


def _left_undone(world: World, state: State) -> list[str]:
    """Whether a brain that is woken now would find something to do."""
    kept = world.disk.tables.sessions[state.session_id].state
    decision = world.harness.decide(state, inbox.summary(kept.waiting), Mine())
    if isinstance(decision, Release | Stop | GoIdle):
        return []
    return [f"at rest, and yet there is something to do: {type(decision).__name__}"]


def _differences(cold: State, warm: State) -> list[str]:
    pairs = _plain(cold), _plain(warm)
    return [
        f"{key} is {pairs[1][key]!r} where the log gives {pairs[0][key]!r}"
        for key in pairs[0]
        if pairs[0][key] != pairs[1][key]
    ]


def _plain(state: State) -> dict[str, Any]:
    plain = {
        field.name: getattr(state, field.name)
        for field in dataclasses.fields(state)
        if field.name not in _OWN
    }
    plain["messages"] = state.transcript.render(b"", b"", breakpoints=0)
    usage = dataclasses.asdict(state.usage)
    plain["tokens"] = {key: value for key, value in usage.items() if key not in _TIMES}
    return plain


_TIMES = frozenset({"active_seconds", "running_since", "latest"})


def _unexplained(
    asked: Sequence[Asked], session_id: str, due: dict[Work, list[bytes]], last: Work | None
) -> list[str]:
    """Requests that the log does not lead to.

    A brain works ahead of its acknowledgements: what it asked last may have been fenced off, with
    the start that was to tell of it. Not so for the one that wrote last.
    """
    faults, sent = [], defaultdict(list)
    for one in asked:
        if one.work.session_id == session_id and not one.beside:
            sent[one.work].append(one.body)
    for work, bodies in sent.items():
        expected = iter(due.get(work, ()))
        missing = [at for at, body in enumerate(bodies) if body not in expected]
        if missing and work == last:
            faults.append(f"{work} asked the model what the log does not lead to: {missing}")
    return faults
