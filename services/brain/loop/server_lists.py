"""Asking the MCP servers for their tools, beside whatever else the turn begins with."""

from __future__ import annotations

from typing import TYPE_CHECKING

from services.brain.domain import listing, servers

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

    from drover.hands.v1.hands_service_pb2 import McpServerOutcome
    from services.brain.clients.hands import Hands
    from services.brain.domain.listing import Found
    from services.brain.domain.state import State


class ServerLists:
    """Asks once each time that the session begins to run. A session without servers asks nobody."""

    def __init__(
        self,
        hands: Hands,
        tasks: asyncio.TaskGroup,
        on_answer: Callable[[], None],
    ) -> None:
        self._hands = hands
        self._tasks = tasks
        self._on_answer = on_answer
        self._asking: asyncio.Task[None] | None = None
        self._outcomes: list[McpServerOutcome] | None = None

    @property
    def ready(self) -> bool:
        """The answer is there, for `found`."""
        return self._outcomes is not None

    def begin(self, state: State) -> None:
        """Asks, if the session has servers that have to be asked and this has not begun yet."""
        if self._asking is None and servers.due(state.agent, state.servers):
            names = [server.name for server in state.agent.mcp_servers]
            self._asking = self._tasks.create_task(self._ask(names))

    def found(self, state: State) -> Found:
        """What is new in the answer, which is used up."""
        outcomes, self._outcomes, self._asking = self._outcomes, None, None
        return listing.compare(state.agent, state.servers, outcomes or ())

    def close(self) -> None:
        """Lets go of an answer that nobody waits for any more."""
        if self._asking is not None:
            self._asking.cancel()
        self._asking = self._outcomes = None

    async def _ask(self, names: list[str]) -> None:
        outcomes = await self._hands.list_tools(names)
        self._outcomes = outcomes
        self._on_answer()
