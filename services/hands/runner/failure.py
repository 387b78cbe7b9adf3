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


class ignoring:  # noqa: N801  # reads like `contextlib.suppress`, which is slower to import
    """Ends its body quietly at one of these exceptions."""

    def __init__(self, *kinds: type[BaseException]) -> None:
        self._kinds = kinds

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> bool:
        return kind is not None and issubclass(kind, self._kinds)


class ToolFailure(Exception):  # noqa: N818  # not a fault of the program
    """The tool's answer is an error; its text is for the model."""


def phrase(error: OSError) -> str:
    """What went wrong with a file, in the words that every platform's model reads."""
    return _PHRASES.get(error.errno or 0) or (error.strerror or "i/o error").lower()
