"""Requests as a gateway tells them to the services."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from chassis.context import IDEMPOTENCY_KEY, REPLAYED_KEY
from drover.api.v1.request_key_pb2 import RequestKey


def named(name: str, body: str = "body") -> RequestKey:
    """A request that its client named."""
    return _key(name, fingerprint=body.encode().ljust(16, b"."))


def counted(what: str, attempt: int) -> RequestKey:
    """A request that its client counts the attempts of."""
    return _key(what, attempt=attempt)


def _key(text: str, **fields: Any) -> RequestKey:
    key = RequestKey(id=text.encode().ljust(16, b"."), **fields)
    key.received_at.FromDatetime(datetime.now(UTC))
    return key


def metadata(key: RequestKey) -> tuple[tuple[str, bytes], ...]:
    """How it travels."""
    return ((IDEMPOTENCY_KEY, key.SerializeToString()),)


async def answered(method: Any, request: Any, key: RequestKey) -> tuple[Any, bool]:
    """The answer to a call, and whether it is one given before."""
    call = method(request, metadata=metadata(key))
    answer = await call
    return answer, REPLAYED_KEY in await call.trailing_metadata()
