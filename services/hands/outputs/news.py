"""Tells a session's next call what of its outputs is not published, and why."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final

from services.hands.bringing.port import Told

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping
    from contextlib import AbstractAsyncContextManager

    from services.hands.domain.mounts import Mounts
    from services.hands.hand import Hand
    from services.hands.outputs.publisher import Publisher

_OUTPUTS: Final = "/mnt/session/outputs"
_NAMED: Final = 10


class News:
    """An `Attendant` of calls."""

    def __init__(self, publisher: Publisher) -> None:
        self._publisher = publisher

    def wanted(self, where: str, hand: Hand, mounts: Mounts) -> bool:  # noqa: ARG002  # any hand
        """Whether there are any."""
        return self._publisher.has_news(where)

    def attend(
        self,
        where: str,
        hand: Hand,  # noqa: ARG002  # any hand
        mounts: Mounts,  # noqa: ARG002
        call_id: str,  # noqa: ARG002  # the next is as good as any
    ) -> AbstractAsyncContextManager[Told]:
        """Tells them once."""
        return self._attend(where)

    @asynccontextmanager
    async def _attend(self, where: str) -> AsyncIterator[Told]:
        untold = self._publisher.take_news(where)
        try:
            yield Told(notes=[note(untold)] if untold else [])
        except BaseException:
            self._publisher.give_back(where, untold)
            raise


def note(untold: Mapping[str, str]) -> str:
    """What the model is told."""
    named = [f"{path}: {why}" for path, why in [*untold.items()][:_NAMED]]
    if (more := len(untold) - len(named)) > 0:
        named.append(f"and {more} more")
    return f"[not published from {_OUTPUTS}: {'; '.join(named)}]"
