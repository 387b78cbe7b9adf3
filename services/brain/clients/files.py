"""Files of the registry as the model is sent them: read when a request is, and kept for the next.

Files never change, so that what was read once holds; a file that is gone stays gone.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from typing import TYPE_CHECKING, Any, Final, Protocol

import structlog

from chassis.context import current_call
from chassis.errors import DroverError, Reason
from drover.file.v1.file_service_pb2 import ReadFileRequest
from services.brain.clients.failures import translated
from services.brain.domain import attachments
from services.brain.domain.attachments import Attachment, Reference

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from drover.file.v1.file_service_pb2_grpc import FileServiceAsyncStub

DEADLINE: Final = 60.0
"""Seconds that all files of a request may take."""

AT_ONCE: Final = 4
"""Files that a brain reads at a time, for all of its sessions."""

_FILE_DEADLINE: Final = 30.0

# What will be no other the next time.
_GONE: Final = frozenset({Reason.NOT_FOUND, Reason.INVALID_ARGUMENT})

_log = structlog.get_logger("brain.files")


class TooLargeError(Exception):
    """Together the files are more than any request may have."""


class Files(Protocol):
    """The files that conversations refer to."""

    async def read(self, wanted: Sequence[Reference], most: int) -> dict[Reference, Attachment]:
        """What stands for each of `wanted`, all of them of no more than `most` bytes.

        Raises `TooLargeError` where they are more, and `DroverError` where they cannot be read now.
        """
        ...


class NoFiles:
    """For a brain without a registry: nothing can be read."""

    async def read(self, wanted: Sequence[Reference], most: int) -> dict[Reference, Attachment]:  # noqa: ARG002
        """Raises UNAVAILABLE."""
        raise DroverError(Reason.UNAVAILABLE, "this brain knows of no registry")


class RegistryFiles:
    """The files of the registry, of which `max_bytes` are kept: those that were used last."""

    def __init__(self, stub: FileServiceAsyncStub, *, max_bytes: int) -> None:
        # The stub streams, which its type does not know.
        self._read_file: Callable[..., Any] = stub.ReadFile
        self._max_bytes = max_bytes
        self._bytes = 0
        self._kept: OrderedDict[tuple[str, Reference], Attachment] = OrderedDict()
        self._turns = asyncio.Semaphore(AT_ONCE)

    async def read(self, wanted: Sequence[Reference], most: int) -> dict[Reference, Attachment]:
        """See `Files.read`."""
        found: dict[Reference, Attachment] = {}
        size = 0

        def take(reference: Reference, attachment: Attachment) -> None:
            nonlocal size
            found[reference] = attachment
            size += attachment.size
            if size > most:
                raise TooLargeError

        async def fetch(reference: Reference) -> None:
            async with self._turns:
                take(reference, await self._fetched(reference))

        workspace_id = current_call().workspace_id
        missing = []
        for reference in wanted:
            if (kept := self._kept.get((workspace_id, reference))) is None:
                missing.append(reference)
            else:
                self._kept.move_to_end((workspace_id, reference))
                take(reference, kept)
        try:
            async with asyncio.timeout(DEADLINE), asyncio.TaskGroup() as tasks:
                for reference in missing:
                    tasks.create_task(fetch(reference))
        except TimeoutError as error:
            msg = f"the files of the conversation could not be read within {DEADLINE:.0f} s"
            raise DroverError(Reason.DEADLINE_EXCEEDED, msg) from error
        except ExceptionGroup as group:
            raise group.exceptions[0] from group
        for reference in missing:
            self._keep((workspace_id, reference), found[reference])
        return found

    async def _fetched(self, reference: Reference) -> Attachment:
        try:
            with translated("the registry"):
                return await self._streamed(reference)
        except DroverError as error:
            if error.reason not in _GONE:
                raise
            _log.info("file_gone", file_id=reference.file_id, reason=error.reason)
            return Attachment(why_not=attachments.GONE)

    async def _streamed(self, reference: Reference) -> Attachment:
        call = self._read_file(ReadFileRequest(file_id=reference.file_id), timeout=_FILE_DEADLINE)
        try:
            parts = aiter(call)
            file = (await anext(parts)).file
            if why_not := attachments.barred(reference.kind, file):
                return Attachment(why_not=why_not)
            data = bytearray()
            async for part in parts:
                data += part.data
                if len(data) > file.size_bytes:
                    break
            if len(data) != file.size_bytes:
                msg = f"{reference.file_id} has other bytes than the registry says"
                raise DroverError(Reason.UNAVAILABLE, msg)
        except StopAsyncIteration as error:
            raise DroverError(Reason.UNAVAILABLE, "the registry gave nothing") from error
        finally:
            call.cancel()
        # Megabytes in base64: off the loop, where other sessions' leases are renewed.
        return await asyncio.to_thread(attachments.attach, reference.kind, file, bytes(data))

    def _keep(self, key: tuple[str, Reference], attachment: Attachment) -> None:
        if (before := self._kept.pop(key, None)) is not None:
            self._bytes -= before.size
        self._kept[key] = attachment
        self._bytes += attachment.size
        while self._kept and self._bytes > self._max_bytes:
            _, oldest = self._kept.popitem(last=False)
            self._bytes -= oldest.size
