"""The thread that starts sandboxes.

Sandboxes are started from one thread that lives as long as the service, for three reasons. The
kernel ties "die with your parent" to the parent *thread*. As root that thread has a mount namespace
of its own, where the hands' directory appears under a path that other users can reach: the
sandboxes run as users of their own, who may not even look into the directory that Drover's data is
in. And for the moment of a start the thread is the sandbox's user itself (`credentials`).
"""

from __future__ import annotations

import asyncio
import ctypes
import os
import platform
import socket
import subprocess
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar

from services.hands.backends import credentials
from services.hands.backends.port import BackendUnavailable
from services.hands.backends.process import kill_with_children
from services.hands.workspace import LAST_OWNER

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

T = TypeVar("T")

_CLONE_NEWNS: Final = 0x00020000
_MS_BIND: Final = 0x1000
_MS_REC: Final = 0x4000
_MS_PRIVATE: Final = 0x40000
# Any directory that every machine has, that every user may enter and that no program needs.
_MEETING_PLACES: Final = ("/mnt", "/media", "/srv")


@dataclass(frozen=True, slots=True)
class Started:
    """A process, and our end of the socket that is its standard input, output and error."""

    process: subprocess.Popen[bytes]
    stream: socket.socket


class Launcher:
    """Starts processes from its own thread. `directory` holds all that sandboxes are made from."""

    def __init__(self, directory: Path, *, privileged: bool) -> None:
        self._directory = directory.absolute()
        self._privileged = privileged
        self._seen = self._directory
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="launcher")

    async def open(self) -> None:
        """Gets the thread ready. Raises `BackendUnavailable`."""
        if self._privileged:
            self._seen = await self._do(self._enter)

    def at(self, path: Path) -> Path:
        """Where a path below the directory is for the processes that are started."""
        return self._seen / path.relative_to(self._directory)

    async def start(
        self, program: Sequence[str | int], files: Sequence[bytes], *, user: int | None
    ) -> Started:
        """Starts a program with an empty environment, as `user` if that is not None.

        Each of `files` is inherited as a descriptor; a number among the program's arguments is the
        index of one, and is replaced by its descriptor. Raises `OSError`. Nothing is left of what
        is cancelled.
        """
        starting = asyncio.ensure_future(self._do(lambda: _start(program, files, user)))
        try:
            return await asyncio.shield(starting)
        except asyncio.CancelledError:  # the thread goes on all the same
            starting.add_done_callback(_discard)
            raise

    async def close(self) -> None:
        """Ends the thread, and with it whatever it started that still runs."""
        await asyncio.to_thread(self._thread.shutdown)

    async def _do(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)

    def _enter(self) -> Path:
        place = next((place for place in _MEETING_PLACES if Path(place).is_dir()), None)
        if place is None:
            raise BackendUnavailable(f"no directory to use of {', '.join(_MEETING_PLACES)}")
        libc = ctypes.CDLL(None, use_errno=True)
        try:
            _check(libc.unshare(_CLONE_NEWNS))
            _check(libc.mount(b"none", b"/", None, _MS_REC | _MS_PRIVATE, None))
            _check(libc.mount(os.fsencode(self._directory), place.encode(), None, _MS_BIND, None))
        except OSError as error:
            raise BackendUnavailable(
                f"as root, sandboxes need a mount namespace, and that failed: {error.strerror}. "
                "Give the container CAP_SYS_ADMIN, or run Drover as an ordinary user"
            ) from error
        try:
            credentials.shed()
            with credentials.of(LAST_OWNER):
                pass  # it may
        except OSError as error:
            raise BackendUnavailable(
                "as root, sandboxes run as users of their own, and this process may not become one "
                f"({error.strerror}). Give the container CAP_SETUID and CAP_SETGID, or run Drover "
                "as an ordinary user"
            ) from error
        except credentials.UnknownMachine as error:
            raise BackendUnavailable(
                f"as root, sandboxes are not started on {platform.machine()}: run Drover as an "
                "ordinary user"
            ) from error
        return Path(place)


def _discard(starting: asyncio.Future[Started]) -> None:
    """Ends what nobody waits for any more."""
    if starting.cancelled() or starting.exception() is not None:
        return
    started = starting.result()
    started.stream.close()
    kill_with_children(started.process.pid)
    started.process.wait()


def _check(result: int) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def _start(program: Sequence[str | int], files: Sequence[bytes], user: int | None) -> Started:
    descriptors: list[int] = []
    ours, theirs = socket.socketpair()
    try:
        for content in files:
            descriptors.append(os.memfd_create("drover", 0))
            os.write(descriptors[-1], content)
            os.lseek(descriptors[-1], 0, os.SEEK_SET)
        executable, *arguments = (
            str(descriptors[part]) if isinstance(part, int) else part for part in program
        )
        # Not `Popen(user=…)`, which forks: gRPC's threads do not take that well, and a copy of this
        # process is up later than a process that is spawned.
        with nullcontext() if user is None else credentials.of(user):
            process = subprocess.Popen(  # noqa: S603  # a list, not a shell's line
                [Path(executable).name, *arguments],
                executable=executable,
                # A socket: what a path such as /proc/1/fd/0 names cannot be opened again.
                stdin=theirs.fileno(),
                stdout=theirs.fileno(),
                stderr=theirs.fileno(),
                env={},
                cwd="/",
                pass_fds=descriptors,
            )
    except BaseException:
        ours.close()
        raise
    finally:
        theirs.close()
        for descriptor in descriptors:
            os.close(descriptor)
    ours.setblocking(False)
    return Started(process, ours)
