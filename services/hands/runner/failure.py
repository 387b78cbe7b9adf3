"""The tools' own errors."""

from __future__ import annotations

import errno

_PHRASES = {
    errno.ENOENT: "no such file or directory",
    errno.ENOTDIR: "not a directory",
    errno.EISDIR: "is a directory",
    errno.EACCES: "permission denied",
    errno.EPERM: "permission denied",
    errno.EEXIST: "file already exists",
    errno.ELOOP: "too many levels of symbolic links",
    errno.ENOSPC: "no space left on device",
    errno.EROFS: "read-only file system",
    errno.ENAMETOOLONG: "file name too long",
}


class ToolFailure(Exception):  # noqa: N818  # not a fault of the program
    """The tool's answer is an error; its text is for the model."""


def phrase(error: OSError) -> str:
    """What went wrong with a file, in the words that every platform's model reads."""
    return _PHRASES.get(error.errno or 0) or (error.strerror or "i/o error").lower()
