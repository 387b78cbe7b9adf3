"""An upload goes through at the pace of who takes it, and breaks off as a whole."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any
from unittest.mock import Mock

import pytest
from starlette.requests import Request

from chassis.errors import DroverError, Reason
from drover.file.v1.file_service_pb2 import UploadFileRequest, UploadFileResponse
from gateway.auth import Caller
from gateway.room import Room
from gateway.services import SERVED
from gateway.transcode.routes import Contract, Kind
from gateway.uploads.endpoint import Bounds, UploadEndpoint

if TYPE_CHECKING:
    from starlette.types import Message

CONTRACT = Contract(SERVED)
(ROUTE,) = [one for one in CONTRACT.routes if (one.verb, one.template) == ("POST", "/v1/files")]
START = b"--b\r\ncontent-disposition: form-data; name=file; filename=f\r\n\r\n"
END = b"\r\n--b--\r\n"


class Taking:
    """A service that takes messages when it is let, and is told when the call is given up."""

    def __init__(self, *, stuck_at: int = 10_000) -> None:
        self.messages: list[UploadFileRequest] = []
        self.is_stuck = asyncio.Event()
        self.goes_on = asyncio.Event()
        self.cancelled = False
        self._stuck_at = stuck_at

    def __call__(self) -> Taking:
        return self

    async def write(self, message: Any) -> None:
        self.messages.append(message)
        if len(self.messages) == self._stuck_at:
            self.is_stuck.set()
            await self.goes_on.wait()

    async def finish(self) -> Any:
        return UploadFileResponse(file={"id": "file_1"})

    def cancel(self) -> None:
        self.cancelled = True


class Client:
    """What a client sends, and how many pieces of it were asked for. It stalls behind them."""

    def __init__(self, pieces: Iterable[bytes], *, whole: bool = False, leaves: bool = False):
        self._pieces = [*pieces]
        self._whole = whole
        self._leaves = leaves
        self.asked = 0

    async def receive(self) -> Message:
        self.asked += 1
        if self.asked <= len(self._pieces):
            more = not self._whole or self.asked < len(self._pieces)
            body = self._pieces[self.asked - 1]
            return {"type": "http.request", "body": body, "more_body": more}
        if self._leaves:
            return {"type": "http.disconnect"}
        await asyncio.Event().wait()
        raise AssertionError

    @property
    def request(self) -> Request:
        headers = [(b"content-type", b"multipart/form-data; boundary=b")]
        scope = {"type": "http", "method": "POST", "headers": headers, "query_string": b""}
        return Request({**scope, "state": {"caller": Caller("w", b"k")}}, self.receive)


def endpoint(taking: Any, *, idle_seconds: float = 30.0) -> UploadEndpoint:
    assert ROUTE.form is not None
    encoder = CONTRACT.encoders.of(ROUTE.answer)
    bounds, watches = Bounds(1_000_000, idle_seconds), Mock()
    watches.outlast = lambda _, work: work
    return UploadEndpoint(ROUTE, ROUTE.form, taking, encoder, bounds, room=Room(1), watches=watches)


async def test_nothing_more_is_read_of_a_client_while_the_service_takes_nothing() -> None:
    taking = Taking(stuck_at=3)
    client = Client([START, *[b"x" * 1_000] * 50, END], whole=True)
    upload = asyncio.create_task(endpoint(taking)(client.request, {}))
    await taking.is_stuck.wait()
    for _ in range(10):
        await asyncio.sleep(0)
    assert client.asked == 3
    taking.goes_on.set()
    assert (await upload).status_code == 200
    assert b"".join(one.data for one in taking.messages) == b"x" * 50_000
    assert not taking.cancelled


@pytest.mark.parametrize(
    ("leaves", "idle_seconds", "reason"),
    [(False, 0.01, Reason.DEADLINE_EXCEEDED), (True, 30.0, Reason.CANCELLED)],
)
async def test_a_client_that_stalls_or_leaves_cancels_what_it_began(
    leaves: bool,
    idle_seconds: float,
    reason: Reason,
) -> None:
    taking = Taking()
    client = Client([START, b"x"], leaves=leaves)
    with pytest.raises(DroverError) as refused:
        await endpoint(taking, idle_seconds=idle_seconds)(client.request, {})
    assert refused.value.reason is reason
    assert taking.cancelled
    assert not any(one.complete for one in taking.messages)


async def test_a_form_that_is_none_reaches_no_service() -> None:
    taking = Taking()
    with pytest.raises(DroverError):
        await endpoint(taking)(Client([b"{}"], whole=True).request, {})
    assert (taking.messages, taking.cancelled) == ([], False)


def test_every_route_is_served_as_its_streams_ask() -> None:
    kinds = {route.method.name: route.kind for route in CONTRACT.routes}
    assert {name for name, kind in kinds.items() if kind is Kind.UPLOAD} == {
        "UploadFile",
        "CreateSkill",
        "CreateSkillVersion",
    }
    assert {name for name, kind in kinds.items() if kind is Kind.DOWNLOAD} == {
        "DownloadFile",
        "DownloadSkillVersion",
    }
    assert kinds["StreamEvents"] is Kind.EVENTS
    assert kinds["GetFile"] is Kind.UNARY
