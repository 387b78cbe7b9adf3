"""Renaming without a moment in which something can be lost (renameat2(2)).

A plain rename deletes what is at its target, which may be another thing than what was there when it
was looked at.
"""

from __future__ import annotations

import ctypes
import errno
import os
import stat
from functools import cache
from typing import Any, Final

_NOREPLACE: Final = 1
_EXCHANGE: Final = 2
_TAKEN: Final = frozenset({errno.ENOTDIR, errno.ENOTEMPTY})
_UNKNOWN: Final = frozenset({errno.EINVAL, errno.ENOSYS})


def into_nothing(source: bytes, source_dir: int, target: bytes, target_dir: int) -> None:
    """Renames to a name that nothing has. Raises `FileExistsError` and other `OSError`s."""
    try:
        _rename(source, source_dir, target, target_dir, _NOREPLACE)
    except OSError as error:
        if error.errno not in _UNKNOWN:
            raise
        _link(source, source_dir, target, target_dir)


def exchange(source: bytes, source_dir: int, target: bytes, target_dir: int) -> None:
    """Has each of two things get the other's name. Raises `OSError`.

    Where the file system cannot, the name is nobody's for a moment: what comes there meanwhile is
    not replaced either.
    """
    try:
        _rename(source, source_dir, target, target_dir, _EXCHANGE)
    except OSError as error:
        if error.errno not in _UNKNOWN:
            raise
        out = source + b".out"
        os.rename(target, out, src_dir_fd=target_dir, dst_dir_fd=source_dir)
        into_nothing(source, source_dir, target, target_dir)
        os.rename(out, source, src_dir_fd=source_dir, dst_dir_fd=source_dir)


def _link(source: bytes, source_dir: int, target: bytes, target_dir: int) -> None:
    """Another way to a name that nothing has. A directory replaces one that is empty."""
    if stat.S_ISDIR(os.lstat(source, dir_fd=source_dir).st_mode):
        try:
            os.rename(source, target, src_dir_fd=source_dir, dst_dir_fd=target_dir)
        except OSError as error:
            if error.errno in _TAKEN:
                raise FileExistsError(*error.args) from error
            raise
    else:
        os.link(source, target, src_dir_fd=source_dir, dst_dir_fd=target_dir, follow_symlinks=False)
        os.unlink(source, dir_fd=source_dir)


def _rename(source: bytes, source_dir: int, target: bytes, target_dir: int, flags: int) -> None:
    library = _library()
    if library.renameat2(source_dir, source, target_dir, target, flags):
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code), os.fsdecode(target))


@cache
def _library() -> Any:  # noqa: ANN401  # what a library has is known to nobody
    library: Any = ctypes.CDLL(None, use_errno=True)
    if not hasattr(library, "renameat2"):
        raise OSError(errno.ENOSYS, "no renameat2")
    name = ctypes.c_char_p
    library.renameat2.argtypes = [ctypes.c_int, name, ctypes.c_int, name, ctypes.c_uint]
    return library
