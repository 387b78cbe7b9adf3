"""A reader of one session's stream over HTTP, who takes it up again where it broke."""

from __future__ import annotations

import asyncio
import random

import httpx2

from tests.fault.histories.history import Reading
from tests.fault.histories.recorder import Recorder

_PAUSE_IN_OUTAGE = 0.1
_SILENCE = 40.0  # s; more than the gateway's own between two keep-alive comments


class Reader:
    """Follows a session from its beginning for ever."""

    def __init__(
        self,
        name: str,
        session: str,
        client: httpx2.AsyncClient,
        recorder: Recorder,
        seed: int,
        *,
        slow: bool,
    ) -> None:
        self._name = name
        self._path = f"/v1/sessions/{session}/events/stream"
        self._client = client
        self._recorder = recorder
        self._chance = random.Random(seed)  # noqa: S311 - a storm must come again as it was
        self._slow = slow
        self.session = session
        self.seen: list[str] = []
        self.connections = 0
        self._news = asyncio.Event()

    async def run(self) -> None:
        """Reads until cancelled, whatever happens to the connection."""
        while True:
            self.connections += 1
            try:
                await self._follow()
            except httpx2.HTTPError:
                await asyncio.sleep(_PAUSE_IN_OUTAGE)

    async def shown(self, event_id: str) -> None:
        """Waits until an event is the newest that it was shown."""
        while not self.seen or self.seen[-1] != event_id:
            self._news.clear()
            await self._news.wait()

    def reading(self) -> Reading:
        """What it was shown."""
        return Reading(self._name, self.session, 0, tuple(self.seen))

    async def _follow(self) -> None:
        last = self.seen[-1] if self.seen else ""
        by_header = bool(last) and self._chance.random() < 0.5
        request = self._client.build_request(
            "GET",
            self._path,
            params={} if by_header else {"after": last},
            headers={"last-event-id": last} if by_header else {},
            timeout=httpx2.Timeout(10, read=_SILENCE),
        )
        answer = await self._client.send(request, stream=True)
        try:
            if answer.status_code != 200:
                await answer.aread()
                if answer.status_code not in {503, 504, 529}:
                    self._recorder.unfit.append(f"{self._name}: {answer.status_code} {answer.text}")
                await asyncio.sleep(_PAUSE_IN_OUTAGE)
                return
            event_id = ""
            async for line in answer.aiter_lines():
                if line.startswith("id: "):
                    event_id = line[4:]
                elif not line and event_id:
                    self.seen.append(event_id)
                    event_id = ""
                    self._news.set()
                    if self._slow:
                        await asyncio.sleep(0.002)
        finally:
            await answer.aclose()
