"""Two session services, two gateways and two brains on one PostgreSQL."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from typing import Any

import pytest
from anthropic import Anthropic

from chassis.grpc.channel import open_channel
from chassis.secret import Secret
from drover.session.v1 import session_service_pb2 as pb
from drover.session.v1.session_service_pb2_grpc import SessionServiceStub
from tests.doubles.messages_api import Gate, text
from tests.doubles.postgres import Cluster
from tests.e2e.driving import history, new_session, send, stamped, texts
from tests.e2e.replicas import GATEWAYS, SESSIONS, Replicas, running_replicas

DEADLINE = 30.0


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory, postgres: Cluster) -> Iterator[Replicas]:
    """One stack for the module."""
    data = tmp_path_factory.mktemp("replicas")
    with running_replicas(data, postgres.new_database()) as stack:
        yield stack


@pytest.fixture
def replicas(live: Replicas) -> Iterator[Replicas]:
    """The module's stack, whole again and with a script of its own."""
    live.revive()
    live.model.reset()
    yield live
    live.model.reset()


class Reader:
    """Reads a session's stream in a thread, until it has seen so many idle events."""

    def __init__(self, client: Anthropic, session_id: str, turns: int) -> None:
        self.seen: list[Any] = []
        self._turns = turns
        self._stream = client.beta.sessions.events.stream(session_id)
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self) -> None:
        for event in self._stream:
            self.seen.append(event)
            self._turns -= event.type == "session.status_idle"
            if not self._turns:
                return

    def finish(self) -> list[Any]:
        """Waits for the end; answers what was seen."""
        self._thread.join(DEADLINE)
        assert not self._thread.is_alive(), [event.type for event in self.seen]
        self._stream.close()
        return self.seen


@contextmanager
def clients(replicas: Replicas) -> Iterator[tuple[Anthropic, Anthropic]]:
    """The official client of either gateway."""
    one, other = (replicas.client(gateway, max_retries=3) for gateway in GATEWAYS)
    with one, other:
        yield one, other


def test_a_stream_shows_what_is_written_through_the_other_gateway_in_order(
    replicas: Replicas,
) -> None:
    replicas.model.script(*(text(f"answer {number}") for number in range(10)))
    with clients(replicas) as (one, other):
        session = new_session(one)
        readers = [Reader(client, session.id, 10) for client in (one, other)]
        for number in range(10):
            client = (one, other)[number % 2]
            send(client, session.id, f"question {number}")
            replicas.until_idle(client, session.id, answers=number + 1)
        log = history(other, session.id)
        for reader in readers:
            seen = reader.finish()
            assert [event.id for event in stamped(seen)] == [event.id for event in log]
            # What was taken before word of it came is told once, stamped.
            echoes = [e.id for e in seen if e.type == "user.message" and e.processed_at is None]
            sent = [event.id for event in log if event.type == "user.message"]
            assert echoes == [one for one in sent if one in echoes]
    assert texts(log, "agent.message") == [f"answer {number}" for number in range(10)]


@pytest.mark.parametrize("victim", SESSIONS)
def test_a_replica_killed_in_a_turn_loses_nothing_and_streams_go_on(
    replicas: Replicas, victim: str
) -> None:
    gate = Gate()
    replicas.model.script(text("before"), text("held up").stall(gate), text("after"))
    with clients(replicas) as (one, other):
        session = new_session(one)
        # The third message is taken without going idle behind the second.
        readers = [Reader(client, session.id, 2) for client in (one, other) for _ in range(2)]
        send(one, session.id, "one")
        replicas.until_idle(one, session.id, answers=1)
        send(other, session.id, "two")
        gate.wait_reached()
        replicas.kill(victim)
        queued = send(one, session.id, "three")
        gate.release()
        log = replicas.until_idle(other, session.id, answers=3)
        assert [event.id for event in log].count(queued[0].id) == 1
        assert texts(log, "agent.message") == ["before", "held up", "after"]
        for reader in readers:
            assert [event.id for event in stamped(reader.finish())] == [one.id for one in log]
    assert not replicas.model.unmatched


@pytest.mark.parametrize("victim", SESSIONS)
def test_a_session_whose_replica_dies_as_it_wakes_a_brain_gets_one_all_the_same(
    replicas: Replicas, victim: str
) -> None:
    replicas.model.default(lambda _request: text("ok"))
    with clients(replicas) as (one, other):
        sessions = [new_session(one) for _ in range(12)]
        for session in sessions:
            send(one, session.id, "go")
        replicas.kill(victim)
        for session in sessions:
            log = replicas.until_idle(other, session.id)
            assert texts(log, "agent.message") == ["ok"]


