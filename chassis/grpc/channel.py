"""The channel that Drover's processes call each other over.

Its calls are wrapped to add their metadata: a gRPC client interceptor costs twice as much.
"""

# ruff: noqa: ANN401  # messages of every type pass through here
from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import grpc
import grpc.aio

from chassis.context import REQUEST_KEY, WORKSPACE_KEY, current_call
from chassis.grpc import options
from chassis.grpc.target import resolve
from chassis.secret import Secret
from chassis.telemetry import tracing


def open_channel(
    address: str,
    token: Secret,
    *,
    deadline: float = 30.0,
    retried: Sequence[str] = (),
    tls: tuple[grpc.ChannelCredentials, Sequence[tuple[str, str]]] | None = None,
) -> grpc.aio.Channel:
    """A channel to `address` that identifies this process and carries the call context.

    `address` may stand for several replicas (`target.resolve`); reads among `retried`, given as
    `package.Service/Method`, are repeated once when a replica is UNAVAILABLE.
    `tls` goes with options that name who must answer there; without it all is in clear.
    Every call carries the secret, the workspace, the request id and, while a span is recorded, its
    trace context. Calls with a unary answer get `deadline` seconds unless they name a `timeout`;
    streams are bounded by their callers. Nothing is dialled before the first call.
    """
    where, chosen = resolve(address, retried)
    channel: Any
    if tls is None:
        channel = grpc.aio.insecure_channel(where, options=[*options.CHANNEL, *chosen])
    else:
        named = [*tls[1], *options.CHANNEL, *chosen]  # of two that are the same the first counts
        channel = grpc.aio.secure_channel(where, tls[0], options=named)
    identity = ("authorization", f"Bearer {token.open()}")
    for kind in ("unary_unary", "stream_unary"):
        setattr(channel, kind, _wrapping(getattr(channel, kind), identity, deadline))
    for kind in ("unary_stream", "stream_stream"):
        setattr(channel, kind, _wrapping(getattr(channel, kind), identity, None))
    return channel  # type: ignore[no-any-return]


def _wrapping(
    make: Callable[..., Callable[..., Any]], identity: tuple[str, str], deadline: float | None
) -> Callable[..., Callable[..., Any]]:
    """A maker of methods as `make` is one, whose calls are complete."""

    def make_wrapped(*names: Any, **codec: Any) -> Callable[..., Any]:
        method = make(*names, **codec)

        def call(
            request: Any = None,
            *,
            timeout: float | None = None,
            metadata: Iterable[tuple[str, str | bytes]] = (),
            **kwargs: Any,
        ) -> Any:
            current = current_call()
            pairs = [identity, (WORKSPACE_KEY, current.workspace_id), *metadata]
            if current.request_id:
                pairs.append((REQUEST_KEY, current.request_id))
            if tracing.enabled():
                pairs.extend(tracing.outbound())
            limit = deadline if timeout is None else timeout
            return method(request, timeout=limit, metadata=grpc.aio.Metadata(*pairs), **kwargs)

        return call

    return make_wrapped
