"""What every RPC passes on its way in: identity, call context, rules, tracing; and errors out.

One interceptor that wraps each method once: a chain of them costs more than what they do.
"""

# ruff: noqa: ANN401  # messages of every type pass through here
from __future__ import annotations

import time
from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Awaitable, Callable
from contextlib import aclosing
from functools import partial
from typing import Any, Never, TypeAlias

import grpc
import grpc.aio
import structlog
from google.protobuf.message import DecodeError
from prometheus_client import Histogram

from chassis import context as calls
from chassis import rules
from chassis.context import CallContext, call_context
from chassis.errors import DroverError, Reason
from chassis.grpc.status import DETAILS_KEY, from_rpc_error, to_status
from chassis.ids import IdSource
from chassis.secret import Secret
from chassis.telemetry import names, tracing

Context: TypeAlias = "grpc.aio.ServicerContext[Any, Any]"
Handler: TypeAlias = "grpc.RpcMethodHandler[Any, Any]"
Refusal: TypeAlias = Callable[[str, Context], str]
"""Why whoever calls a method, `/package.Service/Method`, must not; empty if they may."""

_OPEN_TO_ALL = "/grpc.health.v1.Health/"
_FAULT = 500  # the HTTP statuses from which on a failure is the server's own
_KINDS = "unary_unary", "unary_stream", "stream_unary", "stream_stream"

_log = structlog.get_logger("chassis.grpc")


class CallInterceptor(grpc.aio.ServerInterceptor):  # type: ignore[type-arg]
    """Admits calls that carry the installation's secret and answers every failure alike.

    Those that `refusal` has a reason against it does not admit. Handlers take the messages of
    a request stream from the iterator that they are given: that is where the rules are checked.
    `seconds` takes down every call, by method and status.
    """

    def __init__(
        self, token: Secret, ids: IdSource, seconds: Histogram, refusal: Refusal | None = None
    ) -> None:
        if not token.open():
            msg = "the installation's secret is empty: every caller would pass"
            raise ValueError(msg)
        self._token, self._refusal = token, refusal
        self._ids, self._seconds = ids, seconds
        self._wrapped: dict[str, Handler] = {}

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[Any]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> Any:
        """The wrapped handler of the method called; a refusal without the secret."""
        method = handler_call_details.method
        if method.startswith(_OPEN_TO_ALL):
            return await continuation(handler_call_details)
        if not self._admits(handler_call_details.invocation_metadata):
            # Bidirectional: it answers a call of any kind without reading from it.
            return grpc.stream_stream_rpc_method_handler(self._refuse)
        if method not in self._wrapped:
            handler = await continuation(handler_call_details)
            if handler is None:
                return None
            self._wrapped[method] = self._wrap(method, handler)
        return self._wrapped[method]

    def _admits(self, metadata: Any) -> bool:
        given = [str(value) for key, value in metadata if key == "authorization"]
        scheme, _, token = given[0].partition(" ") if len(given) == 1 else ("", "", "")
        return scheme.lower() == "bearer" and self._token.matches(token)

    def _permit(self, method: str, context: Context) -> None:
        if self._refusal and (why := self._refusal(method, context)):
            raise DroverError(Reason.PERMISSION_DENIED, why)

    async def _refuse(self, _requests: object, context: Context) -> None:
        await _abort(context, DroverError(Reason.IDENTITY_REFUSED, "the secret is required"))

    def _wrap(self, method: str, handler: Any) -> Handler:
        kind = next(kind for kind in _KINDS if getattr(handler, kind))
        behavior = getattr(handler, kind)
        # Read here and not by gRPC, which answers UNKNOWN for what is no message.
        read = _reading(handler.request_deserializer)
        receive = partial(_each, read) if handler.request_streaming else read
        name = method.removeprefix("/")
        attributes = {names.RPC_SYSTEM_NAME: "grpc", names.RPC_METHOD: name}

        # A coroutine for streams too: when their call is cancelled, the handler's generator is
        # closed at once, in its own task and context, not by the garbage collector.
        async def serve(request: Any, context: Context) -> Any:
            metadata = context.invocation_metadata() or ()
            span = tracing.server_span(name, metadata, attributes)
            start, code = time.perf_counter(), "CANCELLED"
            with call_context(self._call(metadata)), span:
                try:
                    self._permit(method, context)
                    response = behavior(receive(request), context)
                    if isinstance(response, AsyncGenerator):
                        response = _write_each(response, context)
                    answer = await response
                    code = "OK"
                except Exception as error:  # noqa: BLE001  # mapped, logged and sent
                    failure = self._failure(method, error)
                    code = failure.rule.grpc
                    await _abort(context, failure)
                finally:
                    self._seconds.labels(name, code).observe(time.perf_counter() - start)
            return answer

        wrapped: Handler = handler._replace(request_deserializer=None, **{kind: serve})
        return wrapped

    def _call(self, metadata: Any) -> CallContext:
        given = dict(metadata)
        workspace_id = given.get(calls.WORKSPACE_KEY, calls.DEFAULT_WORKSPACE)
        request_id = given.get(calls.REQUEST_KEY) or self._ids("req")
        return CallContext(workspace_id, request_id, given.get(calls.IDEMPOTENCY_KEY, b""))

    def _failure(self, method: str, error: Exception) -> DroverError:
        while isinstance(error, ExceptionGroup) and len(error.exceptions) == 1:
            error = error.exceptions[0]  # the one failure of a handler's task group
        if isinstance(error, grpc.aio.AbortError):
            raise error
        if isinstance(error, grpc.RpcError):
            error = from_rpc_error(error)
        # A message could not be sent, or read, any more; a misuse of gRPC is a fault of ours.
        if isinstance(error, grpc.aio.BaseError) and not isinstance(error, grpc.aio.UsageError):
            error = DroverError(Reason.CANCELLED, "the caller is gone")
        if isinstance(error, DroverError):
            log = getattr(_log, error.rule.level)
            cause = error.__cause__ and repr(error.__cause__)
            log(
                "rpc_refused",
                method=method,
                reason=error.reason,
                message=error.message,
                cause=cause,
            )
        else:
            error_id = self._ids("err")
            _log.error("rpc_failed", method=method, error_id=error_id, exc_info=error)
            error = DroverError(Reason.INTERNAL, f"internal error {error_id}", error_id=error_id)
        tracing.record_failure(error.rule.grpc, error.reason, fault=error.rule.http >= _FAULT)
        return error


async def _write_each(messages: AsyncGenerator[Any, None], context: Context) -> None:
    async with aclosing(messages):
        async for message in messages:
            await context.write(message)


async def _abort(context: Context, error: DroverError) -> Never:
    status = to_status(error)
    trailers = ((DETAILS_KEY, status.SerializeToString()),)
    await context.abort(grpc.StatusCode[error.rule.grpc], status.message, trailers)


def _reading(deserialize: Callable[[bytes], Any]) -> Callable[[bytes], Any]:
    """Makes a message that keeps to the rules from its wire form, or INVALID_ARGUMENT."""

    def read(data: bytes) -> Any:
        try:
            request = deserialize(data)
        except DecodeError:
            raise DroverError(
                Reason.INVALID_ARGUMENT,
                "the request is no message of the method's type, or a string in it is not UTF-8",
            ) from None
        rules.check(request)
        return request

    return read


async def _each(read: Callable[[bytes], Any], messages: AsyncIterable[bytes]) -> AsyncIterator[Any]:
    async for data in messages:
        yield read(data)
