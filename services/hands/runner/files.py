"""The file tools: read, write, edit."""

from __future__ import annotations

import posix
import stat
from binascii import b2a_base64

from services.hands.runner import limits, paths
from services.hands.runner.failure import ToolFailure, phrase
from services.hands.runner.output import clean, preview

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_MEDIA = (".png", ".jpg", ".jpeg", ".gif", ".webp", ".pdf")
_CHUNK = 64 * 1024
_PDF_HEADER = 1024  # readers look for the mark within so many bytes


def is_large(file_path: str) -> bool:
    """Whether reading the file may take long enough to be noticed."""
    try:
        return posix.stat(paths.resolve(file_path)).st_size > limits.INLINE_FILE
    except (OSError, ToolFailure):
        return False  # the tool itself says what is wrong


def read(file_path: str, view_range: list[int] | None = None) -> dict[str, Any]:
    """A file's text, lines of it, or an image or PDF as a block."""
    with _Opened("read", file_path, posix.O_RDONLY) as file:
        if file.path.lower().endswith(_MEDIA):
            if view_range:
                raise ToolFailure("read: view_range is not supported for image/PDF files")
            return {"block": _media(file)}
        try:
            text = _lines(file, view_range[0], view_range[1]) if view_range else _whole(file)
        except UnicodeDecodeError as error:
            raise ToolFailure(
                f"read: {file_path}: not valid UTF-8 text (binary files are only supported for "
                "image/PDF extensions)"
            ) from error
    text = clean(text)
    if len(text) > limits.RESULT_CHARACTERS:
        head, tail = text[: limits.PREVIEW_HEAD], text[-limits.PREVIEW_TAIL :]
        text = preview(head, tail, len(text), f"from {file_path}: use view_range to read parts")
    return {"text": text}


def write(file_path: str, content: str) -> dict[str, Any]:
    """Writes a file, making its parent directories."""
    data = content.encode()
    flags = posix.O_WRONLY | posix.O_CREAT | posix.O_TRUNC
    with _Opened("write", file_path, flags, parents=True) as file:
        file.write(data)
    return {"text": f"wrote {len(data)} bytes to {file_path}"}


def edit(
    file_path: str, old_string: str, new_string: str, replace_all: bool | None = None
) -> dict[str, Any]:
    """Replaces text that occurs exactly once, or everywhere with `replace_all`."""
    with _Opened("edit", file_path, posix.O_RDWR) as file:
        if file.size > limits.TEXT_FILE:
            raise ToolFailure(
                f"edit: {file_path} is {file.size} bytes, exceeds {limits.TEXT_FILE}-byte limit. "
                "The edit tool loads the whole file and cannot modify a file this large."
            )
        try:
            text = file.read(limits.TEXT_FILE).decode()
        except UnicodeDecodeError as error:
            raise ToolFailure(
                f"edit: {file_path}: not valid UTF-8 text (cannot edit binary files)"
            ) from error
        count = text.count(old_string)
        if count == 0:
            raise ToolFailure(f"edit: old_string not found in {file_path}")
        if count > 1 and not replace_all:
            raise ToolFailure(
                f"edit: old_string appears {count} times in {file_path} (must be unique)"
            )
        file.rewrite(text.replace(old_string, new_string).encode())
    return {"text": f"edited {file_path} ({count} replacement(s))"}


