"""Bytes on their way in: counted, bounded and digested as they pass."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

from services.registry.domain.files.file import Content

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Callable

    from chassis.errors import DroverError


class Measure:
    """What has passed so far. More than a bound's bytes raise its error."""

    def __init__(self, *bounds: tuple[int, Callable[[], DroverError]]) -> None:
        self._bounds = bounds
        self._size = 0
        self._sha256 = hashlib.sha256()

    async def passing(self, pieces: AsyncIterator[bytes]) -> AsyncGenerator[bytes, None]:
        """The pieces as they come."""
        async for piece in pieces:
            self._size += len(piece)
            for most, error in self._bounds:
                if self._size > most:
                    raise error()
            self._sha256.update(piece)
            yield piece

    def content(self) -> Content:
        """What is known of all that has passed."""
        return Content(self._size, self._sha256.hexdigest())