def test_a_replica_that_hangs_is_done_without_and_changes_nothing_once_it_goes_on(
    replicas: Replicas,
) -> None:
    gate = Gate()
    replicas.model.script(text("held up").stall(gate))
    replicas.model.default(lambda _request: text("after"))
    with clients(replicas) as (one, other):
        session = new_session(one)
        readers = [Reader(client, session.id, 2) for client in (one, other)]
        send(one, session.id, "one")
        gate.wait_reached()
        _, holder = replicas.holder(session.id)
        replicas.pause(holder)
        try:
            gate.release()
            replicas.until_idle(other, session.id)
            send(other, session.id, "two")
            before = replicas.until_idle(one, session.id, answers=2)
        finally:
            replicas.resume(holder)
        for reader in readers:
            assert [event.id for event in stamped(reader.finish())] == [e.id for e in before]
        log = history(other, session.id)
    assert [event.id for event in log] == [event.id for event in before]
    assert [event.type for event in log].count("session.status_idle") == 2


@asynccontextmanager
async def stubs(replicas: Replicas) -> AsyncIterator[dict[str, Any]]:
    """A gRPC client of each session service."""
    token = Secret(replicas.token)
    channels = {name: open_channel(replicas.address(name), token) for name in SESSIONS}
    yield {name: SessionServiceStub(channel) for name, channel in channels.items()}
    for channel in channels.values():
        await channel.close()


async def in_thread(fn: Callable[..., Any], *arguments: Any) -> Any:
    """Runs a blocking call of the official client."""
    return await asyncio.to_thread(fn, *arguments)


async def test_previews_reach_the_readers_of_either_replica(replicas: Replicas) -> None:
    whole = "The quick brown fox jumps over the lazy dog. " * 20
    gate = Gate()
    replicas.model.script(text(whole, pieces=40).stall(gate), text("then that"))
    with clients(replicas) as (one, _):
        session = await in_thread(new_session, one)
        async with stubs(replicas) as of:
            request = pb.StreamEventsRequest(session_id=session.id, event_deltas=["agent.message"])
            streams = {name: stub.StreamEvents(request) for name, stub in of.items()}
            for stream in streams.values():
                await stream.initial_metadata()
            await in_thread(send, one, session.id, "go")
            await gate.reached()
            _, holder = replicas.holder(session.id)
            (other,) = {*SESSIONS} - {holder}
            async with asyncio.timeout(DEADLINE):
                # That the other would see previews is heard before what it says later.
                later = pb.EmitEventsRequest(session_id=session.id)
                later.events.add().user_message.content.add().text.text = "and then?"
                sent = (await of[other].EmitEvents(later)).data[0].id
                await _told(streams[holder], sent)
            gate.release()
            async with asyncio.timeout(DEADLINE):
                shown = {name: await _shown(stream) for name, stream in streams.items()}
        await in_thread(partial(replicas.until_idle, one, session.id, answers=2))
    for name, (began, deltas, final) in shown.items():
        assert began, name
        assert deltas, name
        assert whole.startswith("".join(deltas))
        assert final == whole


async def _told(stream: Any, event_id: str) -> None:
    """Reads until the event is told of."""
    while not any(frame.event.id == event_id for frame in (await stream.read()).frames):
        pass


async def _shown(stream: Any) -> tuple[bool, list[str], str]:
    """Whether the message's preview began, its deltas, and the message."""
    began, deltas, message_id = False, [], ""
    while True:
        for frame in (await stream.read()).frames:
            if frame.HasField("preview"):
                if frame.preview.HasField("event_start"):
                    message_id = frame.preview.event_start.event.id
                    began = True
                else:
                    assert frame.preview.event_delta.event_id == message_id
                    deltas.append(frame.preview.event_delta.delta.content.text)
            elif frame.event.HasField("agent_message"):
                assert frame.event.id == message_id
                return began, deltas, frame.event.agent_message.content[0].text.text


async def test_an_interrupt_through_either_replica_stops_the_brain(replicas: Replicas) -> None:
    def idle(client: Anthropic, session_id: str) -> list[Any]:
        return replicas.until_idle(client, session_id, answers=0)

    with clients(replicas) as (one, _):
        for name in SESSIONS:
            gate = Gate()
            replicas.model.script(text("never").stall(gate))
            session = await in_thread(new_session, one)
            async with stubs(replicas) as of:
                await in_thread(send, one, session.id, "go")
                await gate.reached()
                request = pb.EmitEventsRequest(session_id=session.id)
                request.events.add().user_interrupt.SetInParent()
                async with asyncio.timeout(DEADLINE):
                    await of[name].EmitEvents(request)
                    log = await in_thread(idle, one, session.id)
            assert not texts(log, "agent.message")
            assert "user.interrupt" in [event.type for event in log]
            gate.release()
