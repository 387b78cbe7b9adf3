"""The port of search providers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence

    from drover.agent.v1.tool_pb2 import UserLocation

MAX_RESULTS = 20
"""Results that are asked for, before those are left out that may not be shown."""


@dataclass(frozen=True, slots=True)
class Found:
    """One result, in the provider's words. `age` says how old it is, if it is known."""

    url: str
    title: str
    text: str
    age: str = ""


class SearchProvider(Protocol):
    """Something that searches the web."""

    @property
    def host(self) -> str:
        """Where it is, for the audit trail."""
        ...

    async def search(self, query: str, location: UserLocation | None) -> Sequence[Found]:
        """What it finds, best first. Raises `WebError`."""
        ...
