from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path

import grpc
import grpc.aio
import pytest
from google.rpc import error_details_pb2, status_pb2
from grpc_health.v1 import health_pb2, health_pb2_grpc
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.trace import SpanKind
from prometheus_client import CollectorRegistry
from structlog.testing import capture_logs

from chassis.context import CallContext, call_context, current_call
from chassis.errors import CannotStartError, DroverError, Reason
from chassis.grpc.channel import open_channel
from chassis.grpc.server import GrpcServer
from chassis.grpc.status import DETAILS_KEY, from_rpc_error
from chassis.secret import Secret
from chassis.telemetry import tracing
from drover.event.v1 import content_pb2, event_pb2, user_event_pb2
from drover.session.v1.session_service_pb2 import EmitEventsRequest as Note
from tests.doubles.hands_waiting import eventually

TOKEN = Secret("installation-secret")
SERVICE = "probe.v1.ProbeService"


class Probe:
    """A service with a method of every kind, whose behaviour a test sets."""

    def __init__(self) -> None:
        self.answer = self.echo
        self.calls: list[CallContext] = []
        self.deadlines: list[float | None] = []
        self.closed = asyncio.Event()

    async def echo(self, note: Note) -> Note:
        return note

    async def _one(self, note: Note, context) -> Note:
        self.calls.append(current_call())
        self.deadlines.append(context.time_remaining())
        return await self.answer(note)

    async def _down(self, note: Note, context):
        self.calls.append(current_call())
        self.deadlines.append(context.time_remaining())
        try:
            while True:
                yield await self.answer(note)
        finally:
            self.closed.set()

    async def _up(self, notes, _context) -> Note:
        received = [note async for note in notes]
        return await self.answer(received[-1])

    async def _both(self, notes, context) -> None:
        async for note in notes:
            await context.write(await self.answer(note))

    def register(self, _servicer, server) -> None:
        codec = {"request_deserializer": Note.FromString, "response_serializer": _encode}
        handlers = {
            "One": grpc.unary_unary_rpc_method_handler(self._one, **codec),
            "Down": grpc.unary_stream_rpc_method_handler(self._down, **codec),
            "Up": grpc.stream_unary_rpc_method_handler(self._up, **codec),
            "Both": grpc.stream_stream_rpc_method_handler(self._both, **codec),
        }
        generic = grpc.method_handlers_generic_handler(SERVICE, handlers)
        server.add_generic_rpc_handlers((generic,))
        server.add_registered_method_handlers(SERVICE, handlers)


def _encode(message: Note | bytes) -> bytes:
    return message if isinstance(message, bytes) else message.SerializeToString()


class Client:
    def __init__(self, channel) -> None:
        codec = {"request_serializer": _encode, "response_deserializer": Note.FromString}
        self.one = channel.unary_unary(f"/{SERVICE}/One", **codec)
        self.down = channel.unary_stream(f"/{SERVICE}/Down", **codec)
        self.up = channel.stream_unary(f"/{SERVICE}/Up", **codec)
        self.both = channel.stream_stream(f"/{SERVICE}/Both", **codec)

    async def each(self, note: Note, **options) -> list[grpc.aio.AioRpcError | None]:
        """What became of a call of each kind."""

        async def notes():
            yield note

        async def last(stream):
            return await anext(aiter(stream))

        return await asyncio.gather(
            outcome(lambda: self.one(note, **options)),
            outcome(lambda: last(self.down(note, **options))),
            outcome(lambda: self.up(notes(), **options)),
            outcome(lambda: last(self.both(notes(), **options))),
        )


async def outcome(call: Callable[[], Awaitable[object]]) -> grpc.aio.AioRpcError | None:
    """With what a call is refused."""
    while True:
        try:
            await call()
        except grpc.aio.AioRpcError as error:
            # gRPC's own word for a write to a stream that was refused at that moment: its status
            # is lost with that.
            if error.details() != "Internal error from Core":
                return error
        else:
            return None


def note(text: str = "hello") -> Note:
    block = content_pb2.ContentBlock(text=content_pb2.TextBlock(text=text))
    message = user_event_pb2.UserMessage(content=[block])
    return Note(session_id="sesn_1", events=[event_pb2.Event(user_message=message)])


@pytest.fixture
async def stack():
    async with AsyncExitStack() as entered:
        yield entered


@pytest.fixture
def probe():
    return Probe()


