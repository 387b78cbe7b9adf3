"""Many clients of the HTTP API at once, and what they were answered."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import httpx2

from identity.peers import Peers
from tests.e2e.driving import user_message
from tests.fault.histories.history import History, Outcome, Write
from tests.fault.histories.keys import MARK, entry
from tests.fault.histories.service import reached

LANE = "queued"
DEADLINE = 30.0
"""Seconds that a client waits for an answer."""

_OUTAGE = frozenset({503, 504})
_BUSY = frozenset({429, 529})
_AT_REST = 60.0


@dataclass(frozen=True, slots=True)
class Answer:
    """One answer: its status, 0 for a broken connection, after how long, and its headers."""

    verb: str
    path: str
    status: int
    seconds: float
    at: float
    headers: Mapping[str, str] = field(default_factory=dict)
    body: str = ""


@dataclass(slots=True)
class Crowd:
    """Clients that share connections. Every answer is kept, and every message for the checker."""

    http: httpx2.AsyncClient
    history: History = field(default_factory=History)
    answers: list[Answer] = field(default_factory=list)

    @property
    def unfit(self) -> list[str]:
        """Answers that no outage excuses."""
        fit = _OUTAGE | _BUSY | {0, 200}
        return [
            f"{a.verb} {a.path}: {a.status} {a.body}" for a in self.answers if a.status not in fit
        ]

    async def request(self, verb: str, path: str, body: Any = None) -> httpx2.Response | None:
        """One request; `None` when its connection broke."""
        begun = time.monotonic()
        try:
            answer = await self.http.request(verb, path, json=body)
        except httpx2.HTTPError as error:
            now = time.monotonic()
            self.answers.append(Answer(verb, path, 0, now - begun, now, body=repr(error)))
            return None
        now = time.monotonic()
        self.answers.append(
            Answer(verb, path, answer.status_code, now - begun, now, answer.headers, answer.text)
        )
        return answer

    async def post(self, session: str, *keys: str, padding: str = "") -> bool:
        """Sends messages that say the `keys`, in one request; whether they were acknowledged."""
        begun = time.monotonic()
        body = {"events": [user_message(f"{MARK}{key} {padding}".rstrip()) for key in keys]}
        answer = await self.request("POST", f"/v1/sessions/{session}/events", body)
        outcome = Outcome.REFUSED
        if answer is None or answer.status_code in _OUTAGE:
            outcome = Outcome.UNKNOWN
        elif answer.status_code == 200:
            outcome = Outcome.ACKNOWLEDGED
        self.history.writes.append(
            Write(keys[0].partition("-")[0], session, LANE, keys, outcome, begun, time.monotonic())
        )
        return outcome is Outcome.ACKNOWLEDGED

    async def logs_at_rest(
        self, address: str, peers: Callable[[str], Peers]
    ) -> dict[str, list[str]]:
        """Waits until no session has anything left to do, and keeps the logs for the checker.

        They are read from the session service at `address`. Answers the types of each log's events.
        """
        types: dict[str, list[str]] = {}
        sessions = {write.session for write in self.history.writes}
        async with reached(address, peers) as service:
            async with asyncio.timeout(_AT_REST):
                for session in sessions:
                    while True:
                        events = await service.whole(session)
                        kinds = [str(event.WhichOneof("payload")) for event in events]
                        if all(e.seq for e in events) and kinds[-1:] == ["session_status_idle"]:
                            break
                        await asyncio.sleep(0.1)
                    types[session] = kinds
                    self.history.logs[session] = tuple(map(entry, events))
        return types


@asynccontextmanager
async def crowd(url: str, headers: Mapping[str, str]) -> AsyncIterator[Crowd]:
    """Clients of a gateway."""
    async with httpx2.AsyncClient(
        base_url=url,
        headers=dict(headers),
        limits=httpx2.Limits(max_connections=None),
        timeout=DEADLINE,
        trust_env=False,
    ) as http:
        yield Crowd(http)
