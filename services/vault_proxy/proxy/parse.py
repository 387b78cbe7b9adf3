"""Heads of HTTP/1.1 messages, read strictly (RFC 9112; cases E3, E5, E6, E7).

What two readers could understand differently is refused, not repaired: a request means the same to
the policy, to this proxy and to the server. All that is accepted h11 accepts too, with the same
meaning, and the tests compare them. A head of ten fields takes 12 µs; a tokenizer in C takes 4, but
each check of this module would have to stand behind it, and h11 takes 52.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from services.vault_proxy.domain.refusal import Refusal, RefusedError, Why

MAX_HEAD: Final = 64 * 1024
"""Bytes of a head, with its last line."""
MAX_FIELDS: Final = 128
_MAX_TARGET: Final = 16 * 1024
_MAX_LENGTH_DIGITS: Final = 18
_VERSION_1_1: Final = 1

Fields = list[tuple[bytes, bytes]]

_REQUEST_LINE = re.compile(rb"([A-Z][A-Z-]{0,31}) ([\x21-\x7e]+) HTTP/1\.([01])")
_STATUS_LINE = re.compile(rb"HTTP/1\.([01]) ([1-9][0-9]{2})(?: ([\t\x20-\x7e\x80-\xff]*))?")
# No possessive quantifiers: those of Python before 3.11.5 go wrong in groups. None of the parts may
# match what the next begins with, so nothing is tried twice without them.
_FIELD = rb"[!#$%&'*+\-.^_`|~0-9A-Za-z]+:[\t\x20-\x7e\x80-\xff]*"
_LINES = re.compile(rb"(?:\r\n" + _FIELD + rb")*\r\n\r\n")
_NAMED = re.compile(_FIELD.partition(b":")[0] + rb":")
_DIGITS = re.compile(rb"[0-9]+")
_LONE_LF = re.compile(rb"(?<!\r)\n")

# Fields of one connection (RFC 9110 §7.6.1), and of a proxy's own: never passed on.
_HOP = frozenset(
    {
        b"connection",
        b"keep-alive",
        b"proxy-authenticate",
        b"proxy-authentication-info",
        b"proxy-authorization",
        b"proxy-connection",
        b"te",
        b"trailer",
        b"transfer-encoding",
        b"upgrade",
        b"http2-settings",
        b"expect",
        b"content-length",
    }
)
LOOKED_AT: Final = _HOP | {b"host"}
"""Fields that are for this hop alone: by lower-case name."""
_USUAL = {value: frozenset({value.lower()}) for value in (b"keep-alive", b"Keep-Alive", b"close")}
_KEEPING = frozenset({b"close", b"keep-alive", b"upgrade"})
# What `Connection` may not name: a server that obeyed would read another message.
_NOT_NOMINATED = frozenset({b"host", b"content-length", b"transfer-encoding", b"content-type"})


def malformed(message: str, *, status: int = 400, reason: Why = Why.MALFORMED) -> RefusedError:
    """The refusal of a message that is not understood in one way only."""
    return RefusedError(Refusal(reason, message, status))


class RequestHead(NamedTuple):
    """A request's head. `fields` are those that are passed on: neither a hop's, nor `Host`."""

    method: str
    target: str
    minor: int
    host: str | None
    fields: Fields
    length: int | None
    chunked: bool
    keep: bool
    upgrade: bytes | None
    expects: bool

    @property
    def has_body(self) -> bool:
        """Whether anything follows the head."""
        return self.chunked or bool(self.length)


class ResponseHead(NamedTuple):
    """An answer's head. `fields` are those that are passed on, without its framing."""

    status: int
    reason: bytes
    minor: int
    fields: Fields
    length: int | None
    chunked: bool
    keep: bool
    upgrade: bytes | None


def request(head: bytes) -> RequestHead:
    """Reads a request's head, all of it up to the empty line. Raises `RefusedError`."""
    lines = _lines(head)
    found = _REQUEST_LINE.fullmatch(lines[0])
    if found is None:
        raise _bad_request_line(lines[0])
    method, target, digit = found.groups()
    if len(target) > _MAX_TARGET:
        raise malformed(
            f"the URL is longer than {_MAX_TARGET} bytes", status=414, reason=Why.LIMIT_EXCEEDED
        )
    minor = digit[0] - ord("0")
    fields, special = _fields(lines)
    framing = _framing(special, minor)
    tokens = _connection(special)
    hosts = special.get(b"host", ())
    if len(hosts) > 1:
        raise malformed("more than one Host")
    expects = _expects(special, minor)
    upgrade = special.get(b"upgrade")
    if upgrade is not None and (len(upgrade) > 1 or upgrade[0].lower() != b"websocket"):
        raise malformed(
            "only the upgrade to websocket is passed on: send the request without Upgrade"
        )
    if upgrade is not None and (b"upgrade" not in tokens or minor == 0 or method != b"GET"):
        raise malformed("an upgrade to websocket is a GET of HTTP/1.1 with Connection: upgrade")
    length, chunked = framing
    if upgrade is not None and (chunked or length):
        raise malformed("an upgrade has no body")
    return RequestHead(
        method=method.decode(),
        target=target.decode(),
        minor=minor,
        host=hosts[0].decode("latin-1") if hosts else None,
        fields=_without(fields, tokens),
        length=length,
        chunked=chunked,
        keep=_keeps(tokens, minor),
        upgrade=None if upgrade is None else b"websocket",
        expects=expects,
    )


