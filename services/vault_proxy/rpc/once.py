"""Calls that have their effect once: how their answers are kept, and told from new ones."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from catalogue.resources.once import Once
from chassis.context import REPLAYED_KEY
from storage.once import asked

if TYPE_CHECKING:
    import grpc.aio
    from google.protobuf.message import Message

    Context = grpc.aio.ServicerContext[Any, Any]


def once(kind: type[Message], field: str) -> Once[Any] | None:
    """What the running call is told by, if by anything.

    Its answer is a message of `kind`, with the result of the store in `field`. Raises
    INVALID_ARGUMENT for what is no key.
    """
    key = asked()
    if key is None:
        return None
    return Once(
        key,
        pack=lambda result: kind(**{field: result}).SerializeToString(),
        unpack=lambda stored: getattr(kind.FromString(stored), field),
    )


def is_new(call: Once[Any] | None, context: Context) -> bool:
    """Whether the call had its effect now; the caller is told if it had it before."""
    if call is None or not call.replayed:
        return True
    context.set_trailing_metadata(((REPLAYED_KEY, "true"),))
    return False
