"""The process that agents are forked from, outside of every sandbox (docs/adr/0036).

It has loaded what an agent needs and nothing else: no secret, and no descriptor but the socket that
it is asked over. For each sandbox it forks a child, which becomes the sandbox's user, waits for the
sandbox, enters its namespaces, and forks the agent in there. Nothing untrusted runs in a sandbox
before its agent, so that nobody is there who could look on.

A request is a message of JSON, `{"user": 200001, "arguments": []}`, with descriptors: the agent's
stream, and the files of the control groups to join. `user` is null where there is no right to other
users; with `arguments` that program is run in the agent's place. What comes over the stream first
is one byte, with a descriptor of the sandbox's first process.
"""

from __future__ import annotations

import array
import ctypes
import gc
import json
import os
import signal
import socket
import sys

from services.hands.runner import agent, hardening

# What an agent imports when it needs it: here it is imported once for all of them.
from services.hands.runner import clone, program, search  # noqa: F401  # isort: skip

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, NoReturn

READY = b'{"type":"ready"}'
_REQUEST_BYTES = 65536
_MOST_DESCRIPTORS = 16
_HIGHEST_DESCRIPTOR = 1024  # it never has as many
_PR_SET_CHILD_SUBREAPER = 36
_CAP_SETGID, _CAP_SETUID = 6, 7
_NAMESPACES = (
    0x00020000  # CLONE_NEWNS
    | 0x02000000  # CLONE_NEWCGROUP
    | 0x04000000  # CLONE_NEWUTS
    | 0x08000000  # CLONE_NEWIPC
    | 0x10000000  # CLONE_NEWUSER
    | 0x20000000  # CLONE_NEWPID
    | 0x40000000  # CLONE_NEWNET
)

_libc = ctypes.CDLL(None, use_errno=True)


def serve(control: int, call_filter: bytes, place: str) -> NoReturn:
    """Forks agents until the socket `control` is closed.

    `call_filter` is for them to install; `place` is where they find their own files.
    """
    # The agents are its children, or become it: the kernel clears them away as they end, which the
    # end of a sandbox waits for.
    hardening.check(_libc.prctl(_PR_SET_CHILD_SUBREAPER, ctypes.c_ulong(1), 0, 0, 0), "prctl")
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    if os.geteuid() == 0:
        hardening.keep_capabilities(_CAP_SETGID, _CAP_SETUID)
    _settle(place)
    with socket.socket(fileno=control) as requests:
        while True:
            message, descriptors = _receive(requests)
            if not message:
                os._exit(0)
            if os.fork() == 0:
                requests.close()
                _enter(json.loads(message), descriptors, call_filter)
            for descriptor in descriptors:
                os.close(descriptor)


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


def _receive(stream: socket.socket) -> tuple[bytes, list[int]]:
    descriptors = array.array("i")
    room = socket.CMSG_SPACE(_MOST_DESCRIPTORS * descriptors.itemsize)
    message, ancillary, _, _ = stream.recvmsg(_REQUEST_BYTES, room)
    for _, _, data in ancillary:
        descriptors.frombytes(data[: len(data) - len(data) % descriptors.itemsize])
    return message, [*descriptors]


def _enter(request: dict[str, Any], descriptors: list[int], call_filter: bytes) -> NoReturn:
    """The forked child's whole life. What goes wrong is told over the stream."""
    stream, *groups = descriptors
    try:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        for descriptor in (0, 1, 2):
            os.dup2(stream, descriptor)
        for group in groups:
            os.write(group, b"0")  # itself
        if request["user"] is not None:
            _become(request["user"])
        with socket.socket(fileno=stream) as heard:
            _, entered = _receive(heard)
        if not entered:
            os._exit(0)  # the sandbox did not come up
        hardening.check(_libc.setns(entered[0], _NAMESPACES), "setns")
        if os.fork() != 0:
            os._exit(0)
        os.closerange(3, _HIGHEST_DESCRIPTOR)
        _run(request["arguments"], call_filter)
    except BaseException as error:  # noqa: BLE001  # nobody else could tell of it
        os.write(1, f"{error}\n".encode())
    finally:
        os._exit(1)


def _become(user: int) -> None:
    os.setgroups([])
    os.setresgid(user, user, user)
    os.setresuid(user, user, user)


def _run(arguments: list[str], call_filter: bytes) -> None:
    """In the sandbox: gives up what is left to give up, and serves."""
    os.setsid()
    hardening.hide()
    hardening.drop_capabilities()
    hardening.keep_privileges_away()
    if call_filter:
        hardening.filter_calls(call_filter)
    if arguments:
        os.execv(arguments[0], arguments)  # noqa: S606  # no shell's line
    os.write(1, len(READY).to_bytes(4, "big") + READY)
    agent.run()
