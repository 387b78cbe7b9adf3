"""What a cancellation out of a gRPC call means."""

from __future__ import annotations

import asyncio

from chassis.errors import DroverError, Reason


def cancellation(error: asyncio.CancelledError) -> BaseException:
    """What a `CancelledError` out of a gRPC call means.

    gRPC raises it both when our own task is cancelled, which goes on its way, and when the peer
    has cancelled the call, which is UNAVAILABLE.
    """
    task = asyncio.current_task()
    if task is not None and task.cancelling():
        return error
    return DroverError(Reason.UNAVAILABLE, "a service ended the call")
