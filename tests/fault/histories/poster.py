"""A client that sends messages to one session, one request after the other."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable

from chassis.errors import DroverError
from chassis.ids import new_id
from tests.fault.histories.keys import key_of, posted
from tests.fault.histories.recorder import Recorder
from tests.fault.histories.service import Service

LANE = "queued"
_PAUSE = 0.02
_PAUSE_IN_OUTAGE = 0.2


class Poster:
    """Sends until it is over.

    Half of its requests choose their events' ids; those may be repeated after an unknown outcome,
    and are stored once all the same. The others are given up.
    """

    def __init__(
        self, name: str, session: str, service: Service, recorder: Recorder, seed: int
    ) -> None:
        self._name = name
        self._session = session
        self._service = service
        self._recorder = recorder
        self._chance = random.Random(seed)  # noqa: S311 - a storm must come again as it was

    async def run(self, over: Callable[[], bool]) -> None:
        """Sends one request after the other."""
        number = 0
        while not over():
            number += 1
            count = self._chance.choice((1, 1, 1, 3))
            await self._post(tuple(f"{self._name}-{number}-{part}" for part in range(count)))
            await asyncio.sleep(self._chance.uniform(0, _PAUSE))

    async def _post(self, keys: tuple[str, ...]) -> None:
        operation = self._recorder.begin(self._name, self._session, LANE, keys)
        identified = self._chance.random() < 0.5
        ids = [new_id("sevt") if identified else "" for _ in keys]
        while True:
            events = [posted(key, event_id) for key, event_id in zip(keys, ids, strict=True)]
            try:
                stored = await self._service.emit(self._session, events)
            except DroverError as error:
                self._recorder.heard(self._name, error)
                operation.tried(error)
                await asyncio.sleep(_PAUSE_IN_OUTAGE)
                if identified and self._chance.random() < 0.8:
                    continue
                operation.given_up()
                return
            assert tuple(map(key_of, stored)) == keys
            placed = {key: event.seq for key, event in zip(keys, stored, strict=True) if event.seq}
            operation.acknowledged(placed)
            return
