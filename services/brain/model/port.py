"""The port through which the brain reaches a model: prepared bytes in, raw stream events out.

The body is prepared by the harness, because the prefix that a prompt cache keys on must stay the
same bytes from turn to turn. The events come out as the Messages API sends them, so that what the
harness keeps of them (ids, signatures, blocks of a later kind) can be sent back unchanged.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping, Sequence
    from contextlib import AbstractAsyncContextManager


class ModelErrorKind(StrEnum):
    """What went wrong with a model request, in the classes that EVENTS §7 tells a client apart."""

    OVERLOADED = "overloaded"
    RATE_LIMITED = "rate_limited"
    REQUEST_FAILED = "request_failed"
    CONNECTION = "connection"
    AUTHENTICATION = "authentication"
    BILLING = "billing"


class ModelError(Exception):
    """A model request that failed, before its stream or in the middle of it.

    `status` is the HTTP status, None where there was no answer or the failure came inside a
    stream that had begun with 200. `retry_after` is the wait in seconds the server asked for.
    `retryable` says that the same bytes may succeed later, `overflow` that a shorter conversation
    would have been taken. `message` is meant for people and holds no credential; `advice` names
    what to check where a credential is at fault.
    """

    def __init__(
        self,
        kind: ModelErrorKind,
        message: str,
        *,
        status: int | None = None,
        retry_after: float | None = None,
        retryable: bool,
        overflow: bool = False,
        advice: str = "",
    ) -> None:
        super().__init__(message)
        self.kind = kind
        self.message = message
        self.status = status
        self.retry_after = retry_after
        self.retryable = retryable
        self.overflow = overflow
        self.advice = advice

    def __repr__(self) -> str:
        return (
            f"ModelError({self.kind.value}, {self.message!r}, status={self.status}, "
            f"retry_after={self.retry_after}, retryable={self.retryable})"
        )


class ModelClient(Protocol):
    """A server that speaks the Messages API, whoever runs it."""

    @property
    def provider(self) -> str:
        """Who serves the models, in the words of the GenAI conventions (`gen_ai.provider.name`)."""
        ...

    def stream(
        self, body: bytes, *, betas: Sequence[str] = ()
    ) -> AbstractAsyncContextManager[AsyncIterator[Mapping[str, Any]]]:
        """Send one request and iterate over its stream events, decoded from JSON, in order.

        `body` is the JSON of `POST /v1/messages` and holds `"stream": true`; `betas` become the
        `anthropic-beta` header. Entering sends the request and waits for the answer's status;
        leaving before the end closes the connection, which stops the model. Pings are left out.

        The iteration ends after `message_stop`. Entering and iterating raise ModelError, a stream
        that ends before `message_stop` included (kind CONNECTION). Nothing is retried here: the
        caller knows what the turn has already shown.
        """
        ...
