"""`drover export`: a session into a file, or onto standard output."""

from __future__ import annotations

import hashlib
import os
import sys
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

from cli.terminal import Terminal
from cli.transfer.lines import line_of
from cli.transfer.progress import Progress
from cli.transfer.service import DEADLINE, TransferError
from drover.session.v1 import session_pb2, session_service_pb2

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import BinaryIO

    from cli.transfer.service import ServiceTarget

_RUNNING: Final = frozenset(
    {session_pb2.SESSION_STATUS_RUNNING, session_pb2.SESSION_STATUS_RESCHEDULING}
)


def export_session(target: ServiceTarget, session_id: str, output: Path | None) -> None:
    """Writes a session as lines, to standard output if no file is named.

    A file is there whole or not at all. Raises `TransferError` and `OSError`.
    """
    progress, digest, whole = Progress("exported"), hashlib.sha256(), False
    request = session_service_pb2.ExportSessionRequest(session_id=session_id)
    with _opened(output) as file, target.opened() as service:
        responses = service.ExportSession(request, timeout=DEADLINE, metadata=target.identity)
        for response in responses:
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
    try:
        descriptor, scratch = tempfile.mkstemp(prefix=f".{output.name}.", dir=output.parent)
    except OSError as error:  # of a file that nobody has named
        raise OSError(error.errno, error.strerror, str(output)) from error
    try:
        with os.fdopen(descriptor, "wb") as file:
            yield file
            os.fsync(file.fileno())
        Path(scratch).replace(output)
    except BaseException:
        Path(scratch).unlink(missing_ok=True)
        raise
