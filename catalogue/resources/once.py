"""Requests that have their effect once, however often they come."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from drover.api.v1.request_key_pb2 import RequestKey

T = TypeVar("T")


@dataclass(slots=True)
class Once(Generic[T]):
    """A request that a store answers as it did before, if it did.

    `pack` makes of a result the answer that is kept, `unpack` the result of such an answer again;
    both are pure. `replayed` is set by the store when that was done.
    """

    key: RequestKey
    pack: Callable[[T], bytes]
    unpack: Callable[[bytes], T]
    replayed: bool = False
