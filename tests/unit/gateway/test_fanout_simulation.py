"""Readers that come, go, stall and come back, over subscriptions that break, in seeded orders.

Whatever happens, each reader's view is the log behind its start: every stamped event once and in
order, no echo twice, previews from the beginning of an event and never behind it.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter, defaultdict
from typing import Any
from unittest.mock import Mock

import orjson
import pytest
from prometheus_client import Gauge
from starlette.requests import Request

from chassis.errors import DroverError, Reason
from chassis.ids import new_id
from gateway.auth import Caller
from gateway.fanout import Fanout, Hub
from gateway.reader import Reader
from gateway.services import SERVED
from gateway.streams import StreamEndpoints
from gateway.subscription import Resumption
from gateway.transcode.routes import Contract
from gateway.watch import Watches
from gateway.wire import WIRE
from tests.doubles.feed import Call, Feed
from tests.doubles.sse_reader import Connection, body, frames
from tests.doubles.virtual_time import VirtualLoop

CONTRACT = Contract(SERVED)
ROUTE = next(route for route in CONTRACT.routes if route.template.endswith("/events/stream"))
SEEDS, STEPS = 40, 800
STALL = 60.0
TICK = 0.001
"""What a step takes, so that no two happen at the same time."""

PREVIEWS = b"event_deltas[]=agent.message"


class Client:
    """A reader, and what was so when it came."""

    def __init__(self, after: str | None, *, previews: bool) -> None:
        self.after = after
        self.previews = previews
        self.connection = Connection()
        self.call: Call | None = None
        self.was_served = False
        self.is_open = False
        self.is_stalled = False
        self.last_words: bytes | None = None
        self.before: set[str] = set()  # echoes that all had before it came
        self.told: list[str] = []  # those that came while it was open
        self.echoed: set[str] = set()  # those that it saw

    @property
    def view(self) -> list[dict[str, Any]]:
        return frames(body(bytes(self.connection.taken)))

    def ids(self) -> list[str]:
        return [frame["id"] for frame in self.view if "id" in frame]


class Simulation:
    """The gateway's streams over one session's feed, and a driver that decides what comes next."""

    def __init__(
        self, seed: int, group: asyncio.TaskGroup, loop: VirtualLoop, *, calm: bool
    ) -> None:
        self.random = random.Random(seed)  # noqa: S311  # a script, not a secret
        self.feed = Feed()
        self.clients: list[Client] = []
        self.echoes: list[str] = []
        self.waiting: list[str] = []  # echoed, not stamped yet
        self.writing: str | None = None  # being previewed
        self.written: dict[str, str] = defaultdict(str)
        self.stayed: list[Client] = []
        self.pause = TICK
        self._numbers = 0
        self._calm = calm
        self._group = group
        ring = 1_000_000 if calm else self.random.choice([800, 4_000, 1_000_000])
        self._fanout = Fanout(group, 15.0, loop, ring_bytes=ring)
        self._streams = StreamEndpoints(
            CONTRACT.encoders,
            self._fanout,
            stall_seconds=STALL,
            resumption=Resumption(seconds=1e9),
            open_seconds=1e9,
            open_streams=Gauge("open", "Open.", registry=None),
            watches=Watches(group, Mock(), 5.0, 30.0, loop),
            clock=loop,
            ids=new_id,
        )

    # what happens

    def new_id(self) -> str:
        self._numbers += 1
        return f"sevt_{self._numbers:04}"

    def append(self) -> None:
        if self.waiting and self.random.random() < 0.5:
            self.feed.append(self.waiting.pop(0))
        else:
            self.feed.append(self.new_id())

    def echo(self) -> None:
        event_id = self.new_id()
        self.waiting.append(event_id)
        self.echoes.append(event_id)
        self.feed.echo(event_id)
        for client in self.clients:
            if client.is_open:
                client.told.append(event_id)

    def preview(self) -> None:
        if self.writing is None:
            self.writing = self.new_id()
            self.feed.begin(self.writing)
        elif self.random.random() < 0.3:
            self.feed.append(self.writing)
            self.writing = None
        else:
            text = self.random.choice("abcdef")
            self.written[self.writing] += text
            self.feed.add(self.writing, text)

    def come(self) -> None:
        after: str | None = None
        gone = [client for client in self.clients if not client.is_open and client.ids()]
        if gone and self.random.random() < 0.5:
            after = self.random.choice(gone).ids()[-1]
        elif self.random.random() < 0.3:
            after = self.random.choice(["", *(event.id for event in self.feed.log)])
        client = Client(after, previews=self.random.random() < 0.5)
        underway = {frame.event.id for call in self.feed.past for frame in call.underway}
        client.before = set(self.echoes) - underway
        self._group.create_task(self._follow(client))
        self.clients.append(client)

    def go(self) -> None:
        if open_now := [client for client in self.clients if client.is_open]:
            self.random.choice(open_now).connection.lose()

    def stall(self) -> None:
        if self.clients:
            client = self.random.choice(self.clients)
            client.is_stalled = not client.is_stalled

    def take(self) -> None:
        for client in self.clients:
            if not client.is_stalled and self.random.random() < 0.6:
                client.connection.take(self.random.randrange(1, 1_500))

    def answer(self) -> None:
        if self.feed.calls:
            self.random.choice(self.feed.calls).let_in()

    def deliver(self) -> None:
        if self.feed.calls:
            self.random.choice(self.feed.calls).deliver(self.random.randrange(1, 8))

    def cut(self) -> None:
        if self.random.random() < 0.3:
            for call in list(self.feed.calls):
                call.cut()
            self.feed.is_down = True
        elif self.feed.calls:
            self.random.choice(self.feed.calls).cut()

    def mend(self) -> None:
        self.feed.is_down = False

    def wait(self) -> None:
        self.pause = self.random.choice([0.1, 1.0, 30.0, STALL + 1])

    # how it goes on

    async def run(self, steps: int) -> None:
        """So many steps, then whatever it takes until nothing is left to do."""
        weights = {
            self.append: 6, self.echo: 2, self.preview: 6, self.come: 2, self.go: 1, self.take: 12,
            self.answer: 12, self.deliver: 40,
        }  # fmt: skip
        if not self._calm:
            weights |= {self.stall: 2, self.cut: 0.5, self.mend: 4, self.wait: 0.5}
        for _ in range(steps):
            self.random.choices(list(weights), list(weights.values()))[0]()
            await asyncio.sleep(self.pause)
            self.pause = TICK
            for _ in range(self.random.randrange(4)):
                await asyncio.sleep(0)
        await self._settle()
        self.stayed = [client for client in self.clients if client.is_open]
        self._fanout.close()
        await self._take_all()

    async def _settle(self) -> None:
        self.mend()
        for event_id in (*self.waiting, *filter(None, [self.writing])):
            self.feed.append(event_id)  # what waits may hold a reader where it is
        for client in self.clients:
            client.is_stalled = False
        await self._take_all()
        self.feed.append(self.new_id())
        await self._take_all()
        # What is left over are the hubs: one with previews and one without.
        assert len(self.feed.calls) <= 2

    async def _take_all(self) -> None:
        quiet, before = 0, None
        while quiet < 3:
            for call in list(self.feed.calls):
                call.let_in()
                call.deliver(5)
            for client in self.clients:
                client.connection.take(10_000)
            await asyncio.sleep(2)  # of virtual time: a resumption's longest delay
            taken = [client.connection.taken.count(b"event: ") for client in self.clients]
            state = taken, [(id(call), len(call.pipe)) for call in self.feed.calls]
            quiet = quiet + 1 if state == before else 0
            before = state

    async def _follow(self, client: Client) -> None:
        connection = client.connection
        headers, query = [], [PREVIEWS] if client.previews else []
        if client.after:
            headers = [(b"last-event-id", client.after.encode())]
        elif client.after is not None:
            query.append(b"after=")
        scope = {
            "type": "http",
            "method": "GET",
            "headers": headers,
            "query_string": b"&".join(query),
            "extensions": {WIRE: {"wire": connection.wire}},
        }

        async def send(message: Any) -> None:
            if message["type"] == "http.response.start":
                client.is_open = True
            else:
                client.last_words = message["body"]

        async def receive() -> Any:
            return {"type": "http.disconnect"}

        calls: list[Call] = []

        def subscribe(request: Any, **given: Any) -> Call:
            calls.append(self.feed.subscribe(request, **given))
            return calls[-1]

        serve = self._streams.endpoint(ROUTE, subscribe)
        request = Request(scope)
        request.state.caller = Caller("wrkspc_default", b"digest of a key")
        try:
            response = await serve(request, {"session_id": "sesn_1"})
        except DroverError as error:
            assert error.reason is Reason.UNAVAILABLE  # noqa: PT017  # or it came off well
            return
        client.call = next(iter(calls), None)  # none if the place it asked for was at hand
        client.was_served = True
        try:
            await response(scope, receive, send)
        finally:
            client.is_open = False


def check(client: Client, log: list[str], written: dict[str, str]) -> None:
    """What a reader may rely on."""
    if not client.was_served:
        assert not client.view
        return
    if client.after is not None:
        start = log.index(client.after) + 1 if client.after else 0
    else:
        assert client.call is not None
        start = client.call.began_at
    seen = client.ids()
    assert seen == log[start : start + len(seen)]
    stamped: set[str] = set()
    echoed: set[str] = set()
    glimpsed: dict[str, str] = {}
    for frame in client.view:
        data = orjson.loads(frame["data"])
        if "id" in frame:
            stamped.add(frame["id"])
        elif frame["event"] == "event_start":
            event_id = data["event"]["id"]
            assert event_id not in glimpsed.keys() | stamped
            glimpsed[event_id] = ""
        elif frame["event"] == "event_delta":
            event_id = data["event_id"]
            assert event_id in glimpsed.keys() - stamped
            glimpsed[event_id] += data["delta"]["content"]["text"]
            assert written[event_id].startswith(glimpsed[event_id])
        else:
            assert data["id"] not in echoed | stamped | client.before
            echoed.add(data["id"])
    client.echoed = echoed
    assert client.last_words in (None, b"")


def simulate(seed: int, *, steps: int, calm: bool) -> Simulation:
    """One run, checked."""
    loop = VirtualLoop()

    async def run() -> Simulation:
        async with asyncio.TaskGroup() as group:
            simulation = Simulation(seed, group, loop, calm=calm)
            await simulation.run(steps)
        return simulation

    try:
        simulation = loop.run_until_complete(run())
    finally:
        loop.close()
    log = [event.id for event in simulation.feed.log]
    for client in simulation.clients:
        check(client, log, simulation.written)
        if client in simulation.stayed:
            assert client.ids()[-1] == log[-1]
    return simulation


@pytest.mark.parametrize("seed", range(SEEDS))
def test_every_reader_sees_the_log_behind_its_start(seed: int) -> None:
    simulate(seed, steps=STEPS, calm=False)


@pytest.mark.parametrize("seed", range(SEEDS))
def test_without_breaks_no_echo_is_missed_either(seed: int) -> None:
    for client in simulate(seed, steps=STEPS, calm=True).stayed:
        assert set(client.told) <= client.echoed


def test_the_simulation_meets_what_it_is_meant_to_meet(monkeypatch: pytest.MonkeyPatch) -> None:
    met = Counter[str]()

    def count(owner: type, name: str) -> None:
        call = getattr(owner, name)

        def counted(*given: Any) -> Any:
            answer = call(*given)
            met[f"{name}: {answer}"] += 1
            return answer

        monkeypatch.setattr(owner, name, counted)

    count(Hub, "take_over")
    count(Hub, "resume")
    count(Reader, "fall_behind")
    count(Reader, "lost")
    count(Call, "cut")
    for seed in range(SEEDS // 2):
        simulate(seed, steps=STEPS, calm=False)
    assert len(met) == 6
    assert min(met.values()) >= 10
