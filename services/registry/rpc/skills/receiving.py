"""Uploads of skills: received, packed into our own archive, and stored."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING, Final, TypeVar

from chassis.errors import DroverError, Reason
from services.registry.domain.skills.packing import Packed, packed
from services.registry.domain.skills.ports import Archive
from services.registry.domain.skills.upload import Upload

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from drover.skill.v1.skill_service_pb2 import SkillPart
    from services.registry.domain.skills.limits import SkillLimits
    from services.registry.store.objects.kept import KeptObjects

T = TypeVar("T")

_AT_ONCE: Final = 16
"""Uploads that are received; each may have two files of the largest size that a skill has."""
_PACKED_AT_ONCE: Final = 2
_PATIENCE: Final = 60.0
"""Seconds that an upload may say nothing."""
_PIECE: Final = 1024 * 1024


@dataclass(frozen=True, slots=True)
class Stored:
    """What became of an upload. `abandon` is for who finds that it is not needed."""

    packed: Packed
    archive: Archive
    abandon: Callable[[], None]


class Receiver:
    """Makes stored archives of uploads, a bounded number at once."""

    def __init__(self, objects: KeptObjects, limits: SkillLimits) -> None:
        self._objects = objects
        self._limits = limits
        self._receiving = 0
        self._packing = asyncio.Semaphore(_PACKED_AT_ONCE)

    @asynccontextmanager
    async def stored(self, parts: AsyncIterator[SkillPart]) -> AsyncIterator[Stored]:
        """The archive of an upload, stored for the body, which keeps a row that refers to it.

        Raises as `Upload.take`, `packed` and `KeptObjects.stored` do, and RESOURCE_EXHAUSTED when
        too many uploads are under way.
        """
        if self._receiving == _AT_ONCE:
            raise DroverError(
                Reason.RESOURCE_EXHAUSTED,
                "too many skills are being uploaded, try again",
                retry_after=1.0,
            )
        self._receiving += 1
        try:
            async with AsyncExitStack() as stack:
                upload = stack.enter_context(Upload(self._limits))
                await self._receive(upload, parts)
                async with self._packing:
                    made = await _blocking(
                        lambda: stack.enter_context(packed(upload, self._limits))
                    )
                name = await stack.enter_async_context(
                    self._objects.stored("skills", _pieces(made.file))
                )
                yield Stored(made, Archive(name, made.size), lambda: self._objects.abandon(name))
        except OSError as error:
            raise DroverError(
                Reason.RESOURCE_EXHAUSTED, "there is no room to unpack the skill", retry_after=5.0
            ) from error
        finally:
            self._receiving -= 1

    async def _receive(self, upload: Upload, parts: AsyncIterator[SkillPart]) -> None:
        while True:
            try:
                async with asyncio.timeout(_PATIENCE):
                    part = await anext(parts, None)
            except TimeoutError:
                raise DroverError(
                    Reason.DEADLINE_EXCEEDED, f"nothing came of the upload for {_PATIENCE:g} s"
                ) from None
            if part is None:
                return
            await _blocking(lambda part=part: upload.take(part))  # type: ignore[misc]


async def _pieces(file: IO[bytes]) -> AsyncIterator[bytes]:
    await _blocking(lambda: file.seek(0))
    while piece := await _blocking(lambda: file.read(_PIECE)):
        yield piece


async def _blocking(fn: Callable[[], T]) -> T:
    """Runs `fn` on a thread, and waits for its end even when it is no longer wanted.

    What it works on is closed behind it.
    """
    task = asyncio.ensure_future(asyncio.to_thread(fn))
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait([task])
        if not task.cancelled():
            task.exception()
        raise
