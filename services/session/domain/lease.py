"""The lease of a session: one brain at a time, each under a higher generation (ARCHITECTURE §4)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from chassis.errors import DroverError, Reason

if TYPE_CHECKING:
    from services.session.domain.session import SessionState

LEASE_MICROS: Final = 10_000_000
"""How long a lease lives by the database's clock. Appends and renewals, every 3 s, prolong it."""


def is_live(state: SessionState, now: int) -> bool:
    """Whether a brain holds the session."""
    return state.lease_expires_at is not None and state.lease_expires_at > now


def acquire(state: SessionState, holder: str, now: int) -> None:
    """Gives the session to `holder` under the next generation.

    Raises LEASE_HELD while another lease lives, ARCHIVED when the session is at its end.
    """
    if state.ended:
        raise DroverError(Reason.ARCHIVED, "the session is at its end and needs no brain")
    if is_live(state, now):
        raise DroverError(Reason.LEASE_HELD, f"generation {state.generation} is held by another")
    state.generation += 1
    state.holder = holder
    renew(state, now)


def resume(state: SessionState, generation: int, holder: str, now: int) -> None:
    """Takes a lease up again after its stream broke. Raises LEASE_LOST when it is no more.

    One that ran out but was not passed on yet is still the holder's: nobody else has appended.
    """
    check(state, generation)
    state.holder = holder
    renew(state, now)


def check(state: SessionState, generation: int) -> None:
    """The fence of every write under a lease. Raises LEASE_LOST for all but its holder."""
    if state.lease_expires_at is None or state.generation != generation:
        raise lost(generation, state.generation)


def lost(generation: int, current: int) -> DroverError:
    """The refusal of a generation that is not, or no longer, the holder's."""
    return DroverError(
        Reason.LEASE_LOST, f"generation {generation} does not hold the session; it is at {current}"
    )


def renew(state: SessionState, now: int) -> None:
    """Prolongs the lease from now on."""
    state.lease_expires_at = now + LEASE_MICROS


def release(state: SessionState) -> None:
    """Gives the lease back: the session needs no brain. Only its holder may."""
    state.needs_brain = False
    state.holder = ""
    state.lease_expires_at = None


def revoke(state: SessionState) -> None:
    """Takes the lease away: whoever held it is fenced off by the next generation."""
    state.generation += 1
    state.holder = ""
    state.lease_expires_at = None
