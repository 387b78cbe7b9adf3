"""What a part of a form says of itself, and what an answer says of the file that it is.

RFC 7578 has names raw in UTF-8, as browsers and the official client send them, who escape the three
characters that would end them (WHATWG HTML, "multipart form data"). `filename*` of RFC 5987 is read
too: other clients send that.
"""

from __future__ import annotations

import mimetypes
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final
from urllib.parse import quote, unquote_to_bytes

from chassis.errors import DroverError, Reason

if TYPE_CHECKING:
    from collections.abc import Mapping

OCTETS: Final = "application/octet-stream"

_TOKEN: Final = rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+"
_KIND: Final = re.compile(rb"[ \t]*form-data[ \t]*(?=;|$)", re.IGNORECASE)
# Possessive: what has been read of a header is read once, however it goes on.
_PARAMETER: Final = re.compile(
    rb";[ \t]*+(" + _TOKEN + rb"+"
    rb')[ \t]*+=[ \t]*+(?:"((?:[^"\\]|\\.)*+)"[ \t]*+|([^;"]*+))(?=;|$)',
    re.DOTALL,
)
_ESCAPED: Final = re.compile(rb'\\(["\\])')
_WHATWG: Final = (("%22", '"'), ("%0D", "\r"), ("%0A", "\n"))
_EXTENDED: Final = re.compile(rb"(utf-8|iso-8859-1)'[A-Za-z0-9-]*'([ -~]*)", re.IGNORECASE)
_MEDIA_TYPE: Final = re.compile(rf"{_TOKEN.decode()}/{_TOKEN.decode()}")
_PLAIN: Final = frozenset({b"7bit", b"8bit", b"binary"})
_LONGEST_TYPE: Final = 255
_SHOWN: Final = 64


@dataclass(frozen=True, slots=True)
class Disposition:
    """A part: its name, the name of its file as it was sent (empty without), and its media type."""

    name: str
    filename: str
    media_type: str


def read(headers: Mapping[bytes, bytes]) -> Disposition:
    """Reads the headers of a part, by their names in lower case. Raises INVALID_ARGUMENT."""
    parameters = _parameters(headers.get(b"content-disposition", b""))
    if (name := parameters.get("name")) is None:
        raise _invalid("every part needs a name in its content-disposition")
    encoding = headers.get(b"content-transfer-encoding", b"binary").strip().lower()
    if encoding not in _PLAIN:
        raise _invalid(f"{_shown(name)}: content-transfer-encoding: is sent as it is (RFC 7578)")
    media_type = headers.get(b"content-type", b"").partition(b";")[0].strip()
    return Disposition(name, _filename(parameters), _media_type(name, media_type))


def kept(filename: str, media_type: str) -> str:
    """The name under which a file is kept: the last part of its path, or one by its type."""
    last = re.split(r"[/\\]", filename)[-1]
    if last:
        return last
    # Of the types that Python names itself: a machine's own tables differ from another's.
    known = mimetypes.MimeTypes()
    return f"unnamed{known.guess_extension(media_type or OCTETS) or ''}"


def attachment(filename: str) -> str:
    """The `content-disposition` of an answer that is to be saved, never shown (RFC 6266)."""
    plain = re.sub(r"[^ -~]|[\"\\%]", "_", filename)
    return f"attachment; filename=\"{plain}\"; filename*=UTF-8''{quote(filename, safe='')}"


def safe_type(media_type: str) -> str:
    """The type of an answer's content: the file's, if it is one."""
    return media_type if _MEDIA_TYPE.fullmatch(media_type) else OCTETS


def _parameters(header: bytes) -> dict[str, str]:
    kind = _KIND.match(header)
    if kind is None:
        raise _invalid("every part needs a content-disposition: form-data")
    found: dict[str, str] = {}
    at, header = kind.end(), header.rstrip(b"; \t")
    while at < len(header):
        parameter = _PARAMETER.match(header, at)
        if parameter is None:
            raise _invalid("a part's content-disposition is malformed")
        key = parameter[1].decode().lower()
        quoted, bare = parameter[2], parameter[3]
        value = bare.strip() if quoted is None else _ESCAPED.sub(rb"\1", quoted)
        if key in found:
            raise _invalid(f"a part's content-disposition has its {_shown(key)} twice")
        found[key] = _extended(value) if key.endswith("*") else _text(value)
        at = parameter.end()
    return found


def _filename(parameters: Mapping[str, str]) -> str:
    if extended := parameters.get("filename*"):
        return extended
    name = parameters.get("filename", "")
    for escaped, character in _WHATWG:
        name = name.replace(escaped, character)
    return name


def _extended(value: bytes) -> str:
    """The text of an extended value (RFC 5987)."""
    match = _EXTENDED.fullmatch(value)
    if match is None:
        raise _invalid("a part's content-disposition is malformed: see RFC 5987")
    octets = unquote_to_bytes(match[2])
    return _text(octets) if match[1].lower() == b"utf-8" else octets.decode("latin-1")


def _text(value: bytes) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError:
        raise _invalid("a part's content-disposition is not UTF-8") from None


def _media_type(name: str, given: bytes) -> str:
    text = given.decode("latin-1").lower()
    if text and (len(text) > _LONGEST_TYPE or _MEDIA_TYPE.fullmatch(text) is None):
        raise _invalid(f"{_shown(name)}: content-type: is no media type")
    return text


def _shown(text: str) -> str:
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"


def _invalid(message: str) -> DroverError:
    return DroverError(Reason.INVALID_ARGUMENT, message)
