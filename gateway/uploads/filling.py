"""What becomes of a form: the messages of the RPC that stores what is in it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from google.protobuf.message_factory import GetMessageClass

from chassis.errors import DroverError, Reason
from gateway.body import too_large
from gateway.transcode.refusal import Refused, unknown_field
from gateway.uploads import disposition
from gateway.uploads.form import Field, FileStart

if TYPE_CHECKING:
    from collections.abc import Iterator

    from google.protobuf.message import Message

    from gateway.transcode.form import Form
    from gateway.transcode.routes import Route
    from gateway.uploads.form import Event


class Filling(Protocol):
    """Makes messages of one form's events. Raises `DroverError`, naming the part."""

    def take(self, event: Event) -> Iterator[Message]:
        """The messages for an event; there may be none."""
        ...

    def end(self) -> Iterator[Message]:
        """The messages that end a form that is whole."""
        ...


def filling(route: Route, form: Form, header: Message, limit: int) -> Filling:
    """What fills in the messages of an upload whose files have `limit` bytes at most."""
    make = GetMessageClass(route.method.input_type)
    return (_Folder if form.many else _File)(make, form, header, limit)


class _Parts:
    """What all forms have in common: their fields, and the bounds of their files.

    The header goes out before the files. Fields behind them are told in another one.
    """

    def __init__(self, make: type[Message], form: Form, header: Message, limit: int) -> None:
        self._form = form
        self._make: Any = make
        self._header = header
        self._late: Message | None = None
        self._began = False
        self._seen: set[str] = set()
        self._limit = self._left = limit

    def take(self, event: Event) -> Iterator[Message]:
        """The messages for an event."""
        if isinstance(event, Field):
            self._take_field(event)
        elif isinstance(event, FileStart):
            yield from self._start(event)
        else:
            self._left -= len(event)
            if self._left < 0:
                raise too_large(self._limit)
            yield self._piece(event)

    def end(self) -> Iterator[Message]:
        """The messages that end a form that is whole."""
        if not self._began:
            raise _invalid(f"{self._form.part}: is required")
        yield from self._finish()
        if self._late is not None:
            yield self._make(header=self._late)
        yield self._make(complete=True)

    def _start(self, event: FileStart) -> Iterator[Message]:
        raise NotImplementedError

    def _piece(self, data: bytes) -> Message:
        raise NotImplementedError

    def _finish(self) -> Iterator[Message]:
        yield from ()

    def _take_field(self, field: Field) -> None:
        name = field.name
        try:
            if (put := self._form.setters.get(name)) is None:
                raise unknown_field(name)
            if name in self._seen:
                raise Refused("is given twice").under(name)
            self._seen.add(name)
            header = self._header
            if self._began:
                self._late = header = self._late or type(self._header)()
            try:
                put(header, field.value)
            except Refused as refused:
                raise refused.under(name) from None
        except Refused as refused:
            raise refused.error() from None


class _File(_Parts):
    """One file, whose name and type its own part tells."""

    def _start(self, event: FileStart) -> Iterator[Message]:
        if self._began:
            raise _invalid(f"{self._form.part}: is given twice")
        self._began = True
        header: Any = self._header
        header.filename = disposition.kept(event.filename, event.media_type)
        header.mime_type = event.media_type
        yield self._make(header=header)

    def _piece(self, data: bytes) -> Message:
        message: Message = self._make(data=data)
        return message


class _Folder(_Parts):
    """Any number of files, each told by its path."""

    def __init__(self, make: type[Message], form: Form, header: Message, limit: int) -> None:
        super().__init__(make, form, header, limit)
        self._path: str | None = None

    def _start(self, event: FileStart) -> Iterator[Message]:
        if self._began:
            yield from self._finish()
        else:
            self._began = True
            yield self._make(header=self._header)
        self._path = event.filename or disposition.kept("", event.media_type)

    def _piece(self, data: bytes) -> Message:
        path, self._path = self._path, None
        message: Message = self._make(file={"path": path or "", "data": data})
        return message

    def _finish(self) -> Iterator[Message]:
        """Tells of a file that had no bytes."""
        if self._path is not None:
            yield self._piece(b"")


def _invalid(message: str) -> DroverError:
    return DroverError(Reason.INVALID_ARGUMENT, message)
