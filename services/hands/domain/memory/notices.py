"""What the agent is still to be told of its memory."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from services.hands.domain.memory.words import unlisted

if TYPE_CHECKING:
    from services.hands.domain.memory.words import Notice

MOST: Final = 200
"""That are kept: a command that runs for hours can bring about thousands in a second."""


class Notices:
    """In their order. Of those that are too many it is told how many they were."""

    def __init__(self) -> None:
        self._kept: list[Notice] = []
        self._unlisted = 0

    def add(self, *notices: Notice) -> None:
        """Notes what is to be told."""
        room = MOST - len(self._kept)
        self._kept += notices[:room]
        self._unlisted += len(notices[room:])

    def take(self, most: int) -> list[Notice]:
        """The next that are to be told, which are told once."""
        taken, self._kept = self._kept[:most], self._kept[most:]
        if self._unlisted and not self._kept:
            taken.append(unlisted(self._unlisted))
            self._unlisted = 0
        return taken
