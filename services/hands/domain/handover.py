"""Handing a hand on: who has it, decided by one durable record before anything moves.

The record is the intent and the truth at once: from its commit on the receiver has the hand, and
the giver's calls are refused. What is left to do then, moving the files, is done again until it is
done; a process that died on the way leaves a record that is not settled.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from chassis.errors import DroverError, Reason
from services.hands.domain.address import address, shown

if TYPE_CHECKING:
    from collections.abc import Sequence

HANDED_OVER = "hand_handed_over"
BUSY = "hand_busy"
HAS_MEMORY = "hand_has_memory_stores"


@dataclass(frozen=True, slots=True)
class HandOver:
    """Which session's hand becomes which session's, and under which name."""

    session_id: str
    hand: str
    to_session_id: str
    to_hand: str

    @property
    def where(self) -> str:
        """The address that it leaves."""
        return address(self.session_id, self.hand)

    @property
    def to(self) -> str:
        """The address that it gets."""
        return address(self.to_session_id, self.to_hand)


@dataclass(frozen=True, slots=True)
class Generations:
    """The lease generations that the two sessions are spoken for with; 0 is none."""

    giver: int
    receiver: int = 0


class HandOvers(Protocol):
    """The durable record of what was handed on. What a method did is durable when it returns."""

    async def begin(self, handover: HandOver, generations: Generations, workspace_id: str) -> None:
        """Records that the receiver has the hand; what it once gave away at that address is its.

        In the same transaction both sessions' fences are heeded. Raises LEASE_LOST, and NOT_FOUND
        for a session that has not been seen in this workspace.
        """
        ...

    async def settle(self, handover: HandOver) -> None:
        """Records that the files are where they belong."""
        ...

    async def unsettled(self) -> Sequence[HandOver]:
        """What was begun and is not settled, in the order in which it was begun."""
        ...

    async def find(self, session_id: str, hand: str) -> HandOver | None:
        """Whom a hand was given to, if it was given away."""
        ...

    async def givers(self) -> set[str]:
        """The sessions that gave something away."""
        ...

    async def forget(self, session_id: str) -> None:
        """Forgets what a session gave away."""
        ...


def check_sense(handover: HandOver) -> None:
    """Raises INVALID_ARGUMENT for a hand that would stay where it is."""
    if handover.where == handover.to:
        raise DroverError(
            Reason.INVALID_ARGUMENT, "to_session_id: it is that session's hand already"
        )


def not_made(session_id: str, hand: str) -> DroverError:
    """The answer to who would give what is not there, or is another workspace's."""
    return DroverError(Reason.NOT_FOUND, f"session {session_id} has not made {shown(hand)}")


def not_seen(session_id: str) -> DroverError:
    """The answer where a session is not known here, or is another workspace's."""
    return DroverError(Reason.NOT_FOUND, f"session {session_id} has no hand that was seen here")


def refused(given: HandOver) -> DroverError:
    """The answer to a giver that still asks for what it gave away."""
    return DroverError(
        Reason.ARCHIVED,
        f"{shown(given.hand)} was handed over to session {given.to_session_id}",
        error_code=HANDED_OVER,
    )


def busy(hand: str, why: str) -> DroverError:
    """The answer to who would hand on what is in use."""
    return DroverError(Reason.SESSION_RUNNING, f"{shown(hand)} is in use: {why}", error_code=BUSY)


def has_memory(hand: str) -> DroverError:
    """The refusal of handing on a hand that is tied to memory stores of its session."""
    return DroverError(
        Reason.ARCHIVED,
        f"{shown(hand)} has memory stores of this session mounted, and cannot be handed on",
        error_code=HAS_MEMORY,
    )


def moving(hand: str) -> DroverError:
    """The answer to who asks for a hand while it is being handed on; it is soon over."""
    return DroverError(Reason.UNAVAILABLE, f"{shown(hand)} is being handed over", retry_after=0.1)
