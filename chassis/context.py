"""Who is calling: carried in a context variable and, between processes, in gRPC metadata."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

WORKSPACE_KEY = "x-drover-workspace-id"
REQUEST_KEY = "x-request-id"
IDEMPOTENCY_KEY = "x-drover-idempotency-bin"
REPLAYED_KEY = "x-drover-replayed"
DEFAULT_WORKSPACE = "wrkspc_default"


@dataclass(frozen=True, slots=True)
class CallContext:
    """The workspace that a call is scoped to, and its request's id: empty outside any request.

    `idempotency` is a `drover.api.v1.RequestKey`, serialized; it goes no further than this call.
    """

    workspace_id: str = DEFAULT_WORKSPACE
    request_id: str = ""
    idempotency: bytes = b""


_call: ContextVar[CallContext] = ContextVar("drover_call", default=CallContext())  # noqa: B039


def current_call() -> CallContext:
    """The call that the running task serves; the default workspace outside any call."""
    return _call.get()


@contextmanager
def call_context(call: CallContext) -> Iterator[None]:
    """Runs its body as part of `call`: outbound gRPC calls and log lines carry its ids."""
    token = _call.set(call)
    try:
        yield
    finally:
        _call.reset(token)
