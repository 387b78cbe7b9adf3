"""Fencing: a session's hands obey the newest lease that they have seen (ARCHITECTURE §4).

And its own workspace alone (case A1).
"""

from __future__ import annotations

from chassis.errors import DroverError, Reason


def advance(highest: int, generation: int) -> int:
    """The highest generation after a request that carries `generation`.

    Raises LEASE_LOST for a request of an older lease. No lease, 0, passes only while none has been
    seen.
    """
    if generation < highest:
        raise DroverError(
            Reason.LEASE_LOST,
            f"generation {generation} is older than {highest}, the newest one seen",
        )
    return generation


def check_workspace(session_id: str, own: str, asking: str) -> None:
    """Raises NOT_FOUND for a session of another workspace than asks. `own` may not be known yet."""
    if own and own != asking:
        raise DroverError(Reason.NOT_FOUND, f"session {session_id} was not found")
