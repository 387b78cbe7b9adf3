"""Fencing: a session's hands obey the newest lease that they have seen (ARCHITECTURE §4)."""

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
