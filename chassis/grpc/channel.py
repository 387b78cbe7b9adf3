"""The channel that Drover's processes call each other over.

A thin wrapper around gRPC's channel adds the metadata: gRPC's own client interceptors start a task
per call and cost several times as much.
"""

# ruff: noqa: ANN401  # messages of every type pass through here
from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

import grpc
import grpc.aio

from chassis.context import REQUEST_KEY, WORKSPACE_KEY, current_call
from chassis.grpc import options
from chassis.telemetry import tracing

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from chassis.secret import Secret

DEFAULT_DEADLINE = 30.0
"""Seconds that a call with a unary answer may take when its caller names no `timeout`."""


def open_channel(
    address: str, token: Secret, *, deadline: float = DEFAULT_DEADLINE
) -> grpc.aio.Channel:
    """A channel to `address` that identifies this process and carries the call context.

    Every call carries the secret, the workspace, the request id and, while a span is recorded, its
    trace context. Calls with a unary answer get `deadline` seconds unless they name a `timeout`;
    streams are bounded by their callers. Nothing is dialled before the first call.
    """
    inner = grpc.aio.insecure_channel(address, options=options.CHANNEL)
    return _Channel(inner, f"Bearer {token.open()}", deadline)


class _Channel(grpc.aio.Channel):
    """Adds metadata and the default deadline to what the inner channel does."""

    def __init__(self, inner: grpc.aio.Channel, bearer: str, deadline: float) -> None:
        self._inner = inner
        self._bearer = bearer
        self._deadline = deadline

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_error: object) -> None:
        await self.close()

    async def close(self, grace: float | None = None) -> None:
        await self._inner.close(grace)

    def get_state(self, try_to_connect: bool = False) -> grpc.ChannelConnectivity:
        return self._inner.get_state(try_to_connect)

    async def wait_for_state_change(self, last_observed_state: grpc.ChannelConnectivity) -> None:
        await self._inner.wait_for_state_change(last_observed_state)

    async def channel_ready(self) -> None:
        await self._inner.channel_ready()

    def unary_unary(self, *args: Any, **kwargs: Any) -> Any:
        return self._with_metadata(self._inner.unary_unary(*args, **kwargs), self._deadline)

    def unary_stream(self, *args: Any, **kwargs: Any) -> Any:
        return self._with_metadata(self._inner.unary_stream(*args, **kwargs), None)

    def stream_unary(self, *args: Any, **kwargs: Any) -> Any:
        return self._with_metadata(self._inner.stream_unary(*args, **kwargs), self._deadline)

    def stream_stream(self, *args: Any, **kwargs: Any) -> Any:
        return self._with_metadata(self._inner.stream_stream(*args, **kwargs), None)

    def _with_metadata(
        self, method: Callable[..., Any], deadline: float | None
    ) -> Callable[..., Any]:
        def call(
            request: Any = None,
            *,
            timeout: float | None = None,
            metadata: Sequence[tuple[str, str]] = (),
            **options: Any,
        ) -> Any:
            return method(
                request,
                timeout=deadline if timeout is None else timeout,
                metadata=self._metadata(metadata),
                **options,
            )

        return call

    def _metadata(self, given: Sequence[tuple[str, str]]) -> grpc.aio.Metadata:
        call = current_call()
        pairs = [("authorization", self._bearer), (WORKSPACE_KEY, call.workspace_id), *given]
        if call.request_id:
            pairs.append((REQUEST_KEY, call.request_id))
        if tracing.enabled():
            pairs.extend(tracing.outbound())
        return grpc.aio.Metadata(*pairs)
