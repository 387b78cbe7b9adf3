from __future__ import annotations

import pytest

from identity.leaving import announced


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
