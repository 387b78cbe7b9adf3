"""What agents are forked from is asked for none that would be elsewhere, or less confined."""

from __future__ import annotations

import os
import socket
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from services.hands.backends.process import Handle, ProcessId
from services.hands.backends.zygote import Zygote
from services.hands.runner import zygote


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with ours, theirs:
        yield ours, theirs


def descriptors() -> set[str]:
    return {entry.name for entry in Path("/proc/self/fd").iterdir()}


@pytest.mark.parametrize(
    ("message", "sent"), [(b"1\0", 20), (b"x" * 70_000, 1)], ids=["descriptors", "words"]
)
def test_request_that_does_not_arrive_whole_is_refused(
    pair: tuple[socket.socket, socket.socket], message: bytes, sent: int
) -> None:
    ours, theirs = pair
    before = descriptors()
    socket.send_fds(ours, [message], [ours.fileno()] * sent)
    with pytest.raises(SystemExit, match="did not arrive whole"):
        zygote._receive(theirs)
    for left in descriptors() - before:  # which end with the process where it is one
        with suppress(OSError):  # the one that it was looked up by
            os.close(int(left))


@pytest.fixture
def reused() -> Iterator[Handle]:
    """A process that has ended, whose number is another's by now."""
    ended = subprocess.Popen(["true"])
    first = Handle.open(ended.pid)
    assert first is not None
    ended.wait()
    yield Handle(first.descriptor, ProcessId(os.getpid(), 0))
    first.close()


async def test_number_that_has_become_another_process_is_not_entered(
    tmp_path: Path, reused: Handle
) -> None:
    nursery = Zygote("/usr/bin/python3", tmp_path, None)
    with pytest.raises(ProcessLookupError):
        await nursery.fork(None, reused)
    assert nursery.pid == 0  # it was not even asked
