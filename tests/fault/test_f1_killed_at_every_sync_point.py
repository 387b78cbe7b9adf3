"""F1: kill -9 of the brain at each named point of a turn: another one finishes the same turn."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from services.brain.loop.sync_points import Point
from tests.e2e.stack import Stack, running_stack
from tests.fault.turns import SHAPES, Shape, Turn, closed_requests, same_but_for_kills

KILLS = [
    *[
        ("plain", point)
        for point in (
            Point.WOKEN,
            Point.LEASE_OPENED,
            Point.BEFORE_TAKE,
            Point.INPUT_TAKEN,
            Point.BEFORE_REQUEST,
            Point.FIRST_MODEL_EVENT,
            Point.RESPONSE_COMPLETE,
            Point.BEFORE_IDLE,
            Point.RELEASED,
        )
    ],
    ("one_tool", Point.RESPONSE_COMPLETE),
    ("one_tool", Point.RESPONSE_DURABLE),
    ("one_tool", Point.TOOLS_SENT),
    ("one_tool", Point.TOOL_FINISHED),
    ("parallel", Point.RESPONSE_DURABLE),
    ("parallel", Point.TOOLS_SENT),
    ("parallel", Point.TOOL_FINISHED),
    ("custom", Point.RESPONSE_COMPLETE),
    ("custom", Point.BEFORE_IDLE),
    ("confirmed", Point.LEASE_OPENED),
    ("confirmed", Point.CONTROL_TAKEN),
    ("confirmed", Point.TOOLS_SENT),
    ("judged", Point.JUDGED),
    ("judged", Point.TOOL_FINISHED),
    ("interrupted", Point.INTERRUPT_SEEN),
    ("interrupted", Point.BEFORE_IDLE),
    ("queued", Point.TOOL_FINISHED),
    ("queued", Point.BEFORE_TAKE),
    ("queued", Point.INPUT_TAKEN),
    ("retried", Point.BEFORE_RETRY),
    ("retried", Point.RESPONSE_COMPLETE),
    ("given_up", Point.BEFORE_GIVING_UP),
    ("compacted", Point.SUMMARISED),
    ("compacted", Point.BEFORE_REQUEST),
]


@dataclass
class Killer:
    """A stack whose brains die where they are told to, and the logs of turns that none died in."""

    stack: Stack
    points: Path
    uninterrupted: dict[str, list[Any]] = field(default_factory=dict)

    def drive(self, shape: Shape, *deaths: Point) -> tuple[Turn, list[Any]]:
        """Drives a turn in which a brain dies at each of these points; answers its log."""
        self.stack.model.reset()
        shape.script(self.stack)
        with self.stack.client() as client:
            turn = Turn(self.stack, client, lambda: self._arm(deaths))
            log = shape.drive(turn)
        self.stack.wait_for(lambda: not any(self.points.iterdir()), f"{deaths} to be reached")
        return turn, log

    def expected(self, shape: Shape) -> list[Any]:
        """The log of such a turn without a death."""
        if shape.name not in self.uninterrupted:
            self.uninterrupted[shape.name] = self.drive(shape)[1]
        return self.uninterrupted[shape.name]

    def _arm(self, deaths: tuple[Point, ...]) -> None:
        for point in deaths:
            (self.points / f"{point}.kill").touch()


@contextmanager
def killing(data: Path) -> Iterator[Killer]:
    points = data / "points"
    points.mkdir(parents=True)
    with running_stack(data, DROVER_SYNC_POINTS=str(points)) as stack:
        yield Killer(stack, points)


@pytest.fixture(scope="module")
def killer(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Killer]:
    """One stack for all points: what dies is started again."""
    with killing(tmp_path_factory.mktemp("points") / "data") as one:
        yield one


def test_every_point_is_killed_at() -> None:
    assert {point for _, point in KILLS} == set(Point)


@pytest.mark.parametrize(("name", "point"), KILLS)
def test_turn_is_finished_by_another_brain_as_if_none_had_died(
    killer: Killer, name: str, point: Point
) -> None:
    shape = SHAPES[name]
    expected = killer.expected(shape)
    turn, log = killer.drive(shape, point)
    closed = len(closed_requests(log)) - len(closed_requests(expected))
    # A judge's request is within the one that it is about: a brain can die in both.
    assert 0 <= closed <= (2 if point is Point.JUDGED else 1)
    assert same_but_for_kills(log, expected, closed), [event.type for event in log]
    ids = [event.id for event in log]
    assert len(set(ids)) == len(ids)
    assert [event_id for event_id in ids if event_id in turn.sent] == turn.sent
    calls = [event.id for event in log if event.type == "agent.tool_use"]
    results = [event.tool_use_id for event in log if event.type == "agent.tool_result"]
    assert sorted(results) == sorted(calls)
    marks = killer.stack.workspace(turn.session) / "marks"
    assert sorted(marks.read_text().split() if marks.exists() else ()) == sorted(shape.marks)
