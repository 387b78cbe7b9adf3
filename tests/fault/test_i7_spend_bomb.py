"""I7: an agent that loops for cost stops before the next request at the cap, whoever dies."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from anthropic import Anthropic

from services.brain.loop.sync_points import Point
from tests.doubles.messages_api import Reply, Request, ToolUse, Usage, tools
from tests.doubles.soak import limit, share
from tests.e2e.driving import history, new_session, send
from tests.e2e.stack import Stack, running_stack

CENT = Usage(input_tokens=0, output_tokens=500)
"""What Opus 5.5 takes a cent for."""

ASKED = (Point.FIRST_MODEL_EVENT, Point.RESPONSE_COMPLETE)
"""Where a brain takes a request with it that the model has seen."""
LOSING = (*ASKED, Point.BEFORE_REQUEST)
"""Where a brain takes the request with it that it has announced, if that was kept already."""
HARMLESS = (Point.RESPONSE_DURABLE, Point.TOOLS_SENT, Point.TOOL_FINISHED)
DEADLY = LOSING + HARMLESS
MOST_LOST = 2
"""Requests that are lost in a row: with five the turn would be given up."""


class Killing:
    """A model that calls one more tool for ever, and has every brain that asks it die somewhere."""

    def __init__(self, points: Path, seed: int) -> None:
        self._points = points
        self._chance = random.Random(seed)  # noqa: S311
        self._losses = 0
        self.asked_in_vain = 0
        """Requests that were made and that a brain was told to take with it."""

    def armed(self) -> set[str]:
        """Where the next brains will die, on the way to the cap."""
        return {path.stem for path in self._points.glob("*.kill")} & set(DEADLY)

    def __call__(self, _request: Request) -> Reply:
        if not self.armed():
            point = self._chance.choice(DEADLY if self._losses < MOST_LOST else HARMLESS)
            self._losses = self._losses + 1 if point in LOSING else 0
            self.asked_in_vain += point in ASKED
            (self._points / f"{point}.kill").touch()
        return tools(ToolUse("bash", {"command": "true"}), usage=CENT)


def budget(cents: int) -> dict[str, Any]:
    return {"type": "limit", "max_list_cost": {"amount": str(cents), "currency": "USD"}}


@dataclass
class Bomb:
    """A stack whose brains can be told where to die, and a model that never stops."""

    stack: Stack
    points: Path

    def lose_one(self, client: Anthropic, session_id: str) -> None:
        """Kills the brain that is at `first_model_event`, once its request is in the log."""
        pause = self.points / f"{Point.FIRST_MODEL_EVENT}.pause"
        self.stack.wait_for(pause.with_suffix(".reached").exists, "a request")

        def announced() -> bool:
            kinds = [event.type for event in history(client, session_id)]
            return "span.model_request_start" in kinds

        self.stack.wait_for(announced, "the request to be kept")
        self.stack.kill(self.stack.holder(session_id))
        pause.unlink()

    def until_at_budget(self, client: Anthropic, session_id: str, stops: int) -> list[Any]:
        """The log once the session has stopped at its budget so many times."""
        log: list[Any] = []

        def stopped() -> bool:
            log[:] = history(client, session_id)
            reasons = [e.stop_reason.type for e in log if e.type == "session.status_idle"]
            assert set(reasons) <= {"budget_reached"}
            status = client.beta.sessions.retrieve(session_id).status
            return len(reasons) == stops and status == "idle"

        self.stack.wait_for(stopped, "the budget to be reached", 90)
        return log


@pytest.fixture(scope="module")
def bomb(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bomb]:
    data = tmp_path_factory.mktemp("bomb")
    points = data / "points"
    points.mkdir()
    with running_stack(data, DROVER_SYNC_POINTS=str(points)) as stack:
        yield Bomb(stack, points)


def answered(log: list[Any]) -> int:
    """Requests that were answered, each for a cent."""
    ends = [event for event in log if event.type == "span.model_request_end"]
    return sum(not event.is_error for event in ends)


def lost(log: list[Any]) -> int:
    """Requests that a brain took with it."""
    ends = [event for event in log if event.type == "span.model_request_end"]
    return sum(bool(event.is_error) for event in ends)


@pytest.mark.timeout(limit(120))
@pytest.mark.parametrize("seed", range(max(1, round(share(4)))))
def test_agent_that_loops_for_cost_makes_no_request_at_the_cap_whoever_dies(
    bomb: Bomb, seed: int
) -> None:
    stack, cap = bomb.stack, 8
    stack.model.reset()
    killing = Killing(bomb.points, seed)
    stack.model.default(killing)
    with stack.client() as client:
        session = new_session(client, budget=budget(cap))
        (bomb.points / f"{Point.BEFORE_IDLE}.kill").touch()
        (bomb.points / f"{Point.FIRST_MODEL_EVENT}.pause").touch()
        send(client, session.id, "spend all you can")
        bomb.lose_one(client, session.id)
        log = bomb.until_at_budget(client, session.id, 1)
        for armed in bomb.points.iterdir():
            armed.unlink(missing_ok=True)
        stack.model.default(lambda _: tools(ToolUse("bash", {"command": "true"}), usage=CENT))
        assert answered(log) == cap
        assert lost(log) >= 1
        assert log[-2].usage.list_cost.amount == str(cap)
        made = len(stack.model.requests)
        assert made <= cap + 1 + killing.asked_in_vain
        # A brain that wakes up at the cap asks nothing either.
        for brain in ("brain-1", "brain-2"):
            stack.wait_for(lambda: len(stack.pids("brain-1", "brain-2")) > 1, "both brains")
            stack.kill(brain)
        client.beta.sessions.update(session.id, budget=budget(cap + 2))
        log = bomb.until_at_budget(client, session.id, 2)
        assert answered(log) == cap + 2
        assert len(stack.model.requests) == made + 2
        assert client.beta.sessions.retrieve(session.id).usage.list_cost.amount == str(cap + 2)


def test_one_request_may_pass_the_cap_and_none_follows_it(bomb: Bomb) -> None:
    bomb.stack.model.reset()
    dear = Usage(input_tokens=0, output_tokens=50_000)
    bomb.stack.model.default(
        lambda _: tools(ToolUse("bash", {"command": "true"}), usage=dear),
    )
    with bomb.stack.client() as client:
        session = new_session(client, budget=budget(1))
        send(client, session.id, "spend all you can")
        log = bomb.until_at_budget(client, session.id, 1)
    assert answered(log) == len(bomb.stack.model.requests) == 1
    assert log[-2].usage.list_cost.amount == "100"
