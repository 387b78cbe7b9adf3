"""What a client sees of a refused call."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import grpc.aio
import pytest

from chassis.grpc.status import from_rpc_error

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from chassis.errors import DroverError


async def refusal(call: Awaitable[Any]) -> DroverError:
    """The error that `call` was refused with, as it came over the wire."""
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await call
    return from_rpc_error(refused.value)
