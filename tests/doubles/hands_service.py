"""HandsService in memory: a journal by call id, results and gates set by the test."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

from chassis.errors import DroverError, Reason
from drover.event.v1.content_pb2 import ContentBlock, TextBlock
from drover.event.v1.session_event_pb2 import SessionError
from drover.hands.v1 import hands_service_pb2 as pb
from drover.hands.v1.hands_service_pb2_grpc import HandsServiceServicer

Behaviour = Callable[[pb.ExecuteRequest], Awaitable[pb.ExecuteResponse]]


def result(
    text: str, *, is_error: bool = False, verdict: pb.Verdict.ValueType = pb.VERDICT_COMPLETED
) -> pb.ExecuteResponse:
    return pb.ExecuteResponse(
        content=[ContentBlock(text=TextBlock(text=text))], is_error=is_error, verdict=verdict
    )


class FakeHands(HandsServiceServicer):
    """Every call runs once; later requests of the same id get its recorded result."""

    def __init__(self) -> None:
        self.behaviours: dict[str, Behaviour] = {}
        self.ran: list[str] = []
        self.requests: list[pb.ExecuteRequest] = []
        self.provisions = 0
        self.provision_requests: list[pb.ProvisionRequest] = []
        # What MCP servers answer, by name; how often each was asked, and a gate before the answer.
        self.servers: dict[str, pb.McpServerOutcome] = {}
        self.listings: list[list[str]] = []
        self.may_list = asyncio.Event()
        self.may_list.set()
        self.provision_errors: list[SessionError] = []
        self.cancelled: list[str] = []
        self.unavailable = 0
        self.generation = 0
        self.changed = asyncio.Event()
        self._journal: dict[str, asyncio.Task[pb.ExecuteResponse]] = {}
        self._gates: dict[str, asyncio.Event] = {}

    def hold(self, command: str) -> asyncio.Event:
        """Calls with this command end only when the answer is set."""
        return self._gates.setdefault(command, asyncio.Event())

    @property
    def running(self) -> int:
        """Calls that have begun and not ended."""
        return sum(not task.done() for task in self._journal.values())

    async def started(self, count: int = 1) -> None:
        """Returns once so many calls have been started."""
        await self._until(lambda: len(self.ran) >= count)

    async def asked_to_list(self, count: int = 1) -> None:
        """Returns once the servers were to be asked for their tools so often."""
        await self._until(lambda: len(self.listings) >= count)

    async def _until(self, holds: Callable[[], bool]) -> None:
        async with asyncio.timeout(30):
            while not holds():
                self.changed.clear()
                await self.changed.wait()

    async def Provision(self, request: pb.ProvisionRequest, _context: Any) -> pb.ProvisionResponse:
        self._fence(request.generation)
        self.provisions += 1
        self.provision_requests.append(request)
        return pb.ProvisionResponse(hand_id="hand_1", backend="fake", errors=self.provision_errors)

    async def ListTools(self, request: pb.ListToolsRequest, _context: Any) -> pb.ListToolsResponse:
        self._fence(request.generation)
        self.listings.append(list(request.mcp_server_names))
        self.changed.set()
        await self.may_list.wait()
        names = [name for name in request.mcp_server_names if name in self.servers]
        return pb.ListToolsResponse(servers=[self.servers[name] for name in names])

    async def Execute(self, request: pb.ExecuteRequest, _context: Any) -> pb.ExecuteResponse:
        self._fence(request.generation)
        self.requests.append(request)
        if self.unavailable:
            self.unavailable -= 1
            raise DroverError(Reason.UNAVAILABLE, "away")
        if request.call_id in self.cancelled and request.call_id not in self._journal:
            return pb.ExecuteResponse(verdict=pb.VERDICT_CANCELLED)
        if request.call_id not in self._journal:
            self.ran.append(request.call_id)
            self._journal[request.call_id] = asyncio.create_task(self._run(request))
            self.changed.set()
        return await asyncio.shield(self._journal[request.call_id])

    async def _run(self, request: pb.ExecuteRequest) -> pb.ExecuteResponse:
        arguments = json.loads(request.input or "{}")
        command = arguments.get("command", "")
        try:
            if command in self._gates:
                await self._gates[command].wait()
        except asyncio.CancelledError:
            return pb.ExecuteResponse(verdict=pb.VERDICT_CANCELLED, is_error=True)
        if behaviour := self.behaviours.get(command or request.name):
            return await behaviour(request)
        return result(f"ran {command or request.name}")

    async def Cancel(self, request: pb.CancelRequest, _context: Any) -> pb.CancelResponse:
        self._fence(request.generation)
        for call_id in request.call_ids:
            self.cancelled.append(call_id)
            if call_id in self._journal:
                self._journal[call_id].cancel()
        return pb.CancelResponse()

    async def Release(self, _request: pb.ReleaseRequest, _context: Any) -> pb.ReleaseResponse:
        return pb.ReleaseResponse()

    def _fence(self, generation: int) -> None:
        if generation < self.generation:
            raise DroverError(Reason.LEASE_LOST, f"generation {generation} is old")
        self.generation = generation
