"""The ports of what is brought into hands before their calls, and of what attends to those calls.

The pool holds them, in `pieces` and `attendants`, and knows no more of them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from contextlib import AbstractAsyncContextManager

    from drover.hands.v1.mounts_pb2 import FoundSkill
    from services.hands.domain.mounts import Mounts
    from services.hands.hand import Hand


class Piece(Protocol):
    """Something that a hand must have before a call runs in it.

    `where` is the hand's address, `mounts` what the newest request asks for: it is the truth, also
    for what is there and is not asked for any more.
    """

    def settled(self, where: str, hand: Hand, mounts: Mounts) -> bool:
        """Whether `ready` has nothing to do. On the path of every call: no system calls."""
        ...

    async def ready(self, where: str, hand: Hand, mounts: Mounts, *, again: bool) -> None:
        """Waits until all is there, or has failed; not for ever, as that goes on.

        `hand.tell` is for what has failed, which is tried once more with `again`. Raises nothing.
        """
        ...

    def busy(self, where: str) -> bool:
        """Whether anything is being brought into the hand at an address."""
        ...


@dataclass(slots=True)
class Told:
    """What a call's result says beside the tool's own words.

    `notes` and `errors` are below them, and `errors` make it an error. `found` are skills. `after`
    is done when the result has been recorded, and raises nothing.
    """

    notes: list[str] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    found: list[FoundSkill] = field(default_factory=list)
    after: list[Callable[[], Awaitable[None]]] = field(default_factory=list)


class Attendant(Protocol):
    """Something that accompanies each call in a hand."""

    def wanted(self, where: str, hand: Hand, mounts: Mounts) -> bool:
        """Whether this call is accompanied. On the path of every call: no system calls."""
        ...

    def attend(
        self, where: str, hand: Hand, mounts: Mounts, call_id: str
    ) -> AbstractAsyncContextManager[Told]:
        """Entered just before the tool runs, left when it has ended, whichever way.

        Both are waited for, so both must be bounded in time. Raises nothing of its own.
        """
        ...
