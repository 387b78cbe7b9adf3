"""A brain that holds one session's lease: appends, takes input, and sees the log whole."""

from __future__ import annotations

import asyncio
import random
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from chassis.errors import DroverError, Reason
from chassis.ids import new_id
from drover.event.v1 import event_pb2
from drover.session.v1 import lease_pb2 as pb
from tests.fault.histories.history import Reading
from tests.fault.histories.keys import spoken
from tests.fault.histories.recorder import Operation, Recorder
from tests.fault.histories.service import Service, answered, said

LANE = "spoken"
_PAUSE = 0.02
_PAUSE_IN_OUTAGE = 0.1
_PIPELINE = 4
_SILENCE = 15.0
_TAKES = (pb.TAKE_INPUT_UNSPECIFIED, pb.TAKE_INPUT_NEXT, pb.TAKE_INPUT_ALL)


@dataclass(slots=True)
class _Append:
    number: int
    operation: Operation | None
    keys: tuple[str, ...]
    ids: tuple[str, ...]
    take: pb.TakeInput.ValueType
    drains: bool = False

    def request(self) -> pb.LeaseRequest:
        events = [spoken(key, event_id) for key, event_id in zip(self.keys, self.ids, strict=True)]
        return pb.LeaseRequest(
            append=pb.AppendEvents(request_id=self.number, events=events, take=self.take)
        )


class Holder:
    """Appends until it is over, and then takes all input that is left: none may come any more.

    A broken stream is opened again with the generation. What the log then shows to be committed is
    acknowledged; the rest is sent again under the same ids, or given up as unknown.
    """

    def __init__(
        self, name: str, session: str, service: Service, recorder: Recorder, seed: int
    ) -> None:
        self._name = name
        self._session = session
        self._service = service
        self._recorder = recorder
        self._chance = random.Random(seed)  # noqa: S311 - a storm must come again as it was
        self._generation = 0
        self._number = 0
        self._log: dict[str, int] = {}
        self._under_way: deque[_Append] = deque()
        self._drained = False

    async def run(self, over: Callable[[], bool]) -> None:
        """Appends under one lease, or under one after the other."""
        while not self._drained:
            call = self._service.hold_lease()
            try:
                await self._open(call)
                await self._append(call, over)
            except DroverError as error:
                self._recorder.heard(self._name, error)
                if error.reason is Reason.LEASE_LOST:
                    self._generation = 0
                    self._give_up(self._under_way)
                    self._under_way.clear()
                for append in self._under_way:
                    if append.operation is not None:
                        append.operation.tried(error)
                await asyncio.sleep(_PAUSE_IN_OUTAGE)
            finally:
                call.cancel()
        seen = tuple(self._log)
        self._recorder.history.readings.append(Reading(self._name, self._session, 0, seen))

    async def _open(self, call: Any) -> None:
        opening = pb.OpenLease(
            session_id=self._session,
            holder=self._name,
            generation=self._generation,
            after_seq=len(self._log),
        )
        await said(call, pb.HoldLeaseRequest(requests=[pb.LeaseRequest(open=opening)]))
        responses = await self._next(call)
        opened = responses.pop(0).opened
        self._generation = opened.generation
        while len(self._log) < opened.head_seq:
            for response in responses or await self._next(call):
                self._see(response.log.events)
            responses = []
        self._settle()

    def _settle(self) -> None:
        """Says what became of the appends whose stream broke, and what is tried again."""
        left = [append for append in self._under_way if append.operation is not None]
        committed = [append for append in left if append.ids[0] in self._log]
        for append in committed:
            self._acknowledge(append)
        missing = [append for append in left if append.operation is not None]
        self._under_way.clear()
        if self._chance.random() < 0.5:
            self._give_up(missing)
            missing = []
        # One that is there may be repeated too: nothing comes of it.
        repeated = committed[-1:] if self._chance.random() < 0.5 else []
        self._under_way.extend([*repeated, *missing])

    async def _append(self, call: Any, over: Callable[[], bool]) -> None:
        for append in self._under_way:
            await said(call, pb.HoldLeaseRequest(requests=[append.request()]))
        while not self._drained:
            while len(self._under_way) < self._chance.randint(1, _PIPELINE):
                append = self._new(drain=over())
                self._under_way.append(append)
                await said(call, pb.HoldLeaseRequest(requests=[append.request()]))
            for response in await self._next(call):
                if response.HasField("appended"):
                    self._appended(response.appended)
            await asyncio.sleep(self._chance.uniform(0, _PAUSE))

    def _new(self, *, drain: bool) -> _Append:
        self._number += 1
        if drain:
            return _Append(self._number, None, (), (), pb.TAKE_INPUT_ALL, drains=True)
        count = self._chance.choice((1, 1, 2, 4))
        keys = tuple(f"{self._name}-{self._number}-{part}" for part in range(count))
        return _Append(
            self._number,
            self._recorder.begin(self._name, self._session, LANE, keys),
            keys,
            tuple(new_id("sevt") for _ in keys),
            self._chance.choice(_TAKES),
        )

    def _appended(self, ack: pb.Appended) -> None:
        append = self._under_way.popleft()
        assert append.number == ack.request_id
        self._see((*ack.others, *ack.taken))
        if append.ids and append.ids[0] not in self._log:
            for event_id in append.ids:
                self._log[event_id] = len(self._log) + 1
        if len(self._log) != ack.head_seq:
            self._recorder.unfit.append(
                f"{self._name} was shown {len(self._log)} events of {ack.head_seq}"
            )
        self._drained = append.drains and not ack.input.message
        self._acknowledge(append)

    def _acknowledge(self, append: _Append) -> None:
        if append.operation is not None:
            placed = {
                key: self._log[event_id]
                for key, event_id in zip(append.keys, append.ids, strict=True)
            }
            append.operation.acknowledged(placed)
            append.operation = None

    @staticmethod
    def _give_up(appends: Iterable[_Append]) -> None:
        for append in appends:
            if append.operation is not None:
                # It was on the way when its stream broke: nobody told what became of it.
                append.operation.doubtful = True
                append.operation.given_up()

    def _see(self, events: Iterable[event_pb2.Event]) -> None:
        for event in events:
            if event.id in self._log or event.seq != len(self._log) + 1:
                self._recorder.unfit.append(
                    f"{self._name} was shown {event.id} at {event.seq} behind {len(self._log)}"
                )
            self._log[event.id] = event.seq

    async def _next(self, call: Any) -> list[pb.LeaseResponse]:
        try:
            async with asyncio.timeout(_SILENCE):
                return list((await answered(call)).responses)
        except TimeoutError:
            raise DroverError(Reason.DEADLINE_EXCEEDED, "the stream is silent") from None
