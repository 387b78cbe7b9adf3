"""The server name in the beginning of a TLS connection, read without ending it (RFC 8446 §4.1.2).

For tunnels that are not terminated: the name that the client asks for must be the one that it
was let through for (case E4).
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final, NamedTuple

from services.vault_proxy.proxy.parse import malformed
from services.vault_proxy.proxy.wire import LostError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from services.vault_proxy.proxy.wire import Wire

_RECORD_HEADER: Final = 5
_HANDSHAKE: Final = 22
_CLIENT_HELLO: Final = 1
_MAX_RECORD: Final = 16 * 1024
_MAX_HELLO: Final = 16 * 1024
_SERVER_NAME: Final = 0
_ENCRYPTED_HELLO: Final = 0xFE0D
_HOST_NAME: Final = 0


class Hello(NamedTuple):
    """What a client's hello says: the name that it asks for, and whether another is encrypted."""

    name: str | None
    encrypted: bool


async def read_hello(wire: Wire, until: float) -> Hello:
    """Waits for the client's hello; its bytes stay where they are. Raises `RefusedError`."""
    while True:
        found = _hello(wire.waiting)
        if found is not None:
            return _read(found)
        if not await wire.more(until):
            raise LostError


def _hello(sent: bytes | bytearray) -> bytes | None:
    """The hello's message, put together from its records; `None` while more is to come."""
    message, at = bytearray(), 0
    while True:
        if len(message) >= 4:  # noqa: PLR2004  # type and length
            if message[0] != _CLIENT_HELLO:
                raise _no_hello()
            length = int.from_bytes(message[1:4], "big")
            if length > _MAX_HELLO:
                raise _no_hello()
            if len(message) >= 4 + length:
                return bytes(message[4 : 4 + length])
        header = sent[at : at + _RECORD_HEADER]
        if header and (header[0] != _HANDSHAKE or (len(header) > 1 and header[1] != 3)):  # noqa: PLR2004
            raise _no_hello()
        if len(header) < _RECORD_HEADER:
            return None
        length = int.from_bytes(header[3:5], "big")
        if not 0 < length <= _MAX_RECORD:
            raise _no_hello()
        at += _RECORD_HEADER
        if len(sent) < at + length:
            return None
        message += sent[at : at + length]
        at += length


def _read(hello: bytes) -> Hello:
    try:
        at = 2 + 32  # version, random
        at += 1 + hello[at]  # session id
        at += 2 + int.from_bytes(hello[at : at + 2], "big")  # cipher suites
        at += 1 + hello[at]  # compression methods
        extensions = dict(_extensions(hello[at:]))
        encrypted = _ENCRYPTED_HELLO in extensions
        names = extensions.get(_SERVER_NAME)
        if names is None:
            return Hello(None, encrypted)
        kind, length = struct.unpack_from(">BH", names, 2)
    except (IndexError, struct.error):
        raise _no_hello() from None
    name = names[5 : 5 + length]
    if kind != _HOST_NAME or len(names) != 5 + length or len(name) != length:
        raise _no_hello()
    return Hello(name.decode("latin-1"), encrypted)


def _extensions(rest: bytes) -> Iterator[tuple[int, bytes]]:
    """Each once: twice would be a name for either reader."""
    seen: set[int] = set()
    at, end = 2, 2 + int.from_bytes(rest[:2], "big")
    if end != len(rest) and rest:
        raise _no_hello()
    while at < len(rest):
        kind, length = struct.unpack_from(">HH", rest, at)
        at += 4
        if kind in seen or at + length > end:
            raise _no_hello()
        seen.add(kind)
        yield kind, rest[at : at + length]
        at += length


def _no_hello() -> Exception:
    return malformed("the tunnel does not begin with TLS: only TLS goes through a CONNECT")