@pytest.fixture
async def server(probe, stack):
    started = GrpcServer("127.0.0.1:0", TOKEN)
    started.add(probe.register, probe)
    await started.start()
    stack.push_async_callback(started.stop, 0)
    return started


@pytest.fixture
async def channel(server, stack):
    return await stack.enter_async_context(open_channel(server.address, TOKEN))


@pytest.fixture
def client(channel):
    return Client(channel)


@pytest.fixture
async def stranger(server, stack):
    """A channel that says nothing about itself."""
    return await stack.enter_async_context(grpc.aio.insecure_channel(server.address))


async def test_call_of_every_kind_gets_through(client):
    assert await client.each(note()) == [None] * 4


@pytest.mark.parametrize(
    "metadata",
    [
        (),
        (("authorization", "Bearer wrong"),),
        (("authorization", "Bearer "),),
        (("authorization", "Basic installation-secret"),),
        (("authorization", "installation-secret"),),
        (("authorization", "Bearer wrong"), ("authorization", "Bearer installation-secret")),
    ],
)
async def test_call_without_the_secret_is_refused_before_anything_else(stranger, probe, metadata):
    broken = Note()  # which the rules would refuse
    for error in await Client(stranger).each(broken, metadata=metadata):
        assert error.code() is grpc.StatusCode.UNAUTHENTICATED
        assert from_rpc_error(error).reason is Reason.IDENTITY_REFUSED
    assert probe.calls == []


async def test_unknown_method_is_refused_like_any_other_without_the_secret(stranger, channel):
    for opened, code in ((stranger, "UNAUTHENTICATED"), (channel, "UNIMPLEMENTED")):
        with pytest.raises(grpc.RpcError) as caught:
            await opened.unary_unary("/probe.v1.ProbeService/Missing")(b"")
        assert caught.value.code().name == code


async def test_empty_secret_serves_nobody():
    with pytest.raises(ValueError, match="empty"):
        GrpcServer("127.0.0.1:0", Secret(""))


async def test_health_needs_no_secret_and_turns_first_when_the_server_stops(stranger, server):
    health = health_pb2_grpc.HealthStub(stranger)
    for name in ("", SERVICE):
        answer = await health.Check(health_pb2.HealthCheckRequest(service=name))
        assert answer.status == health_pb2.HealthCheckResponse.SERVING
    watch = health.Watch(health_pb2.HealthCheckRequest(service=SERVICE))
    assert (await watch.read()).status == health_pb2.HealthCheckResponse.SERVING
    stopping = asyncio.create_task(server.stop(grace=0.2))
    assert (await watch.read()).status == health_pb2.HealthCheckResponse.NOT_SERVING
    await stopping


async def test_context_travels_with_calls_of_every_kind(client, probe):
    call = CallContext("wrkspc_9", "req_9")
    with call_context(call):
        await client.one(note())
        await anext(aiter(client.down(note())))
    assert probe.calls == [call, call]


async def test_call_from_outside_any_request_gets_a_request_id(client, probe):
    await client.one(note())
    (call,) = probe.calls
    assert call.workspace_id == "wrkspc_default"
    assert call.request_id.startswith("req_01")


async def test_unary_calls_have_a_deadline_and_streams_have_none(client, probe):
    await client.one(note())
    await client.one(note(), timeout=15)
    await anext(aiter(client.down(note())))
    default, given, stream = probe.deadlines
    assert 15 < default < 31
    assert 0 < given < 16
    assert stream is None


async def test_rules_hold_for_every_message_of_every_kind(client):
    for error in await client.each(Note(session_id="sesn_1", events=[event_pb2.Event()])):
        assert error.code() is grpc.StatusCode.INVALID_ARGUMENT
        assert error.details() == "events.0.type: a value is required"
        bad = error_details_pb2.BadRequest()
        assert any(detail.Unpack(bad) for detail in _status(error).details)
        assert bad.field_violations[0].field == "events.0.type"

    async def second_is_broken():
        yield note()
        yield Note(session_id="sesn_1")

    with pytest.raises(grpc.RpcError, match="events: at least 1 item"):
        await client.up(second_is_broken())


@pytest.mark.parametrize(
    "raw", [b"\xff\xff\xff", b"\x0a\x02\xff\xfe"], ids=["cut off", "not UTF-8"]
)
async def test_bytes_that_are_no_message_are_refused_in_every_kind_of_call(client, raw):
    with capture_logs() as logs:
        errors = await client.each(raw)
    for error in errors:
        assert error.code() is grpc.StatusCode.INVALID_ARGUMENT
        assert "no message of the method's type" in error.details()
    assert not [line for line in logs if line["log_level"] == "error"]


