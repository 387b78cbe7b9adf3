"""Forms with files, read as they come (RFC 7578): no more of a file is held than one piece."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from python_multipart.exceptions import FormParserError
from python_multipart.multipart import MultipartParser

from chassis.errors import DroverError, Reason
from gateway.uploads import disposition

if TYPE_CHECKING:
    from collections.abc import Set as AbstractSet

MAX_PARTS: Final = 4_000
MAX_FIELD_BYTES: Final = 16 * 1024
_MAX_HEADERS: Final = 8
_MAX_HEADER_BYTES: Final = 16 * 1024
_CONTENT_TYPE: Final = re.compile(
    r"multipart/form-data[ \t]*;.*?\bboundary[ \t]*=[ \t]*"
    r"(?:\"([^\"]{1,70})\"|([^\";,\s]{1,70}))[ \t]*(?:;|$)",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class Field:
    """A field that is no file, whole."""

    name: str
    value: str


@dataclass(frozen=True, slots=True)
class FileStart:
    """A file begins. Its bytes follow, then the next part or the end."""

    filename: str
    media_type: str


Event = Field | FileStart | bytes
"""What a form says, in its order; `bytes` are a piece of the file that began last."""


class FormReader:
    """Makes events of a form's bytes; parts that have one of the names `files` are files.

    Raises INVALID_ARGUMENT for what is no form, and what is over the bounds of one.
    """

    def __init__(self, content_type: str, files: AbstractSet[str]) -> None:
        self._files = files
        boundary = _boundary(content_type)
        self._delimiter = b"\r\n--" + boundary
        self._preamble: bytes | None = b"\r\n"  # None behind it
        self._passed = 0
        self._parser = MultipartParser(
            boundary,
            {
                "on_part_begin": self._begin,
                "on_header_field": self._take_name,
                "on_header_value": self._take_value,
                "on_header_end": self._end_header,
                "on_headers_finished": self._end_headers,
                "on_part_data": self._take_data,
                "on_part_end": self._end_part,
                "on_end": self._end,
            },
            max_header_count=_MAX_HEADERS,
            max_header_size=_MAX_HEADER_BYTES,
        )
        self._events: list[Event] = []
        self._data: list[bytes] = []
        self._delimiters = self._parts = 0
        self._whole = False
        self._headers: dict[bytes, bytes] = {}
        self._name, self._value = bytearray(), bytearray()
        self._field: str | None = None
        self._text = bytearray()

    def feed(self, data: bytes) -> list[Event]:
        """The events in the next piece of the form."""
        # Each costs a hundred times what other bytes do, whether it is one in the end or not.
        self._delimiters += data.count(self._delimiter)
        if self._delimiters > MAX_PARTS:
            raise _crowded()
        data = self._behind_preamble(data)
        try:
            self._parser.write(data)
        except FormParserError as error:
            raise _invalid(f"the form is malformed: {error}") from None
        self._join()
        events, self._events = self._events, []
        return events

    def end(self) -> None:
        """Raises INVALID_ARGUMENT if the form is not at its end."""
        if self._preamble is not None:
            raise _unbegun()
        if not self._whole:
            raise _invalid("the form is cut off: its last boundary is missing")

    def _behind_preamble(self, data: bytes) -> bytes:
        """What is left of the form's beginning without what stands before its first boundary.

        That is nobody's to read (RFC 2046 §5.1.1).
        """
        if self._preamble is None:
            return data
        seen = self._preamble + data
        at = seen.find(self._delimiter)
        if at >= 0:
            self._preamble = None
            return seen[at + len(b"\r\n") :]
        self._passed += len(data)
        if self._passed > MAX_FIELD_BYTES:
            raise _unbegun()
        self._preamble = seen[-len(self._delimiter) + 1 :]
        return b""

    def _begin(self) -> None:
        self._parts += 1
        if self._parts > MAX_PARTS:
            raise _crowded()
        self._headers.clear()

    def _take_name(self, data: bytes, start: int, end: int) -> None:
        self._name += data[start:end]

    def _take_value(self, data: bytes, start: int, end: int) -> None:
        self._value += data[start:end]

    def _end_header(self) -> None:
        name = bytes(self._name).lower()
        if name in self._headers:
            raise _invalid(f"a part has its header {name.decode()[:64]} twice")
        self._headers[name] = bytes(self._value)
        self._name.clear()
        self._value.clear()

    def _end_headers(self) -> None:
        part = disposition.read(self._headers)
        if part.name in self._files:
            self._field = None
            self._events.append(FileStart(part.filename, part.media_type))
        else:
            self._field = part.name
            self._text.clear()

    def _take_data(self, data: bytes, start: int, end: int) -> None:
        if self._field is None:
            self._data.append(data[start:end])
            return
        self._text += data[start:end]
        if len(self._text) > MAX_FIELD_BYTES:
            raise _invalid(f"{self._field[:64]}: is too long")

    def _end_part(self) -> None:
        if self._field is None:
            self._join()
            return
        try:
            self._events.append(Field(self._field, self._text.decode()))
        except UnicodeDecodeError:
            raise _invalid(f"{self._field[:64]}: is not UTF-8") from None

    def _join(self) -> None:
        if self._data:
            self._events.append(b"".join(self._data))
            self._data.clear()

    def _end(self) -> None:
        self._whole = True


def _boundary(content_type: str) -> bytes:
    match = _CONTENT_TYPE.match(content_type)
    if match is None:
        raise _invalid("content-type: must be multipart/form-data with a boundary")
    return (match[1] or match[2]).encode("latin-1")


def _unbegun() -> DroverError:
    return _invalid("the form is malformed: its first boundary is missing")


def _crowded() -> DroverError:
    return _invalid(f"a form has at most {MAX_PARTS} parts")


def _invalid(message: str) -> DroverError:
    return DroverError(Reason.INVALID_ARGUMENT, message)