class _Opened:
    """A regular file that is open, with its errors in the tool's words."""

    def __init__(self, tool: str, given: str, flags: int, *, parents: bool = False) -> None:
        self._tool = tool
        self._given = given
        self._flags = flags
        self._parents = parents
        self._fd = -1
        self.path = ""
        self.size = 0

    def __enter__(self) -> _Opened:  # noqa: PYI034  # Self came after the oldest Python
        try:
            self.path = paths.resolve(self._given)
        except ToolFailure as error:
            raise ToolFailure(f"{self._tool}: {error}") from error
        try:
            # Truncated only once it is known to be a regular file; NONBLOCK for FIFOs.
            flags = self._flags & ~posix.O_TRUNC | posix.O_NONBLOCK
            self._fd = paths.open_beneath(self.path, flags, parents=self._parents)
            status = posix.fstat(self._fd)
            self.size = status.st_size
            if stat.S_ISREG(status.st_mode):
                if self._flags & posix.O_TRUNC:
                    posix.ftruncate(self._fd, 0)
                return self
        except OSError as error:
            self._close()
            raise ToolFailure(f"{self._tool}: {self._given}: {phrase(error)}") from error
        self._close()
        raise ToolFailure(f"{self._tool}: {self._given}: not a regular file")

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        self._close()
        if isinstance(error, OSError):
            raise ToolFailure(f"{self._tool}: {self._given}: {phrase(error)}") from error

    def _close(self) -> None:
        if self._fd >= 0:
            posix.close(self._fd)
            self._fd = -1

    def read(self, limit: int) -> bytes:
        """At most `limit` bytes from where the last read stopped."""
        data = bytearray()
        while len(data) < limit and (chunk := posix.read(self._fd, limit - len(data))):
            data += chunk
        return bytes(data)

    def write(self, data: bytes) -> None:
        """Writes all of `data`."""
        view = memoryview(data)
        while view:
            view = view[posix.write(self._fd, view) :]

    def rewrite(self, data: bytes) -> None:
        """Makes `data` the file's whole content."""
        posix.lseek(self._fd, 0, 0)
        self.write(data)
        posix.ftruncate(self._fd, len(data))


def _whole(file: _Opened) -> str:
    given = file._given  # noqa: SLF001  # its own module's class
    if file.size > limits.TEXT_FILE:
        raise ToolFailure(
            f"read: {given} is {file.size} bytes, exceeds {limits.TEXT_FILE}-byte limit. "
            "Use the view_range parameter to read specific line ranges, e.g. view_range: [1, 500]."
        )
    return file.read(limits.TEXT_FILE).decode()


def _lines(file: _Opened, first: int, last: int) -> str:
    """Lines `first` to `last`, counted from one; to the end when `last` is not positive."""
    given = file._given  # noqa: SLF001  # its own module's class
    line = 1
    first = max(first, 1)
    kept = bytearray()
    while last <= 0 or line <= last:
        chunk = file.read(_CHUNK)
        if not chunk:
            break
        pieces = chunk.split(b"\n")
        for index, piece in enumerate(pieces):
            if line >= first and (last <= 0 or line <= last):
                kept += piece
                if index < len(pieces) - 1 and (last <= 0 or line < last):
                    kept += b"\n"
            line += index < len(pieces) - 1
        if len(kept) > limits.TEXT_FILE:
            raise ToolFailure(_too_long(given, first, last))
    return kept.decode()


def _too_long(given: str, first: int, last: int) -> str:
    if first == last:
        return (
            f"read: line {first} of {given} alone exceeds {limits.TEXT_FILE}-byte limit. "
            "The read tool cannot return part of a line, so view_range cannot narrow this further."
        )
    return (
        f"read: view_range [{first}, {last}] of {given} exceeds {limits.TEXT_FILE}-byte limit. "
        "Narrow the view_range to read a smaller portion."
    )


def _media(file: _Opened) -> dict[str, str]:
    given = file._given  # noqa: SLF001  # its own module's class
    is_pdf = file.path.lower().endswith(".pdf")
    limit = limits.PDF_FILE if is_pdf else limits.IMAGE_BASE64 // 4 * 3
    if file.size > limit:
        raise ToolFailure(
            f"read: {given} is {file.size} bytes, exceeds {limit}-byte limit for image/PDF files."
        )
    data = file.read(limit)
    # By content, not by name: a block that is not what it says makes every later request fail.
    media_type = _sniff(data)
    if (media_type == "application/pdf") is not is_pdf or not media_type:
        kind = "a PDF" if is_pdf else "a PNG, JPEG, GIF or WebP image"
        raise ToolFailure(f"read: {given}: not {kind}, whatever its name says")
    kind = "document" if is_pdf else "image"
    return {
        "type": kind,
        "media_type": media_type,
        "data": b2a_base64(data, newline=False).decode(),
    }


def _sniff(data: bytes) -> str:
    if data.startswith(b"\x89PNG\r\n\x1a\n"):
        return "image/png"
    if data.startswith(b"\xff\xd8\xff"):
        return "image/jpeg"
    if data.startswith((b"GIF87a", b"GIF89a")):
        return "image/gif"
    if data.startswith(b"RIFF") and data[8:12] == b"WEBP":
        return "image/webp"
    return "application/pdf" if b"%PDF-" in data[:_PDF_HEADER] else ""
