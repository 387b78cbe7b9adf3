"""Clients of the sessions: what they send, what they are told, and what they see on the stream."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import grpc
import grpc.aio

from chassis.errors import DroverError, Reason
from chassis.grpc.status import from_rpc_error
from drover.event.v1.agent_event_pb2 import (
    EVALUATED_PERMISSION_ALLOW,
    EVALUATED_PERMISSION_ASK,
)
from drover.event.v1.event_pb2 import Event
from drover.event.v1.usage_pb2 import MonetaryAmount
from drover.event.v1.user_event_pb2 import CONFIRMATION_RESULT_ALLOW, CONFIRMATION_RESULT_DENY
from drover.session.v1 import session_service_pb2 as pb
from drover.session.v1.session_service_pb2_grpc import SessionServiceStub
from tests.doubles.request_keys import metadata, named
from tests.doubles.session_registry import AGENT_ID, ENVIRONMENT_ID

if TYPE_CHECKING:
    from tests.simulation.world import World

_AGAIN: Final = frozenset(
    {
        Reason.UNAVAILABLE,
        Reason.DEADLINE_EXCEEDED,
        Reason.CANCELLED,
        Reason.RESOURCE_EXHAUSTED,
    }
)


@dataclass
class Told:
    """What a client was told of its session, and has seen of it."""

    session_id: str = ""
    # Ids of events that were acknowledged as stored, by type and in the order sent.
    stored: dict[str, list[str]] = field(default_factory=dict)
    refused: list[str] = field(default_factory=list)
    seen: list[str] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)
    archived: bool = False
    # Cents that the session was created with, 0 for no budget.
    budget: int = 0


class Client:
    """The user of one session: a script that sends, a reader, and answers to what the agent asks.

    `patience` is the share of the agent's questions that get an answer.
    """

    def __init__(self, world: World, number: int) -> None:
        self._world = world
        self._rng = world.rng
        self._number = number
        self._stub = SessionServiceStub(
            world.network.channel(world.client_life, "session")  # type: ignore[arg-type]
        )
        self._sent = self._cap = 0
        self._tasks: asyncio.TaskGroup
        self.told = Told()
        self.patience = 0.9
        self.done = False

    async def run(self) -> None:
        """Works through its script, and reads on until it is cancelled."""
        async with asyncio.TaskGroup() as self._tasks:
            request = pb.CreateSessionRequest(environment_id=ENVIRONMENT_ID)
            request.agent.agent.id = AGENT_ID
            if self._rng.random() < 0.4:
                self.told.budget = 1 + int(self._rng.random() * 5)
                self._cap = self.told.budget
                request.budget.max_list_cost.CopyFrom(_cents(self._cap))
            initial = [self._message()] if self._rng.random() < 0.5 else []
            request.initial_events.extend(initial)
            key = metadata(self._key())
            created = await self._insist(self._stub.CreateSession, request, metadata=key)
            self.told.session_id = created.session.id
            self._remember(initial)
            self._tasks.create_task(self._read())
            for _ in range(self._world.steps_of_script()):
                await asyncio.sleep(5 * self._rng.random() ** 3)
                await self._act()
            if self._rng.random() < 0.3:
                await self._archive()
            self.done = True

    def _key(self) -> Any:
        key = named(f"create-{self._number}")
        key.received_at.FromDatetime(self._world.loop.now())
        return key

    # what it sends

    async def _act(self) -> None:
        draw = self._rng.random()
        if draw < 0.55:
            await self._send(self._message())
        elif draw < 0.65:
            await self._send(self._message(), self._message())
        elif draw < 0.78:
            await self._send(self._interrupt())
        elif draw < 0.83:
            await self._send(self._interrupt(), self._message())
        elif draw < 0.87:
            await self._send(self._message(), self._system())
        elif draw < 0.89:
            await self._send(self._system())
        elif draw < 0.93:
            await self._update(pb.UpdateSessionRequest(title=f"title {self._next()}"))
        else:
            request = pb.UpdateSessionRequest()
            request.agent.tools.extend(self._world.tools())
            request.agent.update_mask.paths.append("tools")
            await self._update(request)

    def _next(self) -> int:
        self._sent += 1
        return self._sent

    def _event(self) -> Event:
        return Event(id=f"sevt_client{self._number}x{self._next():04}")

    def _message(self) -> Event:
        event, words = self._event(), " and more" * int(self._rng.random() ** 4 * 60)
        event.user_message.content.add().text.text = f"message {event.id}{words}"
        return event

    def _system(self) -> Event:
        event = self._event()
        event.system_message.content.add().text = f"from the operator: {event.id}"
        return event

    def _interrupt(self) -> Event:
        event = self._event()
        event.user_interrupt.SetInParent()
        return event

    async def _send(self, *events: Event) -> None:
        request = pb.EmitEventsRequest(session_id=self.told.session_id, events=events)
        try:
            answer, first = await self._try(self._stub.EmitEvents, request)
        except DroverError:
            return
        if answer is None:
            if first:
                self.told.refused += [event.id for event in events]
            return
        self._remember([one for one in answer.data if one.seq or not one.HasField("processed_at")])

    def _remember(self, events: list[Event]) -> None:
        for event in events:
            kind = event.WhichOneof("payload") or ""
            self.told.stored.setdefault(kind, []).append(event.id)

    async def _update(self, request: pb.UpdateSessionRequest) -> None:
        request.session_id = self.told.session_id
        await self._try(self._stub.UpdateSession, request)

    async def _archive(self) -> None:
        request = pb.ArchiveSessionRequest(session_id=self.told.session_id)
        for _ in range(20):
            answer, _ = await self._try(self._stub.ArchiveSession, request)
            if answer is not None:
                self.told.archived = True
                return
            await self._send(self._interrupt())
            await asyncio.sleep(2 * self._rng.random())

    async def _insist(self, method: Any, request: Any, **options: Any) -> Any:
        answer, _ = await self._try(method, request, **options)
        assert answer is not None, "what must succeed was refused"
        return answer

    async def _try(self, method: Any, request: Any, **options: Any) -> tuple[Any, bool]:
        """The answer to a request that is repeated until there is one; `None` if it is refused.

        And whether that was the answer to the first attempt.
        """
        attempts = 0
        while True:
            attempts += 1
            try:
                return await method(request, timeout=5.0, **options), attempts == 1
            except grpc.RpcError as error:
                failure = from_rpc_error(error)
            if failure.reason not in _AGAIN:
                if failure.reason is Reason.INTERNAL:
                    self.told.faults.append(f"{type(request).__name__}: {failure.message}")
                return None, attempts == 1
            await asyncio.sleep(0.05 + 0.3 * self._rng.random())

    # what it answers

    def _heed(self, event: Event) -> None:
        kind = event.WhichOneof("payload")
        if kind == "agent_mcp_tool_use":
            if event.agent_mcp_tool_use.evaluated_permission == EVALUATED_PERMISSION_ASK:
                self._tasks.create_task(self._answer(event.id, custom=False))
            return
        asked = kind == "agent_tool_use" and event.agent_tool_use.HasField("evaluation")
        if asked and event.agent_tool_use.evaluated_permission == EVALUATED_PERMISSION_ASK:
            self._tasks.create_task(self._answer(event.id, custom=False))
        elif asked and event.agent_tool_use.evaluated_permission == EVALUATED_PERMISSION_ALLOW:
            self._tasks.create_task(self._work(event.id))
        elif kind == "agent_custom_tool_use":
            self._tasks.create_task(self._answer(event.id, custom=True))
        elif kind == "session_status_idle":
            reason = event.session_status_idle.stop_reason
            if reason.HasField("budget_reached") and self._rng.random() < self.patience:
                self._tasks.create_task(self._pay())

    async def _pay(self) -> None:
        await asyncio.sleep(2 * self._rng.random())
        request = pb.UpdateSessionRequest()
        request.update_mask.paths.append("budget")
        if self._rng.random() < 0.8:
            self._cap += 1 + int(3 * self._rng.random())
            request.budget.max_list_cost.CopyFrom(_cents(self._cap))
        await self._update(request)

    async def _answer(self, call_id: str, *, custom: bool) -> None:
        if self._rng.random() > self.patience:
            return
        await asyncio.sleep(2 * self._rng.random() ** 3)
        for _ in range(1 + (self._rng.random() < 0.2)):
            event = self._event()
            if custom:
                event.user_custom_tool_result.custom_tool_use_id = call_id
                event.user_custom_tool_result.content.add().text.text = f"result {event.id}"
            elif self._rng.random() < 0.7:
                event.user_tool_confirmation.tool_use_id = call_id
                event.user_tool_confirmation.result = CONFIRMATION_RESULT_ALLOW
            else:
                event.user_tool_confirmation.tool_use_id = call_id
                event.user_tool_confirmation.result = CONFIRMATION_RESULT_DENY
                event.user_tool_confirmation.deny_message = "not now"
            if custom and self._rng.random() < 0.2:
                await self._send(event, self._system())
            else:
                await self._send(event)
        if not custom:
            await self._work(call_id)

    async def _work(self, call_id: str) -> None:
        """A worker's part, where tools are run by one: late, twice, or never.

        It does not ask whether the call is its to run, or still open: whoever is, is told so.
        """
        if not self._world.self_hosted or self._rng.random() > self.patience:
            return
        await asyncio.sleep(6 * self._rng.random() ** 3)
        for _ in range(1 + (self._rng.random() < 0.3)):
            event = self._event()
            event.user_tool_result.tool_use_id = call_id
            event.user_tool_result.content.add().text.text = f"worked {event.id}"
            await self._send(event)

    # what it sees

    async def _read(self) -> None:
        told = self.told
        while True:
            request = pb.StreamEventsRequest(
                session_id=told.session_id,
                after_event_id=told.seen[-1] if told.seen else "",
                event_deltas=["agent.message"],
            )
            stream = self._stub.StreamEvents(request)
            previews: dict[str, str] = {}
            try:
                while (response := await stream.read()) is not grpc.aio.EOF:
                    for frame in response.frames:
                        self._see(frame, previews)
                if told.archived or told.seen:
                    await asyncio.sleep(1.0)
            except grpc.RpcError as error:
                failure = from_rpc_error(error)
                if failure.reason not in _AGAIN:
                    told.faults.append(f"reading: {failure.reason} {failure.message}")
            except asyncio.CancelledError:
                task = asyncio.current_task()
                if task is None or task.cancelling():
                    raise
            finally:
                stream.cancel()
            await asyncio.sleep(0.05 + 0.5 * self._rng.random())

    def _see(self, frame: Any, previews: dict[str, str]) -> None:
        told = self.told
        if frame.HasField("preview"):
            delta = frame.preview.event_delta
            if frame.preview.HasField("event_delta"):
                so_far = previews.get(delta.event_id, "")
                previews[delta.event_id] = so_far + delta.delta.content.text
            return
        event = frame.event
        if not event.seq:
            return
        if event.seq != len(told.seen) + 1:
            told.faults.append(f"event {event.seq} was shown behind {len(told.seen)}")
        told.seen.append(event.id)
        if event.id in previews:
            final = "".join(block.text.text for block in event.agent_message.content)
            if not final.startswith(previews[event.id]):
                told.faults.append(f"the preview of {event.id} was no prefix of it")
        self._heed(event)


def _cents(amount: int) -> MonetaryAmount:
    return MonetaryAmount(amount=str(amount), currency="USD")
