"""Files that a conversation shows, put where it refers to them: what the model is sent of each.

A file that cannot be shown has a text in its place, by its own fault always the same one.
"""

from __future__ import annotations

import json
from base64 import b64encode
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

from services.brain.domain import content, media

if TYPE_CHECKING:
    import re
    from collections.abc import Mapping

    from drover.file.v1.file_pb2 import File

IMAGE: Final = "image"

MAX_IMAGE: Final = 5 * 1024 * 1024
"""Bytes of a picture in base64 that the Messages API takes."""

MAX_DOCUMENT: Final = 32_000_000
"""Bytes of a document, in base64 where it is sent so: as many as a whole request may have."""

MAX_REQUEST: Final = 32_000_000
"""Bytes of a request that the Messages API takes."""

_PICTURES: Final = (
    (b"\x89PNG\r\n\x1a\n", 0, "image/png"),
    (b"\xff\xd8\xff", 0, "image/jpeg"),
    (b"GIF87a", 0, "image/gif"),
    (b"GIF89a", 0, "image/gif"),
    (b"WEBP", 8, "image/webp"),
)
_PDF: Final = "application/pdf"
_PDF_MARK: Final = b"%PDF-"
_PDF_BEGINNING: Final = 1024
_NO_PICTURE: Final = "Its file is none that a model can see: PNG, JPEG, GIF or WebP."
_NO_PDF: Final = "Its file is no PDF, whatever its type says."
_NOTHING_TO_READ: Final = "Its file is empty."
GONE: Final = "Its file is not there any more: it was deleted, or its time has passed."


class Reference(NamedTuple):
    """What a conversation shows: an image or a document, and the file that it is in."""

    kind: str
    file_id: str


@dataclass(frozen=True, slots=True)
class Attachment:
    """What stands for a file: a block's source, or the reason why it cannot be shown."""

    source: bytes = b""
    why_not: str = ""

    @property
    def size(self) -> int:
        """Its bytes, about."""
        return len(self.source) + len(self.why_not)


def references(body: bytes) -> list[Reference]:
    """What a request refers to, as often as it does, in that order."""
    if content.REFERENCE_MARK not in body:
        return []
    found = media.REFERENCE.finditer(body)
    return [Reference(it[1].decode(), json.loads(it[2])) for it in found]


def fill(body: bytes, attached: Mapping[Reference, Attachment]) -> bytes:
    """The request with all that it refers to in it. Every reference must have its attachment."""

    def filled(found: re.Match[bytes]) -> bytes:
        kind, title = found[1].decode(), found[4]
        attachment = attached[Reference(kind, json.loads(found[2]))]
        if attachment.why_not:
            return content.text_block(_note(kind, title, attachment.why_not))[:-1]
        extra = b',"context":' + found[3] if found[3] is not None else b""
        extra += b',"title":' + title if title is not None else b""
        return b'{"type":"%b","source":%b%b' % (found[1], attachment.source, extra)

    return media.REFERENCE.sub(filled, body)


def barred(kind: str, file: File) -> str:
    """Why a file cannot be shown, as far as that is known without its bytes; else empty."""
    size = file.size_bytes
    if not size:
        return _NOTHING_TO_READ
    if kind == IMAGE:
        return _too_large(size, MAX_IMAGE // 4 * 3)
    if file.mime_type == _PDF:
        return _too_large(size, MAX_DOCUMENT // 4 * 3)
    if file.mime_type.startswith("text/"):
        return _too_large(size, MAX_DOCUMENT)
    return f"Its file is neither a PDF nor text, but {file.mime_type}."


def attach(kind: str, file: File, data: bytes) -> Attachment:
    """What the model is sent of a file's bytes."""
    if why_not := barred(kind, file):
        return Attachment(why_not=why_not)
    if kind == IMAGE:
        found = (name for mark, at, name in _PICTURES if data.startswith(mark, at))
        return _encoded(next(found, ""), data, _NO_PICTURE)
    if file.mime_type == _PDF:
        return _encoded(_PDF if _PDF_MARK in data[:_PDF_BEGINNING] else "", data, _NO_PDF)
    text = data.decode("utf-8-sig", errors="replace")
    if not text.strip():
        return Attachment(why_not=_NOTHING_TO_READ)
    return Attachment(b'{"type":"text","media_type":"text/plain","data":%b}' % content.quoted(text))


def _too_large(size: int, most: int) -> str:
    if size <= most:
        return ""
    return f"Its file has {size:,} bytes: more than the {most:,} that can be shown."


def _encoded(media_type: str, data: bytes, otherwise: str) -> Attachment:
    if not media_type:
        return Attachment(why_not=otherwise)
    return Attachment(
        b'{"type":"base64","media_type":%b,"data":"%b"}'
        % (content.quoted(media_type), b64encode(data))
    )


def _note(kind: str, title: bytes | None, why_not: str) -> str:
    name = "An image" if kind == IMAGE else "A document"
    titled = f" with the title {title.decode()}" if title else ""
    return f"[{name}{titled} was here. {why_not}]"
