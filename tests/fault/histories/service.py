"""The session service as its writers reach it: plain gRPC with the installation's secret."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import grpc
import grpc.aio

from chassis.errors import DroverError, Reason
from chassis.grpc.status import from_rpc_error
from drover.event.v1 import event_pb2
from drover.session.v1 import session_service_pb2 as pb
from drover.session.v1.session_service_pb2_grpc import SessionServiceStub
from identity.peers import Peers

DEADLINE = 12.0
"""Seconds of a call: more than the service is patient with its database."""


class Service:
    """Calls of a writer, be it a client or a brain. They raise `DroverError`."""

    def __init__(self, clients: grpc.aio.Channel, brains: grpc.aio.Channel) -> None:
        self._stub: Any = SessionServiceStub(clients)
        self._brains: Any = SessionServiceStub(brains)

    async def emit(self, session: str, events: list[event_pb2.Event]) -> list[event_pb2.Event]:
        """EmitEvents."""
        request = pb.EmitEventsRequest(session_id=session, events=events)
        with translated():
            return list((await self._stub.EmitEvents(request, timeout=DEADLINE)).data)

    async def page(
        self, session: str, page: str | None = None, limit: int = 1000
    ) -> tuple[list[event_pb2.Event], str | None]:
        """GetEvents: one page, and the next one's cursor."""
        request = pb.GetEventsRequest(session_id=session, page=page, limit=limit)
        with translated():
            answer = await self._stub.GetEvents(request, timeout=DEADLINE)
        return list(answer.data), answer.next_page if answer.HasField("next_page") else None

    async def whole(self, session: str) -> list[event_pb2.Event]:
        """Every event, with what waits in the inbox."""
        events, page = await self.page(session)
        while page is not None:
            more, page = await self.page(session, page)
            events += more
        return events

    def hold_lease(self) -> Any:
        """HoldLease: a stream to be written and read."""
        return self._brains.HoldLease()


@asynccontextmanager
async def reached(address: str, peers: Callable[[str], Peers]) -> AsyncIterator[Service]:
    """The service at an address, over connections of its own."""
    async with (
        peers("gateway").channel(address, "session") as clients,
        peers("brain").channel(address, "session") as brains,
    ):
        yield Service(clients, brains)


async def said(call: Any, request: Any) -> None:
    """Writes a message to a stream. Raises `DroverError`."""
    with translated():
        await call.write(request)


async def answered(call: Any) -> Any:
    """The next message of a stream. Raises `DroverError`, UNAVAILABLE at its end."""
    with translated():
        message = await call.read()
    if message is grpc.aio.EOF:
        raise DroverError(Reason.UNAVAILABLE, "the stream has ended")
    return message


@contextmanager
def translated() -> Iterator[None]:
    """Raises `DroverError` for every way in which a call can fail."""
    try:
        yield
    except grpc.RpcError as error:
        known = from_rpc_error(error)
        if "execute_batch" in str(error):  # the library's own, for a write to a broken call
            known = DroverError(Reason.UNAVAILABLE, "the call is broken")
        raise known from error
    except asyncio.InvalidStateError as error:
        raise DroverError(Reason.UNAVAILABLE, "the stream has ended") from error
    except asyncio.CancelledError:  # gRPC's word for a call that its server has cancelled, too
        task = asyncio.current_task()
        if task is None or task.cancelling():
            raise
        raise DroverError(Reason.UNAVAILABLE, "the service ended the call") from None
