"""`drover import`: a session from a file, or from standard input."""

from __future__ import annotations

import asyncio
import hashlib
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

import grpc

from cli.transfer.lines import MAX_LINE, FormatError, record_of
from cli.transfer.progress import Progress
from cli.transfer.service import TransferError
from drover.session.v1 import session_service_pb2
from drover.session.v1.session_service_pb2_grpc import SessionServiceStub

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path
    from typing import BinaryIO

    import grpc.aio

    from cli.transfer.service import SessionServiceTarget
    from drover.session.v1 import transfer_pb2

    Call = grpc.aio.StreamUnaryCall[
        session_service_pb2.ImportSessionRequest, session_service_pb2.ImportSessionResponse
    ]

_BATCH_BYTES: Final = 1024 * 1024
_MAX_RECORD: Final = 60 * 1024 * 1024
"""Bytes of a record that still fit a message."""

_STALLED: Final = 60.0  # s in which the service takes nothing
_DEADLINE: Final = 24 * 3600.0  # s for the whole


def import_session(target: SessionServiceTarget, source: Path | None) -> str:
    """Reads a session from lines, from standard input if no file is named; answers its id.

    Raises `TransferError` and `OSError`. Then nothing has been imported.
    """
    with _opened(source) as file:
        return asyncio.run(_import(target, _Reader(file, str(source or "standard input"))))


async def _import(target: SessionServiceTarget, reader: _Reader) -> str:
    progress = Progress("imported")
    async with target.channel() as channel:
        stub = SessionServiceStub(channel)
        call: Call = stub.ImportSession(timeout=_DEADLINE)  # type: ignore[call-arg]  # written to
        try:
            for records in reader.batches():
                if records[0].HasField("session"):
                    snapshot = records[0].session
                    progress.total = snapshot.events + snapshot.waiting
                request = session_service_pb2.ImportSessionRequest(records=records)
                if not await _sent(call, request):
                    break
                progress.advance(len(records))
            else:
                await call.done_writing()
            response = await call
        except grpc.RpcError as error:
            raise target.refused(error) from None
        finally:
            call.cancel()  # of no effect once it is done
    return response.session.id


async def _sent(call: Call, request: session_service_pb2.ImportSessionRequest) -> bool:
    """Whether the service took a message; otherwise it has refused what came before."""
    try:
        async with asyncio.timeout(_STALLED):
            await call.write(request)
    except TimeoutError:
        msg = f"the session service took nothing for {_STALLED:.0f} s"
        raise TransferError(msg) from None
    except asyncio.InvalidStateError:
        return False
    return True


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
