"""The journal's port: what is durable about tool calls."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from drover.hands.v1.hands_service_pb2 import ExecuteResponse
    from services.hands.domain.execution import Begun


class Journal(Protocol):
    """Every call, by session and call id, and each session's fence.

    What a method did is durable when it returns. Methods that take a generation advance the
    session's fence with it, in the same transaction, and raise LEASE_LOST for one that is older
    than the newest seen, and NOT_FOUND where another workspace has spoken for the session.
    """

    async def begin(self, session_id: str, call_id: str, generation: int, tool: str) -> Begun:
        """Records that a call starts, unless it has a result or must not run again."""
        ...

    async def finish(self, session_id: str, call_id: str, result: ExecuteResponse) -> None:
        """Records a call's result. The first one stays."""
        ...

    async def forget(self, session_id: str, call_id: str) -> None:
        """Takes back the start of a call of which nothing ran, so that it may be asked again."""
        ...

    async def ran(self, session_id: str, tool: str, *, besides: str) -> bool:
        """Whether a call of `tool` was ever started in this session, `besides` one call."""
        ...

    async def cancel(self, session_id: str, generation: int, call_ids: Sequence[str]) -> None:
        """Records CANCELLED as the result of those calls that have no record at all."""
        ...

    async def fence(
        self, session_id: str, generation: int, taken: Callable[[], None] | None = None
    ) -> None:
        """Only checks and advances the fence.

        `taken` is called, on any thread and maybe more than once, when the generation is not
        refused, while it holds off every other transaction of the session's, and before it is
        durable.
        """
        ...

    async def end(self, session_id: str, generation: int) -> None:
        """Takes nothing of `generation`, the session's last, or of an older one any more.

        Raises LEASE_LOST when a newer one was seen: the session is not at its end. Of one that is
        gone nothing is kept for it.
        """
        ...

    async def purge(self, session_id: str, generation: int) -> None:
        """Forgets the session, its fence included.

        What the fence refused stays refused, without a trace of which session it is: a brain that
        slept through the end may still call.
        """
        ...

    async def owner(self, session_id: str) -> str:
        """The workspace that has spoken for the session; empty where it is not known."""
        ...
