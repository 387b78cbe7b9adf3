"""Output made fit for a model: bounded, valid text, and in a file when it is too long to show."""

from __future__ import annotations

import posix

from services.hands.runner import limits
from services.hands.runner.failure import ignoring

# Control sequences of terminals: colours, cursor movements.
_ANSI = r"\x1b\[[0-9;?]*[ -/]*[@-~]"


def clean(text: str) -> str:
    """Text without NUL, which neither JSON consumers nor databases take everywhere."""
    return text.replace("\0", "\ufffd")


def decode(data: bytes) -> str:
    """Bytes of unknown encoding as text: what is not UTF-8 becomes U+FFFD."""
    return clean(data.decode("utf-8", "replace"))


def plain(text: str) -> str:
    """Text without the control sequences of terminals."""
    if "\x1b" not in text:
        return text
    import re  # noqa: PLC0415  # rarely needed, and slow to import

    return re.sub(_ANSI, "", text)


def spill(text: str, path: str) -> str:
    """The text itself, or a preview once it is in a file at `path`, if it is too long to show."""
    if len(text) <= limits.RESULT_CHARACTERS:
        return text
    try:
        with open(path, "w", encoding="utf-8", errors="replace") as file:  # noqa: PTH123
            file.write(text)
    except OSError:
        where = "and could not be written to a file"
    else:
        where = f"and is in {path}"
    return preview(text[: limits.PREVIEW_HEAD], text[-limits.PREVIEW_TAIL :], len(text), where)


def preview(head: str, tail: str, size: int, where: str, unit: str = "characters") -> str:
    """The beginning and the end of something longer, with a note between them."""
    return f"{head}\n\n[output truncated: it has {size} {unit} {where}; its end follows]\n\n{tail}"


class Output:
    """What a command prints: all of it while it is short, then its head in a file and its tail.

    Memory stays flat: at most the last `BASH_OUTPUT` bytes and one chunk are held.
    """

    def __init__(self) -> None:
        self._tail = bytearray()
        self._total = 0
        self._told = 0
        self._file = -1
        self._path = ""
        self._head = ""
        self._written = 0
        self._failed = False

    def begin(self, path: str) -> None:
        """A new call begins: what was printed since the last one stays its first output."""
        self._path = path
        self._total = len(self._tail)
        self._told = 0

    @property
    def untold(self) -> int:
        """Bytes that were printed since `tell`."""
        return self._total - self._told

    def tell(self, at_most: int) -> tuple[bytes, int]:
        """The last of what was printed since the last time, and how much came before it."""
        count = min(self.untold, at_most, len(self._tail))
        dropped = self.untold - count
        self._told = self._total
        return bytes(self._tail[len(self._tail) - count :]), dropped

    def feed(self, data: bytes) -> None:
        """Takes the next bytes."""
        self._total += len(data)
        self._tail += data
        if len(self._tail) <= limits.BASH_OUTPUT:
            return
        if self._path and self._file < 0 and not self._failed:
            self._open()
        elif self._file >= 0:
            self._write(data)
        del self._tail[: len(self._tail) - limits.BASH_OUTPUT]

    def finish(self) -> str:
        """The text of the call that ends here; the next bytes are the next call's."""
        data = bytes(self._tail)
        self._tail.clear()
        path, self._path = self._path, ""
        text = plain(decode(data)).rstrip("\n")
        if self._total <= len(data):
            return spill(text, path)
        where = "and could not be written to a file" if self._failed else f"and is in {path}"
        if self._file >= 0 and self._written < self._total:
            where = f"and {path} has the first {self._written} and the last {len(data)}"
            self._close(b"\n\n[... output left out ...]\n\n" + data)
        else:
            self._close(b"")
        head, self._head, self._failed = self._head, "", False
        return preview(head, text[-limits.PREVIEW_TAIL :], self._total, where, "bytes")

    def _open(self) -> None:
        self._head = plain(decode(bytes(self._tail[: limits.PREVIEW_HEAD])))
        self._written = 0
        try:
            flags = (
                posix.O_WRONLY | posix.O_CREAT | posix.O_TRUNC | posix.O_NOFOLLOW | posix.O_CLOEXEC
            )
            self._file = posix.open(self._path, flags, 0o644)
        except OSError:
            self._failed = True
            return
        self._write(bytes(self._tail))

    def _write(self, data: bytes) -> None:
        data = data[: limits.SPILL_BYTES - self._written]
        try:
            while data:
                count = posix.write(self._file, data)
                self._written += count
                data = data[count:]
        except OSError:  # a full disk: what is written so far stays
            self._close(b"")
            self._failed = True

    def _close(self, last: bytes) -> None:
        if self._file >= 0:
            with ignoring(OSError):
                posix.write(self._file, last)
            posix.close(self._file)
            self._file = -1
