"""The process that reads or fills a volume.

    python … pack   DIRECTORY OWNER ENTRIES DATA UNLESS    archive to standard output
    python … unpack DIRECTORY OWNER ENTRIES DATA           archive from standard input

DIRECTORY is the number of a descriptor, OWNER the user to be or empty. What came of it is a line of
JSON on standard error. It holds no secret, and has no right that the volume's owner has not.
"""

from __future__ import annotations

import ctypes
import json
import os
import resource
import signal
import sys
from typing import Final, NoReturn

from services.hands.archive.bounds import ArchiveRefused, Bounds
from services.hands.archive.pack import Packer
from services.hands.archive.tree import fingerprint
from services.hands.archive.unpack import Unpacker

_MEMORY: Final = 512 << 20  # bytes of addresses
_FILES: Final = 1024
_NICE: Final = 10
_SET_PDEATHSIG: Final = 1
_SET_DUMPABLE: Final = 4
_SET_NO_NEW_PRIVS: Final = 38


def main() -> None:
    """Does what the arguments say."""
    what, directory, owner, entries, data, *more = sys.argv[1:]
    libc = ctypes.CDLL(None, use_errno=True)
    signal.signal(signal.SIGTERM, _end)
    os.umask(0o077)
    root, bounds = int(directory), Bounds(int(entries), int(data))
    try:
        _become(owner, libc)
        told = _pack(root, bounds, more[0]) if what == "pack" else _unpack(root, bounds, libc)
    except ArchiveRefused as refusal:
        told = {"refused": str(refusal)}
    except OSError as error:
        told = {"failed": error.strerror or "it cannot be read or written", "errno": error.errno}
    except MemoryError:
        told = {"refused": "it takes too much memory"}
    sys.stderr.write(json.dumps(told) + "\n")
    sys.stderr.flush()


def _end(*_: object) -> NoReturn:
    """Ends in order: a directory that was opened up for reading is closed again."""
    raise SystemExit(1)


def _become(owner: str, libc: ctypes.CDLL) -> None:
    """Gives up every right but those of the volume's owner."""
    if owner:
        user = int(owner)
        os.setgroups([])
        os.setresgid(user, user, user)
        os.setresuid(user, user, user)
        # A change of user takes /proc/self from its process. None but the owner's could look in,
        # and those are in sandboxes, which do not see it.
        libc.prctl(_SET_DUMPABLE, 1, 0, 0, 0)
    libc.prctl(_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    libc.prctl(_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, _MEMORY))
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(_FILES, hard), hard))


def _pack(root: int, bounds: Bounds, unless: str) -> dict[str, object]:
    os.nice(_NICE)  # nobody waits for it
    # Before anything is read: what changes later is another next time.
    now = fingerprint(root, Bounds(bounds.entries, bounds.data))
    if now == unless:
        return {"fingerprint": now, "unchanged": True}
    packer = Packer(_write, bounds)
    packer.pack(root)
    left_out = packer.left_out
    return {"fingerprint": now, "left_out": left_out.kinds, "names": left_out.names}


def _unpack(root: int, bounds: Bounds, libc: ctypes.CDLL) -> dict[str, object]:
    before = Bounds(bounds.entries, bounds.data)
    Unpacker(lambda size: os.read(0, size), bounds).unpack(root)
    if libc.syncfs(root):  # before anybody relies on it
        raise OSError(ctypes.get_errno(), "it cannot be made durable")
    return {"fingerprint": fingerprint(root, before)}


def _write(data: bytes) -> None:
    while data:
        data = data[os.write(1, data) :]
