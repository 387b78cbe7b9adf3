"""The services behind the gateway: one channel to each process, calls by descriptor, health."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Protocol

import grpc
from google.protobuf.message_factory import GetMessageClass
from grpc_health.v1 import health_pb2, health_pb2_grpc

from chassis.context import IDEMPOTENCY_KEY, REPLAYED_KEY
from chassis.grpc.status import from_rpc_error
from gateway.cancellation import cancellation
from gateway.processes import kind
from gateway.transfer import LONGEST_SECONDS, Receiving, Sending

if TYPE_CHECKING:
    from collections.abc import Awaitable, Mapping

    import grpc.aio
    from google.protobuf.descriptor import MethodDescriptor, ServiceDescriptor
    from google.protobuf.message import Message

    from drover.api.v1.request_key_pb2 import RequestKey
    from gateway.transfer import Download, Upload


class Unary(Protocol):
    """Calls a unary RPC."""

    def __call__(
        self, request: Message, key: RequestKey | None = None
    ) -> Awaitable[tuple[Any, bool]]:
        """The answer, and whether it is one that was given before. Raises `DroverError`.

        `key` tells the request from others, so that its repetition has no second effect.
        """
        ...


class Stream(Protocol):
    """Opens a server stream, whose messages stay in their wire form."""

    def __call__(
        self, request: Message, *, wait_for_ready: bool = False
    ) -> grpc.aio.UnaryStreamCall[Any, bytes]:
        """The call. With `wait_for_ready` it waits for a connection rather than failing."""
        ...


_HEALTH_SECONDS = 2.0
_HEALTH_CHECKS = 4
"""Of a service that says no: replicas answer in turns, and another may say yes."""
_SPOKEN = {"vault_proxy": "the vault proxy"}


class Upstream:
    """Calls RPCs of the processes in `channels`; `served` says which process has a service."""

    def __init__(
        self,
        channels: Mapping[str, grpc.aio.Channel],
        served: Mapping[ServiceDescriptor, str],
        *,
        deadline: float,
    ) -> None:
        self._channels = channels
        self._served = {service.full_name: process for service, process in served.items()}
        self._deadline = deadline

    def unary(self, method: MethodDescriptor) -> Unary:
        """Calls a unary RPC, within the deadline. Raises `DroverError`."""
        call = self._channel(method).unary_unary(
            _path(method),
            request_serializer=_serialize,
            response_deserializer=GetMessageClass(method.output_type).FromString,
        )
        deadline, callee = self._deadline, self._callee(method)

        async def invoke(request: Message, key: RequestKey | None = None) -> tuple[object, bool]:
            try:
                if key is None:
                    return await call(request, timeout=deadline), False
                metadata = ((IDEMPOTENCY_KEY, key.SerializeToString()),)
                under_way: Any = call(request, timeout=deadline, metadata=metadata)
                answer = await under_way
                return answer, REPLAYED_KEY in await under_way.trailing_metadata()
            except grpc.RpcError as error:
                raise from_rpc_error(error, callee) from error
            except asyncio.CancelledError as error:
                raise cancellation(error) from None

        return invoke

    def stream(self, method: MethodDescriptor) -> Stream:
        """Opens a server stream, whose messages stay in their wire form."""
        call: Stream = self._channel(method).unary_stream(
            _path(method), request_serializer=_serialize, response_deserializer=None
        )
        return call

    def upload(self, method: MethodDescriptor) -> Upload:
        """Opens a client stream, each of whose steps has the deadline."""
        call: Any = self._channel(method).stream_unary(
            _path(method),
            request_serializer=_serialize,
            response_deserializer=GetMessageClass(method.output_type).FromString,
        )
        deadline, callee = self._deadline, self._callee(method)
        return lambda: Sending(call(timeout=LONGEST_SECONDS), callee, deadline)

    def download(self, method: MethodDescriptor) -> Download:
        """Opens a server stream, each of whose steps has the deadline."""
        call = self._channel(method).unary_stream(
            _path(method),
            request_serializer=_serialize,
            response_deserializer=GetMessageClass(method.output_type).FromString,
        )
        deadline, callee = self._deadline, self._callee(method)
        return lambda request: Receiving(call(request, timeout=LONGEST_SECONDS), callee, deadline)

    async def unready(self) -> dict[str, str]:
        """The processes that do not answer their health check with SERVING now, and why.

        None of a service of which one does: that one is enough while another is replaced.
        """
        names = list(self._channels)
        states = await asyncio.gather(*(self._health(name) for name in names))
        found = dict(zip(names, states, strict=True))
        served = {kind(name) for name, state in found.items() if not state}
        return {name: state for name, state in found.items() if kind(name) not in served}

    async def _health(self, process: str) -> str:
        stub = health_pb2_grpc.HealthStub(self._channels[process])
        request, state = health_pb2.HealthCheckRequest(), ""
        try:
            async with asyncio.timeout(_HEALTH_SECONDS):
                for _ in range(_HEALTH_CHECKS):
                    answer = await stub.Check(request, timeout=_HEALTH_SECONDS)
                    if answer.status == health_pb2.HealthCheckResponse.SERVING:
                        return ""
                    state = health_pb2.HealthCheckResponse.ServingStatus.Name(answer.status)
        except grpc.RpcError as error:
            return state or str(error.code().name)
        except TimeoutError:
            return state or grpc.StatusCode.DEADLINE_EXCEEDED.name
        return state

    def _callee(self, method: MethodDescriptor) -> str:
        process = self._served[method.containing_service.full_name]
        return _SPOKEN.get(process, f"the {process} service")

    def _channel(self, method: MethodDescriptor) -> grpc.aio.Channel:
        return self._channels[self._served[method.containing_service.full_name]]


def _path(method: MethodDescriptor) -> str:
    return f"/{method.containing_service.full_name}/{method.name}"


def _serialize(message: Message) -> bytes:
    return message.SerializeToString()