async def test_drover_error_arrives_with_its_reason_delay_and_metadata(client, probe):
    async def fail(_note):
        raise DroverError(Reason.LEASE_LOST, "lost", retry_after=0.5, generation="7")

    probe.answer = fail
    for error in await client.each(note()):
        received = from_rpc_error(error)
        assert error.code() is grpc.StatusCode.FAILED_PRECONDITION
        assert received.reason is Reason.LEASE_LOST
        assert received.retry_after == 0.5
        assert received.metadata == {"generation": "7"}


async def test_longest_message_still_arrives(client, probe):
    async def fail(_note):
        raise DroverError(Reason.INVALID_ARGUMENT, "ß" * 100_000)

    probe.answer = fail
    for error in await client.each(note()):
        assert from_rpc_error(error).message == "ß" * 2_000


async def test_unknown_exception_shows_an_id_to_the_caller_and_its_text_to_the_log(client, probe):
    async def fail(_note):
        raise LookupError("the inside story")

    probe.answer = fail
    with capture_logs() as logs:
        errors = await client.each(note())
    for error in errors:
        received = from_rpc_error(error)
        assert received.reason is Reason.INTERNAL
        assert "inside story" not in error.details()
        (line,) = [line for line in logs if line["error_id"] == received.metadata["error_id"]]
        assert line["log_level"] == "error"
        assert isinstance(line["exc_info"], LookupError)


async def test_error_of_a_call_made_by_a_handler_keeps_its_reason(client, probe):
    async def fail(_note):
        raise DroverError(Reason.NOT_FOUND, "no such session")

    async def call_on(received):
        probe.answer = fail
        return await client.one(received)

    probe.answer = call_on
    with pytest.raises(grpc.RpcError) as caught:
        await client.one(note())
    assert from_rpc_error(caught.value).reason is Reason.NOT_FOUND


async def test_failed_call_of_a_handler_leaves_its_cause_in_the_log(client, probe):
    async def fail(_note):
        raise DroverError(Reason.UNAVAILABLE, "not now") from OSError("disk full")

    probe.answer = fail
    with capture_logs() as logs, pytest.raises(grpc.RpcError):
        await client.one(note())
    assert (logs[0]["event"], logs[0]["log_level"]) == ("rpc_refused", "warning")
    assert logs[0]["cause"] == "OSError('disk full')"


@pytest.mark.parametrize("kind", ["one", "down"])
async def test_span_of_an_rpc_is_a_child_of_its_callers_span(client, probe, spans, kind):
    async def fail(_note):
        raise DroverError(Reason.CONFLICT, "lost the race")

    probe.answer = fail
    with tracing.tracer("test").start_as_current_span("caller"):
        for outcome in await client.each(note()):
            assert outcome is not None
    caller = spans()[-1]

    def served() -> list[ReadableSpan]:
        return [span for span in spans() if span.name == f"{SERVICE}/{kind.capitalize()}"]

    await eventually(served)  # it ends once the refusal is sent
    (span,) = served()
    assert span.parent.span_id == caller.context.span_id
    assert span.kind is SpanKind.SERVER
    assert dict(span.attributes) == {
        "rpc.system.name": "grpc",
        "rpc.method": span.name,
        "rpc.response.status_code": "ABORTED",
        "error.type": "CONFLICT",
    }


async def test_single_failure_of_a_task_group_is_unwrapped(client, probe):
    async def fail(_note):
        async def lose():
            raise DroverError(Reason.CONFLICT, "lost the race")

        async with asyncio.TaskGroup() as group:
            group.create_task(lose())

    probe.answer = fail
    with pytest.raises(grpc.RpcError) as caught:
        await client.one(note())
    assert from_rpc_error(caught.value).reason is Reason.CONFLICT


async def test_cancelled_call_cancels_its_handler(client, probe):
    entered, cancelled = asyncio.Event(), asyncio.Event()

    async def wait_for_ever(_note):
        entered.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.set()
            raise

    probe.answer = wait_for_ever
    call = client.one(note())
    await asyncio.wait_for(entered.wait(), 30)
    call.cancel()
    await asyncio.wait_for(cancelled.wait(), 30)


