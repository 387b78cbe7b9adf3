"""F19: a client that is cut at any byte and comes back sees the log once."""

from __future__ import annotations

import asyncio
import random
from typing import Any

from anthropic import AsyncAnthropic

from tests.doubles.messages_api import text
from tests.e2e.driving import new_session, run_turn, user_message
from tests.e2e.stack import Stack
from tests.fault.streams import At, ids, listed, opened

AT_ONCE = 8
ROUNDS = 40
QUIET = 0.05
"""Seconds without a byte after which a stream is cut where it is."""


async def test_cut_at_any_byte_and_resumed_behind_the_last_id(own_stack: Stack) -> None:
    stack = own_stack
    stack.model.script(text("hello"))
    with stack.client() as client:
        session = await asyncio.to_thread(new_session, client)
        await asyncio.to_thread(run_turn, client, session.id, "hi")
        log = listed(client, session.id)
    beginning = At(stack.url, session.id, after="")
    async with opened(beginning) as stream:
        await stream.until(log[-1])
        whole = bytes(stream.body.data)
    assert ids(whole) == log

    async def cut_at(offset: int) -> None:
        async with opened(beginning) as stream:
            got = await stream.read(offset)
        assert got == whole[:offset]
        seen = ids(got)
        if seen == log:
            return
        back = At(stack.url, session.id, last=seen[-1]) if seen else beginning
        async with opened(back) as stream:
            assert seen + await stream.until(log[-1]) == log

    offsets = iter(range(len(whole) + 1))

    async def cut_at_each() -> None:
        for offset in offsets:
            await cut_at(offset)

    async with asyncio.TaskGroup() as group:
        for _ in range(AT_ONCE):
            group.create_task(cut_at_each())


class Resuming:
    """A client that goes on behind the last event it has seen."""

    def __init__(self, url: str, session_id: str, chance: random.Random) -> None:
        self.seen: list[str] = []
        self._url = url
        self._session_id = session_id
        self._chance = chance

    async def read_some(self) -> None:
        """Connects, and is cut somewhere."""
        last = self.seen[-1] if self.seen else None
        how = {"last": last} if last and self._chance.random() < 0.5 else {"after": last or ""}
        async with opened(At(self._url, self._session_id, **how)) as stream:
            await stream.answered()
            self.seen += ids(await cut_somewhere(stream, self._chance))


class Merging:
    """A client that opens the stream, lists the history, and goes by the ids: as the SDK's own."""

    def __init__(self, url: str, session_id: str, chance: random.Random, sdk: Any) -> None:
        self.seen: list[str] = []
        self._url = url
        self._session_id = session_id
        self._chance = chance
        self._sdk = sdk

    async def read_some(self) -> None:
        """Connects, and is cut somewhere."""
        async with opened(At(self._url, self._session_id)) as stream:
            await stream.answered()
            history = self._sdk.beta.sessions.events.list(self._session_id, limit=1_000)
            self._merge([event.id async for event in history if event.processed_at is not None])
            self._merge(ids(await cut_somewhere(stream, self._chance)))

    def _merge(self, found: list[str]) -> None:
        known = set(self.seen)
        self.seen += [event_id for event_id in found if event_id not in known]


async def cut_somewhere(stream: Any, chance: random.Random) -> bytes:
    """What a client has got when its connection is cut: anywhere, in the midst of a frame too."""
    count = chance.randrange(2_500)
    try:
        async with asyncio.timeout(QUIET) as silence:
            while len(stream.body.data) < count and await stream.more():
                silence.reschedule(asyncio.get_running_loop().time() + QUIET)
    except TimeoutError:
        pass
    return bytes(stream.body.data[:count])


async def test_cut_again_and_again_while_the_session_runs(either_stack: Stack) -> None:
    stack = either_stack
    stack.model.default(lambda _request: text("hello"))
    chance = random.Random(19)  # noqa: S311  # the same cuts in every run
    with stack.client() as client:
        session = await asyncio.to_thread(new_session, client)
    async with AsyncAnthropic(base_url=stack.url, api_key=stack.key, timeout=60) as sdk:
        readers = [
            Resuming(stack.url, session.id, chance),
            Merging(stack.url, session.id, chance, sdk),
        ]
        for number in range(ROUNDS):
            sent = sdk.beta.sessions.events.send(
                session.id, events=[user_message(f"message {number}")]
            )
            await asyncio.gather(sent, *(reader.read_some() for reader in readers))
        with stack.client() as client:
            events = await asyncio.to_thread(stack.until_idle, client, session.id, answers=ROUNDS)
        log = [event.id for event in events]
        for reader in readers:
            while len(reader.seen) < len(log):
                await reader.read_some()
            assert reader.seen == log
