"""What a call has ended with, whose request was still being sent.

gRPC sets an end of its own for a write that comes after the peer's: sometimes before it knows of
that, and sometimes in its place. The gateway, which imports no service, does the same (`transfer`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import grpc
import grpc.aio

if TYPE_CHECKING:
    from collections.abc import Coroutine

_WRITTEN_TOO_LATE: Final = "Internal error from Core"


class Ended:
    """Watches a call from its beginning."""

    def __init__(self, call: Any) -> None:  # noqa: ANN401  # of any style
        self._first: grpc.RpcError | None = None
        call.add_done_callback(self._note)

    def error(self, told: grpc.RpcError) -> grpc.RpcError:
        """What the peer said, where gRPC has told of its own write instead."""
        is_own = isinstance(told, grpc.aio.AioRpcError) and told.details() == _WRITTEN_TOO_LATE
        return self._first if is_own and self._first is not None else told

    def _note(self, call: Any) -> None:  # noqa: ANN401  # of any style
        questions = (call.code, call.details, call.trailing_metadata)
        code, details, trailers = (_at_once(one()) for one in questions)
        if isinstance(code, grpc.StatusCode):
            nothing = grpc.aio.Metadata()
            self._first = grpc.aio.AioRpcError(code, nothing, trailers or nothing, details, None)


def _at_once(question: Coroutine[Any, Any, Any]) -> Any:  # noqa: ANN401  # of the question's type
    """The answer to a question that need not be waited for; `None` if it would have to be."""
    try:
        question.send(None)
    except StopIteration as answered:
        return answered.value
    question.close()
    return None
