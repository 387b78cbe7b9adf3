"""What becomes of calls while the journal is away."""

from __future__ import annotations

import pytest

from chassis.errors import DroverError, Reason
from drover.hands.v1.hands_service_pb2 import (
    VERDICT_OUTCOME_UNKNOWN,
)
from services.hands.domain.recipe import Recipe
from tests.doubles.hands_waiting import eventually
from tests.unit.hands.conftest import World
from tests.unit.hands.test_executor import ask, next_call, settled, text


class Outage:
    """Makes a method fail so often, or for as long as it is told to."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, journal: object, name: str) -> None:
        self.calls = 0
        self.reason: Reason | None = Reason.UNAVAILABLE
        works = getattr(journal, name)

        async def method(*arguments: object) -> None:
            self.calls += 1
            if self.reason is not None:
                raise DroverError(self.reason, "the journal is away", retry_after=0.01)
            await works(*arguments)

        monkeypatch.setattr(journal, name, method)


@pytest.mark.parametrize("reason", [Reason.UNAVAILABLE, Reason.RESOURCE_EXHAUSTED])
async def test_result_is_recorded_and_answered_once_the_journal_is_back(
    world: World, monkeypatch: pytest.MonkeyPatch, reason: Reason
) -> None:
    asked = ask(world)
    call = await next_call(world)
    outage = Outage(monkeypatch, world.journal, "finish")
    outage.reason = reason
    world.backend.launched[0].answer(call, "kept")
    await eventually(lambda: outage.calls >= 3)
    again = ask(world)
    await settled()
    assert not asked.done()
    outage.reason = None
    assert text(await asked) == text(await again) == "kept"
    assert (await ask(world)).replayed
    assert world.backend.launched[0].frames.empty()


async def test_call_that_was_refused_can_be_asked_again_once_the_journal_is_back(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def full(_session_id: str, _recipe: Recipe) -> None:
        raise DroverError(Reason.RESOURCE_EXHAUSTED, "no room")

    outage = Outage(monkeypatch, world.journal, "forget")
    with monkeypatch.context() as patched:
        patched.setattr(world.pool, "prepare", full)
        asked = ask(world)
        await eventually(lambda: outage.calls >= 2)
    outage.reason = None
    with pytest.raises(DroverError, match="no room"):
        await asked
    again = ask(world)
    call = await next_call(world)
    world.backend.launched[0].answer(call, "ran")
    assert text(await again) == "ran"


@pytest.mark.parametrize("drained", [True, False])
async def test_result_that_cannot_be_recorded_leaves_the_outcome_unknown(
    world: World, monkeypatch: pytest.MonkeyPatch, drained: bool
) -> None:
    asked = ask(world)
    call = await next_call(world)
    with monkeypatch.context() as patched:
        outage = Outage(patched, world.journal, "finish")
        outage.reason = Reason.UNAVAILABLE if drained else Reason.INTERNAL
        world.backend.launched[0].answer(call, "lost")
        if drained:
            await eventually(lambda: outage.calls >= 2)
            await world.executor.drain(0)
        with pytest.raises(DroverError, match="away"):
            await asked
    await world.restart()
    assert (await ask(world)).verdict == VERDICT_OUTCOME_UNKNOWN
