"""What must hold of a run: at every commit, and of all that there is at its end."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from drover.event.v1.usage_pb2 import UsageSnapshot
from services.session.domain.session import Status, Stop
from services.session.domain.work import WorkState, needs_worker
from tests.simulation import replay
from tests.simulation.disk import parsed
from tests.simulation.grammar import Grammar

if TYPE_CHECKING:
    from collections.abc import Set as AbstractSet

    from drover.event.v1.event_pb2 import Event
    from tests.simulation.client import Client
    from tests.simulation.work import Work
    from tests.simulation.world import World

_ONCE = frozenset({"bash", "write", "edit"})
_WAITS_FOR_ANSWERS = frozenset({Stop.REQUIRES_ACTION, Stop.BUDGET_REACHED})


class Watcher:
    """Looks at every commit of the session service."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.faults: list[str] = []
        self._generation: dict[Work, int] = {}
        self._writer: dict[tuple[str, int], Work] = {}
        world.disk.tables.watchers.append(self)

    def __call__(self, before: Any, after: Any) -> None:
        live = (item for item in after.work.values() if item.state is not WorkState.STOPPED)
        working = {item.session.session_id for item in live}
        for session_id, kept in after.sessions.items():
            earlier = before.sessions.get(session_id)
            old = earlier.state if earlier is not None else None
            self._look(kept, old, 0 if earlier is None else len(earlier.log), working)

    def _fault(self, state: Any, text: str) -> None:
        at = self._world.loop.time()
        self.faults.append(f"{at:.4f} {state.id}: {text}")

    def _look(self, kept: Any, old: Any, known: int, working: AbstractSet[str]) -> None:
        state = kept.state
        if len(kept.log) < known:
            self._fault(state, f"the log of {known} events has {len(kept.log)}")
        stamp = parsed(kept.log[known - 1][1]).processed_at if known else None
        for _, body in kept.log[known:]:
            event = parsed(body)
            kind = event.WhichOneof("payload")
            self._world.trace.note(state.id[-6:], "log", event.seq, kind)
            if stamp is not None and event.processed_at.ToNanoseconds() < stamp.ToNanoseconds():
                self._fault(state, f"event {event.seq} was stamped before the one in front of it")
            stamp = event.processed_at
            self._wrote(state, old, event)
        if old is not None and state.generation < old.generation:
            self._fault(state, f"generation {old.generation} became {state.generation}")
        waiting, rests = state.waiting, state.activity.status is Status.IDLE
        urgent = waiting.interrupts or waiting.confirmations
        can_go_on = urgent or (waiting.messages and state.stop not in _WAITS_FOR_ANSWERS)
        if can_go_on and rests and not state.needs_brain:
            self._fault(state, "input waits, and nobody is woken for it")
        if state.id in working and state.ended:
            self._fault(state, "it is at its end, and its work goes on")
        elif state.id not in working and needs_worker(state):
            self._fault(state, "it needs a worker, and no work is queued for it")

    def _wrote(self, state: Any, old: Any, event: Event) -> None:
        """One generation writes at a time, and none after a newer one was opened."""
        work = self._world.authors.of.get(event.id)
        if work is None:
            return
        generation = state.generation
        first = self._writer.setdefault((state.id, generation), work)
        if first != work or self._generation.setdefault(work, generation) != generation:
            self._fault(state, f"event {event.seq} is {work}'s, in {first}'s lease {generation}")
        elif old is not None and old.lease_expires_at is None and state.lease_expires_at is None:
            self._fault(state, f"event {event.seq} is {work}'s, who holds no lease")


def at_rest(world: World) -> bool:
    """Whether nothing is left to be done in any session."""
    return all(
        not kept.state.needs_brain
        and kept.state.lease_expires_at is None
        and kept.state.activity.status in (Status.IDLE, Status.TERMINATED)
        for kept in world.disk.tables.sessions.values()
    )


