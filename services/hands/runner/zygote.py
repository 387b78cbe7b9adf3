"""The process that agents are forked from, outside of every sandbox (docs/adr/0036).

It has loaded what an agent needs and nothing else: no secret, and no descriptor but the socket that
it is asked over. For each sandbox it forks a child, which becomes the sandbox's user, enters its
namespaces, gives up every privilege, and is the agent. Nothing untrusted runs in a sandbox before
its agent, so that nobody is there who could look on.

A request is a message of words that each end with a zero byte: the user's number, empty where there
is no right to other users, and the arguments of a program that is run in the agent's place, if any.
With it come descriptors: the agent's stream, the sandbox's first process and its namespace of
processes, and the files that list the members of its control groups, which both join.

What a fork costs is the memory that it touches. So there are few steps in it, in functions of
modules and not of objects; and nothing is imported that does something of its own after a fork.
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]  # `signal` wraps it in enumerations
import _socket
import ctypes
import gc
import posix
import sys

from services.hands.runner import agent, hardening, search
from services.hands.runner.failure import ignoring
from services.hands.runner.frames import READY

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NoReturn

_LOADED = (search,)  # what an agent imports when it needs it: here once for all of them
_REQUEST_BYTES = 65536
_DESCRIPTOR_BYTES = 4
_MOST_DESCRIPTORS = 16
_HIGHEST_DESCRIPTOR = 1024  # it has a dozen, of the lowest numbers that are free
_CONTROL = 1  # its standard output
_PR_SET_CHILD_SUBREAPER = 36
_CAP_SETGID, _CAP_SETUID, _CAP_SYS_ADMIN = 6, 7, 21
_PROCESSES = 0x20000000  # CLONE_NEWPID
_NAMESPACES = (
    0x00020000  # CLONE_NEWNS
    | 0x02000000  # CLONE_NEWCGROUP
    | 0x04000000  # CLONE_NEWUTS
    | 0x08000000  # CLONE_NEWIPC
    | 0x10000000  # CLONE_NEWUSER
    | 0x40000000  # CLONE_NEWNET
)

_libc = ctypes.CDLL(None, use_errno=True)


def serve(call_filter: bytes, place: str) -> NoReturn:
    """Forks agents until the socket that it is asked over is closed.

    `call_filter` is for them to install; `place` is where they find their own files.
    """
    # The kernel clears them away as they end, which the end of a sandbox waits for.
    _signal.signal(_signal.SIGCHLD, _signal.SIG_IGN)
    hardening.check(_libc.prctl(_PR_SET_CHILD_SUBREAPER, ctypes.c_ulong(1), 0, 0, 0), "prctl")
    privileged = posix.geteuid() == 0
    if privileged:
        hardening.keep_capabilities(_CAP_SETGID, _CAP_SETUID, _CAP_SYS_ADMIN)
    here = posix.open("/proc/self/ns/pid", posix.O_RDONLY | posix.O_CLOEXEC)
    requests = _socket.socket(fileno=_CONTROL)
    _settle(place)
    while True:
        message, descriptors = _receive(requests)
        if not message:
            posix._exit(0)  # noqa: SLF001  # it has no other name
        words = message.decode().split("\0")[:-1]
        try:
            if privileged:
                _forked_there(words, descriptors, call_filter, here)
            elif posix.fork() == 0:
                _forked_twice(words, descriptors, call_filter)
        except OSError as error:
            with ignoring(OSError):  # who asked may be gone, as the sandbox is
                posix.write(descriptors[0], f"{error}\n".encode())
        for descriptor in descriptors:
            posix.close(descriptor)


def _settle(place: str) -> None:
    """Has modules come from where a sandbox has them, and memory shared for as long as can be."""
    sys.path[-1] = place
    sys.path_importer_cache.clear()
    for name, module in [*sys.modules.items()]:
        if name.partition(".")[0] == "services":
            below = name.replace(".", "/")
            if hasattr(module, "__path__"):
                module.__path__ = [f"{place}/{below}"]
            module.__file__ = f"{place}/{below}.py"
    gc.collect()
    gc.freeze()


def _receive(stream: _socket.socket) -> tuple[bytes, list[int]]:
    room = _socket.CMSG_SPACE(_MOST_DESCRIPTORS * _DESCRIPTOR_BYTES)
    message, ancillary, flags, _ = stream.recvmsg(_REQUEST_BYTES, room)
    if flags & (_socket.MSG_CTRUNC | _socket.MSG_TRUNC):
        # The kernel leaves out what it has no room for: an agent without a group, say.
        raise SystemExit("a request did not arrive whole")
    return message, [
        int.from_bytes(data[begin : begin + _DESCRIPTOR_BYTES], sys.byteorder)
        for _, _, data in ancillary
        for begin in range(0, len(data), _DESCRIPTOR_BYTES)
    ]


def _forked_there(words: list[str], descriptors: list[int], call_filter: bytes, here: int) -> None:
    """Forks an agent among the sandbox's processes: root may choose where its children are."""
    _join(descriptors[2], _PROCESSES)
    try:
        if posix.fork() == 0:
            _live(words, descriptors, call_filter, _NAMESPACES)
    finally:
        if _libc.setns(here, _PROCESSES) < 0:
            posix._exit(1)  # noqa: SLF001  # where the next ones would be is not known


def _forked_twice(words: list[str], descriptors: list[int], call_filter: bytes) -> NoReturn:
    """Enters the sandbox, and forks the agent there, which is among its processes only then."""
    try:
        _join(descriptors[1], _NAMESPACES | _PROCESSES)
        if posix.fork() == 0:
            _live(words, descriptors, call_filter, 0)
    except BaseException as error:  # noqa: BLE001  # nobody else could tell of it
        posix.write(descriptors[0], f"{error}\n".encode())
    finally:
        posix._exit(0)  # noqa: SLF001


def _live(
    words: list[str], descriptors: list[int], call_filter: bytes, namespaces: int
) -> NoReturn:
    """The agent's whole life, among the sandbox's processes. What goes wrong is told."""
    try:
        stream, first, _, *groups = descriptors
        for descriptor in (0, 1, 2):
            posix.dup2(stream, descriptor)
        for group in groups:
            posix.write(group, b"0")  # itself
            posix.write(group, b"1")
        user, *arguments = words
        if user:
            _become(int(user))
        if namespaces:
            _join(first, namespaces)
        posix.closerange(3, _HIGHEST_DESCRIPTOR)
        posix.setsid()
        _signal.signal(_signal.SIGCHLD, _signal.SIG_DFL)
        hardening.hide()
        hardening.drop_capabilities()
        hardening.keep_privileges_away()
        if call_filter:
            hardening.filter_calls(call_filter)
        if arguments:
            posix.execv(arguments[0], arguments)
        posix.write(1, READY)
        agent.run()
    except BaseException as error:  # noqa: BLE001  # nobody else could tell of it
        posix.write(1, f"{error}\n".encode())
    finally:
        posix._exit(1)  # noqa: SLF001


def _become(user: int) -> None:
    posix.setgroups([])
    posix.setresgid(user, user, user)
    posix.setresuid(user, user, user)


def _join(process: int, namespaces: int) -> None:
    """Enters namespaces of a process. Raises `OSError`."""
    if _libc.setns(process, namespaces) < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"setns: {posix.strerror(number)}")
