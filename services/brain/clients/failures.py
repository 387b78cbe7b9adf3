"""What gRPC raises, as `DroverError`: the one place where its exceptions are told apart."""

from __future__ import annotations

import asyncio
from contextlib import contextmanager
from typing import TYPE_CHECKING

import grpc

from chassis.errors import DroverError, Reason
from chassis.grpc.status import from_rpc_error

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextmanager
def translated(callee: str) -> Iterator[None]:
    """Raises `DroverError` for every way in which a call can fail.

    gRPC says `CancelledError` for a call that its server has cancelled, too, and
    `InvalidStateError` for a write to a call that has ended. The cancellation of the running task
    goes on its way.
    """
    try:
        yield
    except grpc.RpcError as error:
        raise from_rpc_error(error, callee) from error
    except asyncio.InvalidStateError as error:
        raise DroverError(Reason.UNAVAILABLE, "the call has ended") from error
    except asyncio.CancelledError:
        task = asyncio.current_task()
        if task is None or task.cancelling():
            raise
        raise DroverError(Reason.UNAVAILABLE, f"{callee} ended the call") from None
