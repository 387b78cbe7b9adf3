"""The format of an export: what each of a session's records is as a line, and back.

The first line is the session without its events; then comes a line for each event of its log, and
for each that waits in its inbox; the last line counts them, with a digest of all lines before it.
Messages are protobuf JSON under the names of the contract. What that cannot say, such as fields of
a newer release, travels beside it as `raw`: the whole message in base64.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
from functools import cache
from typing import TYPE_CHECKING, Any, Final, NoReturn

from google.protobuf import json_format
from google.protobuf.message import DecodeError

from cli.terminal import plain, plain_json
from drover.event.v1 import event_pb2
from drover.session.v1 import transfer_pb2

if TYPE_CHECKING:
    from collections.abc import Sequence

    from google.protobuf.descriptor import Descriptor
    from google.protobuf.message import Message

FORMAT: Final = 1
"""What the first line says: another format is another release's."""

MAX_LINE: Final = 160 * 1024 * 1024
"""Bytes of a line. An event has 48 MB at most; text may take twice that, and base64 once more."""

_PLAIN: Final = 1024 * 1024
"""Lines up to so many bytes cannot take much memory, whatever is in them."""

_MAX_PARTS: Final = 500_000
"""Values in one line. An event of a thousand blocks has some ten thousand."""

_STRING: Final = re.compile(rb'"(?:[^"\\]|\\.)*+"', re.DOTALL)
_SHOWN: Final = 200

_MESSAGES: Final[dict[str, type[Message]]] = {
    "session": transfer_pb2.SessionSnapshot,
    "event": event_pb2.Event,
    "waiting": event_pb2.Event,
    "end": transfer_pb2.SessionRecordsEnd,
}
_MARK: Final = "drover_export"
_DIGEST: Final = "sha256"


class FormatError(Exception):
    """A line that is none of an export; the message says what is wrong with it."""


def line_of(record: transfer_pb2.SessionRecord, digest: str) -> bytes:
    """A record as a line. `digest` is that of all lines before it, which the last one tells."""
    kind = record.WhichOneof("record")
    if kind is None:
        msg = "a record without content has no line"
        raise FormatError(msg)
    message: Message = getattr(record, kind)
    said = _said(message)
    line: dict[str, Any] = {_MARK: FORMAT} if kind == "session" else {}
    line[kind] = said | {_DIGEST: digest} if kind == "end" else said
    if not _says_all(message, said):
        line["raw"] = base64.b64encode(message.SerializeToString(deterministic=True)).decode()
    return plain_json(json.dumps(line, ensure_ascii=False)).encode() + b"\n"


def record_of(line: bytes, digest: str) -> transfer_pb2.SessionRecord:
    """The record of a line; `digest` is that of all lines before it. Raises `FormatError`."""
    value = _parsed(line)
    kind = next((one for one in _MESSAGES if one in value), None)
    if kind is None:
        _refuse("is no line of an export")
    if kind == "session" and value.pop(_MARK, None) != FORMAT:
        _refuse(f"is not of format {FORMAT}, which this release reads")
    said, raw = value.pop(kind), value.pop("raw", None)
    if value:
        _refuse(f"has {_quoted(next(iter(value)))}, which no line has")
    if not isinstance(said, dict):
        _refuse(f"has {_quoted(kind)}, which is no object")
    if kind == "end" and said.pop(_DIGEST, None) != digest:
        _refuse("tells another digest: the lines before it are not those that were exported")
    record = transfer_pb2.SessionRecord()
    message: Message = getattr(record, kind)
    message.SetInParent()
    if raw is None:
        _read(said, message)
    else:
        _read_raw(raw, message)
        if _said(message) != said:
            _refuse("says one thing and has another as raw")
    return record


def _said(message: Message) -> dict[str, Any]:
    """A message as protobuf JSON, the keys of maps in order; nothing of one that has none."""
    try:
        said: dict[str, Any] = json_format.MessageToDict(message, preserving_proto_field_name=True)
    except (json_format.Error, ValueError):  # a time that no calendar has
        return {}
    return _ordered(said, message.DESCRIPTOR)  # type: ignore[arg-type]  # the stubs have two names


def _says_all(message: Message, said: dict[str, Any]) -> bool:
    known = type(message)()
    known.CopyFrom(message)
    known.DiscardUnknownFields()
    return known.ByteSize() == message.ByteSize() and bool(said or not message.ByteSize())


def _ordered(said: dict[str, Any], descriptor: Descriptor) -> dict[str, Any]:
    """The same with the keys of maps in order: protobuf gives them in any."""
    for name, below in _maps(descriptor).items():
        value = said.get(name)
        if value is None:
            continue
        if below is None:
            said[name] = dict(sorted(value.items()))
        else:
            for part in value if isinstance(value, list) else [value]:
                _ordered(part, below)
    return said


@cache
def _maps(descriptor: Descriptor) -> dict[str, Descriptor | None]:
    """The fields of a message that are maps, and those in whose messages there are some."""
    return _maps_below(descriptor, ())


def _maps_below(
    descriptor: Descriptor, above: Sequence[Descriptor]
) -> dict[str, Descriptor | None]:
    found: dict[str, Descriptor | None] = {}
    for field in descriptor.fields:
        below = field.message_type
        if below is None or below.full_name.startswith("google.protobuf."):
            continue
        if below.GetOptions().map_entry:
            found[field.name] = None
        elif below in above or _maps_below(below, (*above, descriptor)):
            found[field.name] = below
    return found


def _parsed(line: bytes) -> dict[str, Any]:
    if len(line) > MAX_LINE:
        _refuse(f"is longer than {MAX_LINE // 1024**2} MB")
    if len(line) > _PLAIN:
        rest = _STRING.sub(b"", line)
        if sum(map(rest.count, (b",", b"[", b"{"))) > _MAX_PARTS:
            _refuse(f"has more than {_MAX_PARTS:,} parts")
    try:
        text = line.decode()
        value = json.loads(text, object_pairs_hook=_unique, parse_constant=_refuse_constant)
    except RecursionError:
        _refuse("is nested too deeply")
    except UnicodeDecodeError:
        _refuse("is not UTF-8")
    except ValueError as error:
        _refuse(f"is not JSON ({_short(error)})")
    if not isinstance(value, dict):
        _refuse("is no JSON object")
    return value


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) != len(pairs):
        _refuse("has a key twice")
    return value


def _refuse_constant(name: str) -> NoReturn:
    _refuse(f"has {name}, which is not JSON")


def _read(said: dict[str, Any], message: Message) -> None:
    try:
        json_format.ParseDict(said, message)
    # Hostile values of the wrong type make it raise almost anything.
    except (json_format.Error, ValueError, TypeError, AttributeError, KeyError) as error:
        _refuse(f"does not fit the contract ({_short(error)})")
    except RecursionError:
        _refuse("is nested too deeply")


def _read_raw(raw: object, message: Message) -> None:
    if not isinstance(raw, str):
        _refuse("has a raw that is no text")
    try:
        message.ParseFromString(base64.b64decode(raw, validate=True))
    except (binascii.Error, ValueError, DecodeError):
        _refuse("has a raw that is no message in base64")


def _refuse(text: str) -> NoReturn:
    raise FormatError(text)


def _short(error: Exception) -> str:
    text = plain(" ".join(str(error).split()))
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"


def _quoted(name: str) -> str:
    return json.dumps(plain(name[:_SHOWN]))
