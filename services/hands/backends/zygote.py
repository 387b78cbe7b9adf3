"""The process that the agents of local sandboxes are forked from (`runner.zygote`), and its keeper.

To start an interpreter takes longer than to make a sandbox, and is the same for each of them.
"""

from __future__ import annotations

import asyncio
import errno
import os
import socket
import subprocess
from contextlib import suppress
from typing import TYPE_CHECKING, Final

import structlog

from services.hands.backends import agent_files, inside

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from services.hands.backends.process import Handle

_WORDS: Final = 4096
_END_SECONDS: Final = 1.0

_log = structlog.get_logger("hands.zygote")


class Zygote:
    """Has agents forked; `directory` holds their files. Started when it is first asked.

    A process that ended is started anew, and so is one whose agents do not come up.
    """

    def __init__(self, python: str, directory: Path, call_filter: bytes | None) -> None:
        self._python = python
        self._directory = directory
        self._filter = call_filter
        self._process: subprocess.Popen[bytes] | None = None
        self._control: socket.socket | None = None
        self._starting = asyncio.Lock()

    @property
    def pid(self) -> int:
        """The process's number; 0 if there is none."""
        return self._process.pid if self._process is not None else 0

    async def fork(
        self,
        user: int | None,
        first: Handle,
        groups: Sequence[Path] = (),
        arguments: Sequence[str] = (),
    ) -> socket.socket:
        """Our end of the stream to a new agent, in the sandbox of a first process.

        It becomes `user`, if that is not None, and both join control groups, given by their
        directories. `arguments` are of a program that is run in its place. Raises `OSError`; what
        goes wrong later is told over the stream.
        """
        ours, theirs = socket.socketpair()
        opened: list[int] = []
        try:
            opened.append(_processes(first))
            opened += (os.open(one / "cgroup.procs", os.O_WRONLY | os.O_CLOEXEC) for one in groups)
            words = ("" if user is None else str(user), *arguments)
            request = "".join(f"{word}\0" for word in words).encode()
            await self._ask(request, [theirs.fileno(), first.descriptor, *opened])
        except BaseException:
            ours.close()
            raise
        finally:
            theirs.close()
            for descriptor in opened:
                os.close(descriptor)
        ours.setblocking(False)
        return ours

    def replace(self) -> None:
        """Has the next agent come from another process. The agents that there are go on."""
        if self._control is not None:
            self._control.close()  # which it ends at
            self._control = None

    async def close(self) -> None:
        """Ends the process. The agents go on."""
        async with self._starting:
            self.replace()
            await asyncio.to_thread(self._end)

    async def _ask(self, request: bytes, descriptors: Sequence[int]) -> None:
        control = self._control or await self._start()
        try:
            socket.send_fds(control, [request], descriptors)
        except ConnectionError:  # it has ended
            self.replace()
            socket.send_fds(await self._start(), [request], descriptors)
        except BlockingIOError:  # it takes nothing any more
            self.replace()
            raise

    async def _start(self) -> socket.socket:
        async with self._starting:
            if self._control is None:
                await asyncio.to_thread(self._end)
                # Both here: of a start that is cancelled nothing is kept, and it ends.
                self._process, control = await asyncio.to_thread(self._spawn)
                self._control = control
            return self._control

    def _spawn(self) -> tuple[subprocess.Popen[bytes], socket.socket]:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        program = os.memfd_create("zygote")
        try:
            place = inside.AGENT_DIRECTORY
            os.write(program, agent_files.zygote(self._directory, self._filter, place))
            os.lseek(program, 0, os.SEEK_SET)
            process = subprocess.Popen(  # noqa: S603  # our own program
                # By its input: what it was told can be read in every agent's command line.
                [self._python, "-I", "-S", "-"],
                stdin=program,
                # Always of the same low number, however many descriptors this process has.
                stdout=theirs.fileno(),
                stderr=subprocess.PIPE,
                env={"LANG": inside.ENVIRONMENT["LANG"]},
                cwd="/",
                start_new_session=True,  # an interrupt from the terminal is ours to handle
            )
        except BaseException:
            ours.close()
            raise
        finally:
            theirs.close()
            os.close(program)
        ours.setblocking(False)
        return process, ours

    def _end(self) -> None:
        """Takes the end of the process whose socket was closed."""
        process, self._process = self._process, None
        if process is None:
            return
        try:
            process.wait(_END_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        assert process.stderr is not None  # noqa: S101  # a pipe was asked for
        with process.stderr as stream:
            os.set_blocking(stream.fileno(), False)  # agents may have it open for a moment still
            words = b""
            with suppress(BlockingIOError):
                words = os.read(stream.fileno(), _WORDS)
        if process.returncode:
            said = words.decode("utf-8", "replace").strip()
            _log.warning("zygote_ended", status=process.returncode, said=said)


def _processes(first: Handle) -> int:
    """A descriptor of the namespace of processes that one is in. Raises `OSError`."""
    opened = os.open(f"/proc/{first.process.pid}/ns/pid", os.O_RDONLY | os.O_CLOEXEC)
    if not first.running:  # the number may have been another's by then
        os.close(opened)
        raise ProcessLookupError(errno.ESRCH, "the sandbox's first process has ended")
    return opened
