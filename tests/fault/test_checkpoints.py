"""Brains that come anew to a long session, also where the checkpoint of it is damaged."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from typing import Any

import pytest
from anthropic import Anthropic

from services.brain.loop.checkpoints import LEAST_EVENTS
from tests.doubles.messages_api import echo
from tests.e2e.driving import new_session, run_turn
from tests.e2e.stack import Stack

EVENTS_A_TURN = 9
BRAINS = ("brain-1", "brain-2")


def kept(stack: Stack, session_id: str) -> tuple[int, bytes] | None:
    """The session's checkpoint in the database: its position and its bytes."""
    with closing(sqlite3.connect(stack.data / "session.db")) as database:
        found = database.execute(
            "SELECT seq, body FROM checkpoints WHERE session_id = ?", (session_id,)
        ).fetchone()
    return found and tuple(found)


def spoil(stack: Stack, session_id: str, body: bytes) -> None:
    """Writes something else into the checkpoint's row."""
    with closing(sqlite3.connect(stack.data / "session.db", timeout=10)) as database, database:
        database.execute("UPDATE checkpoints SET body = ? WHERE session_id = ?", (body, session_id))


def told(stack: Stack, service: str, event: str, session_id: str) -> list[dict[str, Any]]:
    """What a service's log says of a session."""
    lines = (stack.data / "logs" / f"{service}.log").read_text().splitlines()
    found = [json.loads(line) for line in lines if line.startswith("{")]
    return [one for one in found if one["event"] == event and one.get("session_id") == session_id]


def refused(stack: Stack, session_id: str) -> int:
    return sum(len(told(stack, brain, "checkpoint_refused", session_id)) for brain in BRAINS)


@pytest.fixture
def long_session(own_stack: Stack) -> str:
    """A session that has left a checkpoint, and brains that do not know it."""
    own_stack.model.default(echo)
    with own_stack.client() as client:
        session_id: str = new_session(client).id
        for number in range(LEAST_EVENTS // EVENTS_A_TURN + 1):
            run_turn(client, session_id, f"question {number}")
    own_stack.wait_for(lambda: kept(own_stack, session_id), "a checkpoint")
    forget(own_stack)
    return session_id


def forget(stack: Stack) -> None:
    """Has brains at work that have not seen anything yet."""
    for brain in BRAINS:
        stack.kill(brain)
    stack.wait_ready()


def ask(stack: Stack, client: Anthropic, session_id: str) -> int:
    """One more turn; answers how many messages the model was shown."""
    assert run_turn(client, session_id, "and now?")[-1].type == "session.status_idle"
    return len(stack.model.requests[-1].body["messages"])


def test_new_brain_begins_at_the_checkpoint_and_shows_the_model_everything(
    own_stack: Stack, long_session: str
) -> None:
    stack = own_stack
    seq, _ = kept(stack, long_session) or (0, b"")
    turns = LEAST_EVENTS // EVENTS_A_TURN + 1
    with stack.client() as client:
        assert ask(stack, client, long_session) == 2 * turns + 1
    [given] = told(stack, "session", "checkpoint_given", long_session)
    assert given["seq"] == seq
    assert given["head_seq"] - seq < EVENTS_A_TURN
    assert not refused(stack, long_session)


@pytest.mark.parametrize("damage", ["cut off", "of another session", "no checkpoint at all"])
def test_damaged_checkpoint_is_dropped_once_and_replaced(
    own_stack: Stack, long_session: str, damage: str
) -> None:
    stack = own_stack
    _, body = kept(stack, long_session) or (0, b"")
    turns = LEAST_EVENTS // EVENTS_A_TURN + 1
    match damage:
        case "cut off":
            spoilt = body[: len(body) // 2]
        case "of another session":
            spoilt = body.replace(long_session.encode(), long_session[:-1].encode() + b"_")
        case _:
            spoilt = b"garbage"
    assert spoilt != body
    spoil(stack, long_session, spoilt)
    with stack.client() as client:
        assert ask(stack, client, long_session) == 2 * turns + 1
        assert refused(stack, long_session) == 1
        stack.wait_for(lambda: (kept(stack, long_session) or ("", spoilt))[1] != spoilt, "another")
        forget(stack)
        assert ask(stack, client, long_session) == 2 * turns + 3
    assert refused(stack, long_session) == 1
    assert len(told(stack, "session", "checkpoint_given", long_session)) == 2
