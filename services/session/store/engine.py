"""What the two database engines do differently for the store."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from sqlalchemy import Connection

    from services.session.domain.ports import About
    from services.session.store.unit import Unit


class HeldElsewhereError(Exception):
    """Another replica holds what a write needs; `lane` names it."""

    def __init__(self, lane: str) -> None:
        super().__init__(lane)
        self.lane = lane


class Engine(Protocol):
    """How a transaction of the database begins.

    Of those that write, `parallel` may be open at a time, all but one at their commits. If that is
    more than one, they run on the event loop.
    """

    parallel: int

    def reading(self, connection: Connection) -> Unit:
        """A unit of one transaction that reads."""
        ...

    def writing(
        self, connection: Connection, abouts: Sequence[About], *, wait: bool, hopeful: bool
    ) -> tuple[Unit, Collection[str]]:
        """A unit of transactions that are about these, and the lanes of what others hold.

        With `wait` it waits for others instead, and so does the unit where its transactions look at
        more than they said; else that raises `HeldElsewhereError`. For `hopeful` see `Unit`.
        """
        ...
