"""`drover import`: a session from a file, or from standard input."""

from __future__ import annotations

import hashlib
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

import grpc

from cli.transfer.lines import MAX_LINE, FormatError, record_of
from cli.transfer.progress import Progress
from cli.transfer.service import DEADLINE, TransferError
from drover.session.v1 import session_service_pb2

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path
    from typing import BinaryIO

    from cli.transfer.service import ServiceTarget
    from drover.session.v1 import transfer_pb2

_BATCH_BYTES: Final = 1024 * 1024
_MAX_RECORD: Final = 60 * 1024 * 1024
"""Bytes of a record that still fit a message."""


def import_session(target: ServiceTarget, source: Path | None) -> str:
    """Reads a session from lines, from standard input if no file is named; answers its id.

    Raises `TransferError` and `OSError`. Then nothing has been imported.
    """
    with _opened(source) as file, target.opened() as service:
        upload = _Upload(_Reader(file, str(source or "standard input")))
        try:
            response = service.ImportSession(
                upload.requests(), timeout=DEADLINE, metadata=target.identity
            )
        except grpc.RpcError:
            if upload.failure is not None:
                raise upload.failure from None
            raise
    return response.session.id


class _Upload:
    """What gRPC sends, in a thread of its own. `failure` is what has ended it before its time."""

    def __init__(self, reader: _Reader) -> None:
        self.failure: TransferError | OSError | None = None
        self._reader = reader
        self._progress = Progress("imported")

    def requests(self) -> Iterator[session_service_pb2.ImportSessionRequest]:
        """The messages, one after the other as the service takes them.

        After a failure none comes any more, and the service finds that the end is missing.
        """
        try:
            for records in self._reader.batches():
                if records[0].HasField("session"):
                    snapshot = records[0].session
                    self._progress.total = snapshot.events + snapshot.waiting
                yield session_service_pb2.ImportSessionRequest(records=records)
                self._progress.advance(len(records))
        except (TransferError, OSError) as error:
            self.failure = error


class _Reader:
    """Reads records from lines. Nothing is given out of the last ones before all were read."""

    def __init__(self, file: BinaryIO, name: str) -> None:
        self._file = file
        self._name = name
        self._number = 0

    def batches(self) -> Iterator[list[transfer_pb2.SessionRecord]]:
        """Records, as many at a time as go in one message. Raises `TransferError`."""
        batch: list[transfer_pb2.SessionRecord] = []
        size = 0
        for record in self._records():
            added = record.ByteSize()
            if added > _MAX_RECORD:
                raise self._error(f"is over {_MAX_RECORD // 1024**2} MB, which no event is")
            if batch and size + added > _BATCH_BYTES:
                yield batch
                batch, size = [], 0
            batch.append(record)
            size += added
        yield batch

    def _records(self) -> Iterator[transfer_pb2.SessionRecord]:
        digest = hashlib.sha256()
        ended = False
        while line := self._file.readline(MAX_LINE + 1):
            self._number += 1
            if ended:
                raise self._error("comes behind the end")
            try:
                record = record_of(line, digest.hexdigest())
            except FormatError as error:
                raise self._error(str(error)) from None
            if record.HasField("session") is not (self._number == 1):
                raise self._error("is not where it belongs: the session is first, and only there")
            digest.update(line)
            ended = record.HasField("end")
            if not ended:
                yield record
        if not ended:
            what = "is empty" if not self._number else "is cut off: its last line is missing"
            msg = f"{self._name} {what}"
            raise TransferError(msg)
        yield record

    def _error(self, text: str) -> TransferError:
        return TransferError(f"{self._name}: line {self._number} {text}")


@contextmanager
def _opened(source: Path | None) -> Iterator[BinaryIO]:
    if source is None:
        yield sys.stdin.buffer
        return
    with source.open("rb") as file:
        yield file
