from __future__ import annotations

import pytest

from identity.leaving import announced
from identity.settings import PeerSettings
from services.brain.settings import BrainSettings
from services.hands.settings import HandsSettings


class Recorder:
    def __init__(self) -> None:
        self.reports: list[bool] = []

    async def report(self, *, serving: bool) -> None:
        self.reports.append(serving)


async def test_health_says_no_before_anything_else_is_stopped() -> None:
    one, other = Recorder(), Recorder()
    async with announced(0, one, other):
        assert one.reports == []
    assert (one.reports, other.reports) == ([False], [False])


async def test_process_that_fails_does_not_wait() -> None:
    reporter = Recorder()
    with pytest.raises(RuntimeError):
        async with announced(3600, reporter):
            raise RuntimeError
    assert reporter.reports == []


@pytest.mark.parametrize(
    ("settings", "own"),
    [
        (PeerSettings, {}),
        (BrainSettings, {"brain_drain_seconds": 30.0}),
        (HandsSettings, {"hands_drain_seconds": 60.0}),
    ],
)
def test_process_may_take_all_the_time_that_it_was_given_to_stop(
    settings: type[PeerSettings], own: dict[str, float]
) -> None:
    given = settings(drain_seconds=5.0, **own)
    assert given.stop_seconds == 10 + 5 + sum(own.values())
