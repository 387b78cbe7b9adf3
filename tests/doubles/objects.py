"""A store of objects in memory, which fails when it is told to."""

from __future__ import annotations

from typing import TYPE_CHECKING

from storage.objects import ObjectGone, ObjectsAway

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator


class MemoryObjects:
    """Implements `Objects`. `failing` is what every method says, while it is set; an upload fails
    after `fail_after` bytes, if that is set.
    """

    def __init__(self, piece: int = 4) -> None:
        self.objects: dict[str, bytes] = {}
        self.deleted: list[str] = []
        self.failing = ""
        self.fail_after: int | None = None
        self.piece = piece

    async def put(self, name: str, pieces: AsyncIterator[bytes]) -> None:
        content = bytearray()
        async for piece in pieces:
            content += piece
            self._fail()
            if self.fail_after is not None and len(content) > self.fail_after:
                raise ObjectsAway("Input/output error (error 5)")
        self._fail()
        self.objects[name] = bytes(content)

    async def read(self, name: str, size: int) -> AsyncGenerator[bytes, None]:
        for start in range(0, size, self.piece):
            self._fail()
            if name not in self.objects:
                raise ObjectGone("it has no such object")
            yield self.objects[name][start : min(start + self.piece, size)]

    async def delete(self, name: str) -> None:
        self._fail()
        self.deleted.append(name)
        self.objects.pop(name, None)

    async def probe(self) -> None:
        self._fail()

    def _fail(self) -> None:
        if self.failing:
            raise ObjectsAway(self.failing)
