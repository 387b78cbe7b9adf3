"""What happens to hands and their workspaces, told to whoever keeps workspaces elsewhere too."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence


class Lifecycle(Protocol):
    """Told by the pool, and by who moves and purges workspaces.

    `where` is a hand's address (`domain.address`), and so its workspace's. The methods that return
    at once must not raise.
    """

    async def before_start(self, where: str) -> None:
        """A sandbox is about to be started over this workspace, which may not be there.

        No process is in it. What is put in its place now is what the sandbox gets; a session
        without a workspace gets a new one. Raises `OSError` and `DroverError`: the start fails.
        """
        ...

    def used(self, where: str) -> None:
        """Somebody uses the hand from now on. Returns at once: it is on the path of every call."""
        ...

    def rested(self, where: str) -> None:
        """Nobody uses the hand any more. Its processes may still run. Returns at once."""
        ...

    def ended(self, where: str) -> None:
        """The sandbox has ended: no process is in its workspace until `before_start`.

        Returns at once. Not told of a hand whose start failed.
        """
        ...

    async def leaves(self, where: str) -> None:
        """The session is about to lose the hand, whose workspace is still there: it has let go of
        it, and its sandbox has ended, or it hands it on, and nobody uses it.

        Bounded in time. Raises nothing. Not told of a session that is deleted.
        """
        ...

    async def holds(self, where: str) -> bool:
        """Whether there is a workspace for this hand, though it may not be on this machine."""
        ...

    async def moved(self, where: str, to: str) -> None:
        """The workspace is another hand's now. May be told twice of one move."""
        ...

    async def purged(self, session_id: str, hand: str | None) -> None:
        """A session's workspace of that hand is gone for good, or all that it had. May be told
        twice.
        """
        ...


class Unobserved:
    """Workspaces are on this machine alone."""

    async def before_start(self, where: str) -> None:
        """Nothing is put in its place."""

    def used(self, where: str) -> None:
        """Nobody asks."""

    def rested(self, where: str) -> None:
        """Nobody asks."""

    def ended(self, where: str) -> None:
        """Nobody asks."""

    async def leaves(self, where: str) -> None:
        """Nothing is to be told of it."""

    async def holds(self, where: str) -> bool:  # noqa: ARG002  # there is none at any address
        """None is anywhere else."""
        return False

    async def moved(self, where: str, to: str) -> None:
        """Nothing else to move."""

    async def purged(self, session_id: str, hand: str | None) -> None:
        """Nothing else to delete."""


class Several:
    """Tells several of them, in their order."""

    def __init__(self, told: Sequence[Lifecycle]) -> None:
        self._told = told

    async def before_start(self, where: str) -> None:
        """Raises what any of them does."""
        for one in self._told:
            await one.before_start(where)

    def used(self, where: str) -> None:
        """All of them are told."""
        for one in self._told:
            one.used(where)

    def rested(self, where: str) -> None:
        """All of them are told."""
        for one in self._told:
            one.rested(where)

    def ended(self, where: str) -> None:
        """All of them are told."""
        for one in self._told:
            one.ended(where)

    async def leaves(self, where: str) -> None:
        """All of them are told, at once: whoever waits for it does not wait for long."""
        async with asyncio.TaskGroup() as tasks:
            for one in self._told:
                tasks.create_task(one.leaves(where))

    async def holds(self, where: str) -> bool:
        """Whether one of them has it."""
        for one in self._told:
            if await one.holds(where):
                return True
        return False

    async def moved(self, where: str, to: str) -> None:
        """Raises what any of them does."""
        for one in self._told:
            await one.moved(where, to)

    async def purged(self, session_id: str, hand: str | None) -> None:
        """Raises what any of them does."""
        for one in self._told:
            await one.purged(session_id, hand)