def response(head: bytes) -> ResponseHead:
    """Reads an answer's head. Raises `RefusedError`, worded for a server's mistake."""
    lines = _lines(head)
    found = _STATUS_LINE.fullmatch(lines[0])
    if found is None:
        raise malformed("the status line is none of HTTP/1")
    digit, status, reason = found.groups()
    minor = digit[0] - ord("0")
    fields, special = _fields(lines)
    length, chunked = _framing(special, minor)
    tokens = _connection(special)
    upgrade = special.get(b"upgrade")
    return ResponseHead(
        status=int(status),
        reason=reason or b"",
        minor=minor,
        fields=_without(fields, tokens),
        length=length,
        chunked=chunked,
        keep=_keeps(tokens, minor),
        upgrade=upgrade[0].lower() if upgrade else None,
    )


def suspicious(beginning: bytearray, seen: int) -> None:
    """Refuses the beginning of a request's head that can be none, however it goes on.

    So that HTTP/0.9, lines that end in a bare LF and other protocols are told at once. `seen` bytes
    have been looked at before.
    """
    if _LONE_LF.search(beginning, max(0, seen - 1)):
        raise malformed("a line does not end in CR LF")
    end = beginning.find(b"\r\n")
    if end >= max(0, seen - 1) and _REQUEST_LINE.fullmatch(beginning, 0, end) is None:
        raise _bad_request_line(bytes(beginning[:end]))


def _lines(head: bytes) -> list[bytes]:
    """The lines of a head, whose fields are well formed."""
    lines = head[:-4].split(b"\r\n")
    if len(lines) > MAX_FIELDS + 1:
        raise malformed(f"more than {MAX_FIELDS} fields", status=431, reason=Why.LIMIT_EXCEEDED)
    if _LINES.fullmatch(head, len(lines[0])) is None:
        raise _bad_fields(lines)
    return lines


def _fields(lines: list[bytes]) -> tuple[Fields, dict[bytes, list[bytes]]]:
    """The fields of a head that are passed on, and those that are looked at, by lower-case name."""
    passed: Fields = []
    special: dict[bytes, list[bytes]] = {}
    for line in lines[1:]:
        name, _, value = line.partition(b":")
        lower = name.lower()
        if lower in LOOKED_AT:
            special.setdefault(lower, []).append(value.strip(b" \t"))
        else:
            passed.append((name, value.strip(b" \t")))
    return passed, special


def _framing(special: dict[bytes, list[bytes]], minor: int) -> tuple[int | None, bool]:
    """Length and whether it is chunked. What could be read in two ways is refused (case E7)."""
    codings, lengths = special.get(b"transfer-encoding"), special.get(b"content-length")
    if codings is not None:
        if lengths is not None:
            raise malformed("both Transfer-Encoding and Content-Length")
        if len(codings) != 1 or codings[0].lower() != b"chunked":
            raise malformed("a Transfer-Encoding other than chunked")
        if minor < _VERSION_1_1:
            raise malformed("a Transfer-Encoding in HTTP/1.0")
        return None, True
    if lengths is None:
        return None, False
    text = lengths[0]
    if len(lengths) != 1 or len(text) > _MAX_LENGTH_DIGITS or _DIGITS.fullmatch(text) is None:
        raise malformed("Content-Length is not one number")
    return int(text), False


def _connection(special: dict[bytes, list[bytes]]) -> frozenset[bytes]:
    values = special.get(b"connection")
    if values is None:
        return frozenset()
    if len(values) == 1 and (usual := _USUAL.get(values[0])) is not None:
        return usual
    tokens = frozenset(
        token.strip(b" \t").lower() for value in values for token in value.split(b",")
    )
    if tokens & _NOT_NOMINATED:
        raise malformed("Connection names a field that no hop may take away")
    return tokens


def _without(fields: Fields, tokens: frozenset[bytes]) -> Fields:
    """The fields but those that `Connection` gives to this hop."""
    if tokens <= _KEEPING:
        return fields
    return [one for one in fields if one[0].lower() not in tokens]


def _keeps(tokens: frozenset[bytes], minor: int) -> bool:
    return b"close" not in tokens and (minor >= _VERSION_1_1 or b"keep-alive" in tokens)


def _expects(special: dict[bytes, list[bytes]], minor: int) -> bool:
    expected = special.get(b"expect")
    if expected is None:
        return False
    if len(expected) != 1 or expected[0].lower() != b"100-continue":
        raise malformed("only 100-continue may be expected", status=417)
    return minor >= _VERSION_1_1


def _bad_request_line(line: bytes) -> RefusedError:
    if line.startswith(b"PRI * HTTP/2"):
        return malformed("HTTP/2 is not spoken here: use HTTP/1.1")
    if b" HTTP/" not in line:
        return malformed("the first line has no version of HTTP: HTTP/0.9 is not spoken here")
    return malformed("the request line is not METHOD URL HTTP/1.1, with one space between each")


def _bad_fields(lines: list[bytes]) -> RefusedError:
    for line in lines:
        if b"\r" in line or b"\n" in line:
            return malformed("CR or LF stand alone")
    for line in lines[1:]:
        if line[:1] in {b" ", b"\t"}:
            return malformed("a field goes on in a second line")
        if _NAMED.match(line) is None:
            return malformed("a field is not Name: value")
    return malformed("a field has characters that no field may have")