async def test_generator_of_a_stream_that_its_reader_left_is_closed_at_once(client, probe):
    stream = client.down(note())
    await stream.read()
    stream.cancel()
    await asyncio.wait_for(probe.closed.wait(), 30)


async def test_messages_well_over_grpcs_own_limit_pass(client):
    text = "x" * (40 * 1024 * 1024)
    answer = await client.one(note(text))
    assert answer.events[0].user_message.content[0].text.text == text


async def test_message_over_the_limit_is_too_large(client):
    with pytest.raises(grpc.RpcError) as caught:
        await client.one(note("x" * (65 * 1024 * 1024)))
    assert from_rpc_error(caught.value).reason is Reason.REQUEST_TOO_LARGE


async def test_second_server_on_the_same_port_does_not_start(server):
    second = GrpcServer(server.address, TOKEN)
    with pytest.raises(CannotStartError, match="is it taken"):
        await second.start()


async def test_restarted_server_is_found_again_soon(client, probe, server, stack):
    await client.one(note())
    await server.stop(0)
    with pytest.raises(grpc.RpcError):
        await client.one(note())
    again = GrpcServer(server.address, TOKEN)
    again.add(probe.register, probe)
    await again.start()
    stack.push_async_callback(again.stop, 0)
    await client.one(note(), wait_for_ready=True, timeout=30)


@pytest.mark.parametrize("reflection", [True, False])
async def test_grpcurl_lists_services_with_the_secret_alone(stack, reflection):
    server = GrpcServer("127.0.0.1:0", TOKEN, reflection=reflection)
    server.add(Probe().register, None)
    await server.start()
    stack.push_async_callback(server.stop, 0)
    header = f"authorization: Bearer {TOKEN.open()}"
    code, listed = await _grpcurl("-H", header, server.address, "list")
    assert (code == 0) == reflection
    assert (SERVICE in listed) == reflection
    assert (await _grpcurl(server.address, "list"))[0] != 0
    health = "grpc.health.v1.Health/Check"
    code, answer = await _grpcurl("-H", header, server.address, health)
    assert (code == 0) == reflection
    if reflection:
        assert json.loads(answer) == {"status": "SERVING"}


async def _grpcurl(*arguments: str) -> tuple[int, str]:
    program = Path(sys.executable).with_name("grpcurl")  # from the development requirements
    process = await asyncio.create_subprocess_exec(
        program,
        "-plaintext",
        *arguments,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, _ = await asyncio.wait_for(process.communicate(), 30)
    return process.returncode, out.decode()


def _status(error: grpc.aio.AioRpcError) -> status_pb2.Status:
    return status_pb2.Status.FromString(dict(error.trailing_metadata())[DETAILS_KEY])


async def test_every_call_is_counted_with_its_method_and_its_outcome(stack, probe) -> None:
    registry = CollectorRegistry()
    server = GrpcServer("127.0.0.1:0", TOKEN, registry=registry)
    server.add(probe.register, None)
    await server.start()
    stack.push_async_callback(server.stop, 0)
    client = Client(await stack.enter_async_context(open_channel(server.address, TOKEN)))
    await client.one(note())

    refused = []

    async def refuse(_note: Note) -> Note:
        refused.append(1)
        raise DroverError(Reason.NOT_FOUND, "nothing there")

    probe.answer = refuse
    await client.each(note())

    def count(method: str, code: str) -> float | None:
        labels = {"method": f"{SERVICE}/{method}", "code": code}
        return registry.get_sample_value("drover_rpc_seconds_count", labels)

    def counts() -> list[float]:
        return [count(kind, "NOT_FOUND") or 0 for kind in ("One", "Down", "Up", "Both")]

    assert count("One", "OK") == 1
    await eventually(lambda: sum(counts()) >= len(refused))  # each once its refusal is sent
    assert (sum(counts()), counts()[:2]) == (len(refused), [1, 1])
    assert all(counts())


async def test_health_is_as_the_service_reports_it_and_calls_are_taken_all_the_same(
    server, channel
) -> None:
    stub = health_pb2_grpc.HealthStub(channel)
    for serving, expected in ((False, "NOT_SERVING"), (True, "SERVING")):
        await server.report(serving=serving)
        for name in ("", SERVICE):
            answer = await stub.Check(health_pb2.HealthCheckRequest(service=name))
            assert health_pb2.HealthCheckResponse.ServingStatus.Name(answer.status) == expected
        await Client(channel).one(note())
