"""The state as a checkpoint: as good as the log it was folded from, or refused."""

from __future__ import annotations

import hashlib
import re
import sys
import types
from dataclasses import fields, is_dataclass
from enum import Enum
from typing import Any

import pytest
from google.protobuf.message import Message
from hypothesis import given, settings
from hypothesis import strategies as st

from drover.event.v1.event_pb2 import Event
from services.brain.domain import checkpoint
from services.brain.domain.checkpoint import CLASSES, CheckpointError, Checkpoints
from services.brain.domain.codec import shape_of
from services.brain.domain.decision import Mine
from services.brain.domain.state import State
from tests.unit.brain.logs import HARNESS, World, fold

SEEDS = st.integers(min_value=0, max_value=2**32)
CHECKPOINTS = Checkpoints()
FOLD = HARNESS.fold


def grown(seed: int, steps: int) -> tuple[World, list[Event]]:
    world = World(seed)
    for _ in range(steps):
        world.step()
    log = [Event.FromString(event.SerializeToString()) for event in world.log]
    return world, log


def written(state: State) -> bytes:
    return CHECKPOINTS.write(state, FOLD)


def through(state: State) -> State:
    return CHECKPOINTS.read(written(state), FOLD, state.session_id, state.seq)


@settings(max_examples=40, deadline=None)
@given(seed=SEEDS, steps=st.integers(0, 80))
def test_checkpoint_at_any_cut_and_the_rest_of_the_log_give_what_the_whole_log_gives(
    seed: int, steps: int
) -> None:
    world, log = grown(seed, steps)
    whole = fold(world.session, log)
    state = HARNESS.begin(world.session)
    for event in [*log, None]:
        restored = through(state)
        assert written(restored) == written(state)
        assert HARNESS.decide(restored, world.waiting, Mine()) == HARNESS.decide(
            state, world.waiting, Mine()
        )
        rest = log[state.seq :]
        if seed % 4 == 0:  # looking at a state must not change it
            HARNESS.request(restored)
        fold(world.session, rest, restored)
        restored.seq = whole.seq
        assert written(restored) == written(whole)
        assert HARNESS.request(restored) == HARNESS.request(whole)
        if event is not None:
            HARNESS.project(state, event, 0.0)
            state.seq += 1


@settings(max_examples=60, deadline=None)
@given(seed=SEEDS, steps=st.integers(0, 120))
def test_living_brain_leaves_what_folding_the_log_gives(seed: int, steps: int) -> None:
    world, log = grown(seed, steps)
    HARNESS.request(world.state)
    assert written(world.state) == written(fold(world.session, log))


def example() -> State:
    world, _ = grown(7, 100)
    world.state.seq = len(world.log)
    return world.state


def test_what_is_restored_shares_nothing_with_what_was_kept() -> None:
    state = example()
    kept = written(state)
    restored = CHECKPOINTS.read(kept, FOLD, state.session_id, state.seq)
    restored.transcript.add("user", b'{"type":"text","text":"more"}')
    restored.calls.clear()
    assert written(state) == kept


@settings(max_examples=200, deadline=None)
@given(data=st.data())
def test_damaged_one_is_refused(data: st.DataObject) -> None:
    state = example()
    kept = bytearray(written(state))
    at = data.draw(st.integers(0, len(kept) - 1))
    if data.draw(st.booleans()):
        del kept[at:]
    else:
        kept[at] ^= data.draw(st.integers(1, 255))
    with pytest.raises(CheckpointError):
        CHECKPOINTS.read(bytes(kept), FOLD, state.session_id, state.seq)


@pytest.mark.parametrize(
    ("session_id", "seq", "fold"),
    [("sesn_2", 0, FOLD), ("sesn_1", 1, FOLD), ("sesn_1", 0, "standard-0")],
)
def test_one_of_another_session_position_or_fold_is_refused(
    session_id: str, seq: int, fold: str
) -> None:
    state = example()
    state.seq = 0
    with pytest.raises(CheckpointError):
        CHECKPOINTS.read(written(state), fold, session_id, seq)


def test_one_that_is_named_for_a_session_and_holds_another_is_refused() -> None:
    state = example()
    codec = CHECKPOINTS._codec
    named = (CHECKPOINTS.version(FOLD), "sesn_2", state.seq, state)
    body = b"".join(codec.encode(named))
    digest = hashlib.blake2b(body, digest_size=16).digest()
    with pytest.raises(CheckpointError, match="another session"):
        CHECKPOINTS.read(checkpoint._MAGIC + digest + body, FOLD, "sesn_2", state.seq)


@pytest.mark.parametrize("value", [None, [], (1, 2, 3), ("a", "b", 1, "no state")])
def test_one_that_holds_something_else_is_refused(value: Any) -> None:
    body = b"".join(CHECKPOINTS._codec.encode(value))
    digest = hashlib.blake2b(body, digest_size=16).digest()
    with pytest.raises(CheckpointError):
        CHECKPOINTS.read(checkpoint._MAGIC + digest + body, FOLD, "sesn_1", 1)


def test_version_changes_with_the_classes_and_with_the_fold() -> None:
    fewer = Checkpoints(CLASSES[:-1])
    assert fewer.version(FOLD) != CHECKPOINTS.version(FOLD) != CHECKPOINTS.version("standard-0")
    assert Checkpoints().version(FOLD) == CHECKPOINTS.version(FOLD)


@pytest.mark.parametrize("cls", CLASSES, ids=lambda cls: cls.__name__)
def test_every_class_that_a_state_may_hold_is_named(cls: type[Any]) -> None:
    """A class that a state's fields speak of belongs into `checkpoint.CLASSES`."""
    if issubclass(cls, Enum):
        return
    module = vars(sys.modules[cls.__module__])
    lines = shape_of(cls)[1:] if is_dataclass(cls) else shape_of(cls)
    for line in lines:
        for name in re.findall(r"(?<![\w.'\"])[A-Za-z_][\w.]*", line.partition(":")[2]):
            found = named(name, module)
            plain = found in (int, float, str, bytes, bytearray, bool, None, list, tuple, dict)
            known = plain or found in CLASSES or not isinstance(found, type)
            assert known or issubclass(found, Message), f"{cls.__name__} holds {name}: {line}"


def named(name: str, module: dict[str, Any]) -> Any:
    """What an annotation's name stands for, also where it is imported for type checkers only."""
    if name == "None":
        return None
    first, *more = name.split(".")
    found: Any = module.get(first, getattr(types, first, None) or __builtins__.get(first))
    for one in more:
        found = getattr(found, one)
    if found is not None:
        return found
    for loaded, other in sorted(sys.modules.items()):
        if loaded.startswith(("services.brain.domain.", "drover.")) and hasattr(other, name):
            return getattr(other, name)
    raise AssertionError(f"what is {name}?")


def test_fields_are_all_written_but_for_those_that_are_made_again() -> None:
    derived = [one.name for one in fields(State) if one.metadata.get("derived")]
    assert derived == ["prefix"]
    state = example()
    HARNESS.request(state)
    assert state.prefix
    assert not through(state).prefix
