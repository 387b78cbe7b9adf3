"""Room is made soundly in sessions of chance, and in the same way for every brain."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from drover.event.v1.event_pb2 import Event
from services.brain.domain import projection
from services.brain.domain.checkpoint import Checkpoints
from services.brain.domain.decision import CallModel, Mine
from services.brain.domain.state import State, begin
from tests.doubles.api_history import check_history
from tests.unit.brain.logs import CRAMPED, World, fold

CHECKPOINTS = Checkpoints()
SEEDS = st.integers(min_value=0, max_value=2**32)
BULK = 180
"""Bytes of a result that takes more than the hundredth of the window of `CRAMPED`."""


def whole(world: World, upto: int) -> State:
    """The conversation without anything left out."""
    state = begin(world.session)
    for event in world.log[:upto]:
        projection.project(state, event, 0.0)
    return state


def grown(seed: int, steps: int) -> World:
    world = World(seed, CRAMPED)
    for _ in range(steps):
        world.step()
    return world


@settings(max_examples=100, deadline=None)
@given(seed=SEEDS, steps=st.integers(0, 250), data=st.data())
def test_same_log_gives_the_same_bytes_however_it_was_cut(
    seed: int, steps: int, data: st.DataObject
) -> None:
    world = grown(seed, steps)
    at = data.draw(st.integers(0, len(world.log)))
    cut = data.draw(st.integers(0, at))
    stored = [Event.FromString(event.SerializeToString()) for event in world.log[:at]]
    once = fold(world.session, stored, harness=CRAMPED)
    pieces = fold(world.session, stored[:cut], harness=CRAMPED)
    CRAMPED.request(pieces)  # looking at a state must not change it
    kept = CHECKPOINTS.write(pieces, "cramped")
    pieces = CHECKPOINTS.read(kept, "cramped", pieces.session_id, pieces.seq)
    pieces = fold(world.session, stored[cut:], pieces, harness=CRAMPED)
    assert CRAMPED.request(once) == CRAMPED.request(pieces)
    assert CRAMPED.decide(once, world.waiting, Mine()) == CRAMPED.decide(
        pieces, world.waiting, Mine()
    )
    again = fold(world.session, world.log, harness=CRAMPED)
    assert CRAMPED.request(again) == CRAMPED.request(world.state)
    assert again.context == world.state.context


@settings(max_examples=40, deadline=None)
@given(seed=SEEDS)
def test_every_request_is_sound_and_shows_the_open_turns_thinking_as_it_was(seed: int) -> None:
    world = World(seed, CRAMPED)
    # A refusal goes back behind an answer to what was cleared since.
    world.refuses = seed % 2 == 0
    for _ in range(250):
        mine = Mine(world.state.request, frozenset(world.running), world.rested)
        if world.state.request and world.state.request == world.request:
            sent = json.loads(CRAMPED.request(world.state).body)
            check_history(sent)
            decision = CRAMPED.decide(world.state, world.waiting, mine)
            if decision == CallModel() and not world.refuses:
                _check_newest(sent["messages"], whole(world, len(world.log)))
        world.step()


def _check_newest(sent: list[Any], state: State) -> None:
    """The open turn is there as it was, as far as it was not summarised."""
    everything = json.loads(state.transcript.render(b"[", b"]"))
    for number, (shown, was) in enumerate(zip(reversed(sent), reversed(everything), strict=False)):
        if shown is sent[0]:
            break
        if shown["role"] == "assistant":
            assert shown == was
            continue
        for block in (*shown["content"], *was["content"]):
            block.pop("cache_control", None)
        if number == 0:
            pairs = zip(shown["content"], was["content"], strict=True)
            assert all(seen == meant or _is_note_for_bulk(seen, meant) for seen, meant in pairs)
        if was["content"][-1]["type"] == "text":
            # Here the turn began. Behind results, their call still belongs to it.
            if number == 0 and was["content"][0]["type"] == "tool_result":
                assert sent[-2] == everything[-2]
            break


def _is_note_for_bulk(seen: Any, meant: Any) -> bool:
    """Whether it stands for a result that no window holds: where nothing else has helped, that is
    left out, answered or not."""
    if seen["type"] != "tool_result" or seen["tool_use_id"] != meant["tool_use_id"]:
        return False
    return "was cleared to make room" in json.dumps(seen) and len(json.dumps(meant)) > BULK


def test_random_sessions_do_clear_and_compact() -> None:
    compacted, cleared = 0, 0
    for seed in range(20):
        world = World(seed, CRAMPED)
        for _ in range(250):
            world.step()
            cleared += b"was cleared to make room" in CRAMPED.request(world.state).body
        compacted += any(event.HasField("agent_thread_context_compacted") for event in world.log)
    assert compacted > 5
    assert cleared > 3
