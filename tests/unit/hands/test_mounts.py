"""When a hand's repositories are cloned, and who waits for it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from datetime import timedelta
from typing import Any, cast

import pytest

from chassis.secret import Secret
from drover.event.v1.content_pb2 import ContentBlock, TextBlock
from services.hands.domain.repository import CLONED, Repository
from services.hands.domain.toolset import ToolCall
from services.hands.egress.grants import Grant
from services.hands.hand import HandDied, Reply
from services.hands.repositories.mounts import Mounts

TOOLS = Repository("sesrsc_1", "https://github.com/acme/tools", "/workspace/tools", branch="dev")
DOCS = Repository("sesrsc_2", "https://github.com/acme/docs", "/workspace/docs")


class Clock:
    time = 100.0

    def monotonic(self) -> float:
        return self.time


class Grants:
    """Gives grants that name these, for hands without a way out."""

    def __init__(self, *repositories: Repository) -> None:
        self.repositories = repositories
        self.held = 0

    async def current(self, _session_id: str, _hand_id: str) -> Grant:
        self.held += 1
        return Grant(Secret("g"), 1e9, 1e9, repositories=self.repositories)

    def drop(self, _session_id: str, _hand_id: str) -> None:
        self.held -= 1


class Access:
    """A way out; `repositories` is `None` while the vault proxy is away."""

    problems = ()

    def __init__(self, repositories: tuple[Repository, ...] | None) -> None:
        self.repositories = repositories
        self.asked = 0

    async def ready(self) -> None:
        self.asked += 1


class Hand:
    """Answers every clone with the next of `answers`, once `gate` is open."""

    id = "hand_1"

    def __init__(self, access: Access | None, *answers: str) -> None:
        self.access = access
        self.answers = [*answers]
        self.calls: list[dict[str, Any]] = []
        self.missing: tuple[Any, ...] = ()
        self.gate = asyncio.Event()
        self.gate.set()

    async def run(self, _call_id: str, call: ToolCall) -> Reply:
        assert call.tool == "clone"
        self.calls.append(call.input)
        answer = self.answers.pop(0)
        await self.gate.wait()
        if answer == "dies":
            raise HandDied("killed")
        block = ContentBlock(text=TextBlock(text=answer))
        return Reply((block,), answer != CLONED, cancelled=False, duration=timedelta())


class Stage:
    """Mounts over a pool that has one hand."""

    def __init__(self, tasks: asyncio.TaskGroup, hand: Hand, grants: Grants | None) -> None:
        self.hand = hand
        self.users = 0
        self.gone = False
        self.clock = Clock()
        self.mounts = Mounts(
            cast("Any", self),
            tasks,
            cast("Any", self.clock),
            cast("Any", grants),
            seconds=60.0,
            wait_seconds=0.05,
        )

    @contextmanager
    def keep(self, _where: str, hand: Hand) -> Iterator[bool]:
        self.users += 1
        yield hand is self.hand and not self.gone
        self.users -= 1

    async def ready(self, where: str = "sesn_1", **options: bool) -> None:
        await self.mounts.ready(where, cast("Any", self.hand), **options)

    def settled(self, where: str = "sesn_1") -> bool:
        return self.mounts.settled(where, cast("Any", self.hand))

    def kinds(self) -> list[str]:
        return [error.WhichOneof("error") for error in self.hand.missing]


@asynccontextmanager
async def stage(hand: Hand, grants: Grants | None = None) -> AsyncIterator[Stage]:
    async with asyncio.TaskGroup() as tasks:
        yield Stage(tasks, hand, grants or Grants())


async def test_each_repository_is_cloned_once_for_all_who_wait() -> None:
    async with stage(Hand(Access((TOOLS, DOCS)), CLONED, CLONED)) as made:
        assert not made.settled()
        await asyncio.gather(made.ready(), made.ready(), made.ready(again=True))
        assert made.settled()
        await made.ready(again=True)
    first, second = made.hand.calls
    assert (first["url"], first["directory"]) == (TOOLS.url, TOOLS.mount_path)
    assert (first["branch"], first["commit"]) == ("dev", "")
    assert second["url"] == DOCS.url
    assert "HTTPS_PROXY" in first["environment"]


async def test_session_without_repositories_waits_for_nothing() -> None:
    async with stage(Hand(Access(()))) as made:
        await made.ready()
        assert made.settled()
        assert not made.hand.calls


async def test_nobody_waits_for_ever_and_the_hand_is_kept_meanwhile() -> None:
    hand = Hand(Access((TOOLS,)), CLONED)
    hand.gate.clear()
    async with stage(hand) as made:
        await made.ready()
        assert not made.settled()
        assert made.users == 1
        assert made.mounts.busy("sesn_1")
        hand.gate.set()
        await made.ready()
        assert made.settled()
        assert not made.mounts.busy("sesn_1")
    assert made.users == 0


async def test_nothing_is_begun_for_a_hand_that_was_let_go() -> None:
    async with stage(Hand(Access((TOOLS,)))) as made:
        made.gone = True
        await made.ready()
    assert not made.hand.calls


async def test_what_has_failed_is_tried_again_when_the_hand_is_asked_for_and_not_before() -> None:
    hand = Hand(Access((TOOLS,)), "checkout\nno such branch", CLONED)
    async with stage(hand) as made:
        await made.ready()
        await made.ready()
        assert made.kinds() == ["repository_checkout_error"]
        assert len(hand.calls) == 1
        await made.ready(again=True)
        assert made.settled()
        assert not hand.missing


async def test_while_the_vault_proxy_is_away_calls_are_not_held_up_one_by_one() -> None:
    access = Access(None)
    async with stage(Hand(access, CLONED)) as made:
        await made.ready()
        await made.ready()
        assert access.asked == 1
        access.repositories = (TOOLS,)
        made.clock.time += 10
        await made.ready()
        assert made.settled()
        assert len(made.hand.calls) == 1


async def test_sandboxes_without_a_way_out_say_what_they_lack() -> None:
    grants = Grants(TOOLS)
    async with stage(Hand(None), grants) as made:
        await made.ready()
        assert made.kinds() == ["repository_clone_error"]
        assert "sandboxes of this kind have no network" in made.hand.missing[0].message
        assert grants.held == 0


async def test_without_a_network_at_all_nothing_is_asked() -> None:
    async with asyncio.TaskGroup() as tasks:
        made = Stage(tasks, Hand(None), None)
        assert made.settled()
        await made.ready()
    assert not made.hand.calls


async def test_hand_that_was_handed_on_gets_what_its_new_session_has() -> None:
    hand = Hand(Access((TOOLS,)), "clone\nbroken", CLONED)
    async with stage(hand) as made:
        await made.ready()
        assert hand.missing
        assert not made.settled("sesn_2")
        assert not hand.missing
        await made.ready("sesn_2")
        assert made.settled("sesn_2")


@pytest.mark.parametrize("answers", [("dies", CLONED), ("dies",)])
async def test_hand_that_dies_ends_no_more_than_its_own_clones(answers: tuple[str, ...]) -> None:
    wanted = (TOOLS, DOCS)[: len(answers)]
    async with stage(Hand(Access(wanted), *answers)) as made:
        await made.ready()
        assert not made.settled()
        assert not made.hand.missing
