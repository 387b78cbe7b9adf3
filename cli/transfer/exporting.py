"""`drover export`: a session into a file, or onto standard output."""

from __future__ import annotations

import asyncio
import hashlib
import os
import sys
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

import grpc

from cli.terminal import Terminal
from cli.transfer.lines import line_of
from cli.transfer.progress import Progress
from cli.transfer.service import TransferError
from drover.session.v1 import session_pb2, session_service_pb2
from drover.session.v1.session_service_pb2_grpc import SessionServiceStub

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import BinaryIO

    from cli.transfer.service import SessionServiceTarget

_STALLED: Final = 60.0  # s without anything new
_RUNNING: Final = frozenset(
    {session_pb2.SESSION_STATUS_RUNNING, session_pb2.SESSION_STATUS_RESCHEDULING}
)


def export_session(target: SessionServiceTarget, session_id: str, output: Path | None) -> None:
    """Writes a session as lines, to standard output if no file is named.

    A file is there whole or not at all. Raises `TransferError` and `OSError`.
    """
    with _opened(output) as file:
        asyncio.run(_export(target, session_id, file))


async def _export(target: SessionServiceTarget, session_id: str, file: BinaryIO) -> None:
    progress, digest = Progress("exported"), hashlib.sha256()
    async with target.channel() as channel:
        request = session_service_pb2.ExportSessionRequest(session_id=session_id)
        responses = aiter(SessionServiceStub(channel).ExportSession(request))
        whole = False
        while True:
            try:
                async with asyncio.timeout(_STALLED):
                    response = await anext(responses, None)
            except grpc.RpcError as error:
                raise target.refused(error) from None
            except TimeoutError:
                msg = f"nothing came from the session service for {_STALLED:.0f} s"
                raise TransferError(msg) from None
            if response is None:
                break
            for record in response.records:
                line = line_of(record, digest.hexdigest())
                digest.update(line)
                file.write(line)
                whole = record.HasField("end")
                if record.HasField("session"):
                    progress.total = record.session.events + record.session.waiting
                    if record.session.status in _RUNNING:
                        _warn()
            progress.advance(len(response.records))
    if not whole:
        msg = "the session service ended before the session did"
        raise TransferError(msg)
    file.flush()


def _warn() -> None:
    Terminal(stderr=True).say(
        "drover: the session runs: this export can be read, but not imported", "yellow"
    )


@contextmanager
def _opened(output: Path | None) -> Iterator[BinaryIO]:
    if output is None:
        yield sys.stdout.buffer
        return
    if output.exists() and not output.is_file():  # a pipe, or a device
        with output.open("wb") as file:
            yield file
        return
    # Only this user's to read, as the conversation may be.
    descriptor, scratch = tempfile.mkstemp(prefix=f".{output.name}.", dir=output.parent)
    try:
        with os.fdopen(descriptor, "wb") as file:
            yield file
            os.fsync(file.fileno())
        Path(scratch).replace(output)
    except BaseException:
        Path(scratch).unlink(missing_ok=True)
        raise