def read_to_the_end(world: World, clients: list[Client]) -> bool:
    """Whether every client has seen all of its session's log."""
    sessions = world.disk.tables.sessions
    return all(
        client.told.session_id in sessions
        and len(client.told.seen) == len(sessions[client.told.session_id].log)
        for client in clients
    )


def at_the_end(world: World, clients: list[Client]) -> list[str]:
    """What is wrong once everything is at rest."""
    faults: list[str] = []
    effects = world.disk.effects
    for client in clients:
        session_id = client.told.session_id
        kept = world.disk.tables.sessions.get(session_id)
        if kept is None:
            faults.append(f"session {session_id} is gone")
            continue
        log = [parsed(body) for _, body in kept.log]
        grammar = Grammar(log, client.told.budget)
        world.counts.update(grammar.stops)
        found = list(grammar.faults)
        found += _promises(client, log, kept)
        found += _effects(grammar, effects, self_hosted=world.self_hosted)
        found += _usage(grammar, kept)
        found += replay.faults_of(world, client.told, log)
        faults += [f"{session_id}: {fault}" for fault in found]
    return faults


def _promises(client: Client, log: list[Event], kept: Any) -> list[str]:
    """P1 and P5: what was acknowledged is there once and in order, and was shown so."""
    told, faults = client.told, list(client.told.faults)
    place = {event.id: at for at, event in enumerate(log)}
    waiting = {entry.event.id for entry in kept.inbox if entry.taken_seq is None}
    if len(place) != len(log):
        twice = [one for one, count in Counter(event.id for event in log).items() if count > 1]
        faults.append(f"events are there twice: {twice}")
    for kind, ids in told.stored.items():
        lost = [one for one in ids if one not in place and one not in waiting]
        if lost:
            faults.append(f"{kind} was acknowledged and is not there: {lost}")
        order = [place[one] for one in ids if one in place]
        if kind in {"user_message", "user_interrupt"} and order != sorted(order):
            faults.append(f"{kind} was acknowledged in another order than the log's")
    if stored := [one for one in told.refused if one in place or one in waiting]:
        faults.append(f"refused, and there all the same: {stored}")
    if told.seen != [event.id for event in log]:
        faults.append(f"the reader saw {len(told.seen)} of {len(log)} events, or others")
    return faults


def _effects(grammar: Grammar, effects: Counter[str], *, self_hosted: bool) -> list[str]:
    """P3: a call has one result, ran once, and its result says so or that nothing is known.

    Where workers run the tools, the hands run none.
    """
    faults = []
    for call_id, call in grammar.calls.items():
        of_server = call.HasField("agent_mcp_tool_use")
        use = call.agent_mcp_tool_use if of_server else call.agent_tool_use
        if call.HasField("agent_custom_tool_use") or use.HasField("malformed_input"):
            continue
        mark = use.input.partition("mark-")[2].partition('"')[0]
        ran = effects[f"mark-{mark}"]
        most = 1 if of_server else 0 if self_hosted else 1 if use.name in _ONCE else 2
        if ran > most:
            faults.append(f"{use.name} call {call_id} ran {ran} times")
        result = grammar.results.get(call_id)
        if result is None:
            continue
        of_call = result.agent_mcp_tool_result if of_server else result.agent_tool_result
        said = "".join(block.text.text for block in of_call.content)
        if not ran and said.startswith("did "):
            faults.append(f"call {call_id} never ran, but its result says that it did")
        if ran and "nothing was run" in said.lower():
            faults.append(f"call {call_id} ran, but its result says that nothing did")
    return faults


def _usage(grammar: Grammar, kept: Any) -> list[str]:
    """The session's usage is the sum of its requests'."""
    usage = UsageSnapshot.FromString(kept.state.usage)
    if usage.input_tokens != grammar.used["input_tokens"]:
        told, used = usage.input_tokens, grammar.used["input_tokens"]
        return [f"the session's usage is {told} input tokens, its requests' {used}"]
    return []
