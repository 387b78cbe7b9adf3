"""Whose turn it is to start a sandbox."""

from __future__ import annotations

import asyncio

from services.hands.turns import Turns


class Crowd:
    """Those who want turns; `begun` has their names as they get theirs."""

    def __init__(self, at_once: int = 1) -> None:
        self.turns = Turns(at_once)
        self.begun: list[str] = []
        self._let_go: dict[str, asyncio.Event] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}

    async def come(self, *names: str) -> None:
        for name in names:
            self._let_go[name] = asyncio.Event()
            self._tasks[name] = asyncio.create_task(self._take(name))
        await settled()

    async def end(self, name: str) -> None:
        self._let_go[name].set()
        await self._tasks[name]
        await settled()

    async def cancel(self, *names: str) -> None:
        for name in names:
            self._tasks[name].cancel()
        await asyncio.wait([self._tasks[name] for name in names])
        await settled()

    async def _take(self, name: str) -> None:
        async with self.turns.turn(spare=name.startswith("spare")):
            self.begun.append(name)
            await self._let_go[name].wait()


async def settled() -> None:
    """Has all that can go on by itself done so."""
    for _ in range(5):
        await asyncio.sleep(0)


async def test_sessions_that_wait_go_before_spares_that_came_earlier() -> None:
    crowd = Crowd()
    await crowd.come("first", "spare", "second", "third")
    for name in ("first", "second", "third", "spare"):
        assert crowd.begun[-1] == name
        await crowd.end(name)


async def test_spare_has_a_turn_at_once_while_no_session_waits() -> None:
    crowd = Crowd(at_once=2)
    await crowd.come("session", "spare")
    assert crowd.begun == ["session", "spare"]


async def test_spares_have_some_turns_under_a_load_that_never_ends() -> None:
    crowd = Crowd()
    await crowd.come("0", "spare 1", "spare 2")
    for number in range(1, 40):
        await crowd.come(str(number))
        await crowd.end(crowd.begun[-1])
    assert [crowd.begun.index(name) for name in ("spare 1", "spare 2")] == [17, 34]


async def test_one_who_waits_no_longer_holds_up_nobody() -> None:
    crowd = Crowd()
    await crowd.come("first", "gone", "spare gone", "spare")
    await crowd.cancel("gone", "spare gone")
    await crowd.end("first")
    assert crowd.begun == ["first", "spare"]


async def test_turn_that_was_given_to_one_who_is_cancelled_is_the_next_ones() -> None:
    crowd = Crowd()
    async with crowd.turns.turn():
        await crowd.come("gone", "next")
    await crowd.cancel("gone")  # who has it, and does not know yet
    assert crowd.begun == ["next"]


async def test_turn_whose_start_failed_is_the_next_ones() -> None:
    crowd = Crowd()
    await crowd.come("first", "next")
    await crowd.cancel("first")
    assert crowd.begun == ["first", "next"]
