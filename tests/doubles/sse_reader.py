"""A client's end of a connection in memory: takes what it is written as slowly as it is told."""

from __future__ import annotations

from typing import Any

from gateway.wire import Wire

HIGH, LOW = 600, 150
"""Bytes on their way at which a transport has its writer pause, and go on."""


class Connection:
    """A transport with its wire, and all that its client has taken."""

    def __init__(self) -> None:
        self.taken = bytearray()
        self.is_lost = False
        self._unsent = bytearray()
        self.wire = Wire(self)  # type: ignore[arg-type]

    # the transport

    def write(self, data: bytes) -> None:
        if self.is_lost:
            return
        self._unsent += data
        if len(self._unsent) > HIGH and not self.wire.is_paused:
            self.wire.pause()

    def is_closing(self) -> bool:
        return self.is_lost

    def get_write_buffer_size(self) -> int:
        return len(self._unsent)

    def abort(self) -> None:
        self.lose()

    # its client

    def take(self, count: int) -> None:
        """Reads so many bytes."""
        self.taken += self._unsent[:count]
        del self._unsent[:count]
        if self.wire.is_paused and len(self._unsent) <= LOW:
            self.wire.resume()

    def lose(self) -> None:
        """Closes the connection."""
        if not self.is_lost:
            self.is_lost = True
            self._unsent.clear()
            self.wire.lose()


def body(taken: bytes) -> bytes:
    """The whole chunks of a body."""
    found, rest = b"", taken
    while rest:
        size, _, rest = rest.partition(b"\r\n")
        if len(rest) < int(size, 16) + 2:
            break
        found, rest = found + rest[: int(size, 16)], rest[int(size, 16) + 2 :]
    return found


def frames(text: bytes) -> list[dict[str, Any]]:
    """The whole frames of a stream: their lines by name, comments apart."""
    found = []
    for frame in text.split(b"\n\n")[:-1]:
        lines = [line.decode().partition(": ") for line in frame.split(b"\n")]
        if fields := {name: value for name, _, value in lines if name}:
            found.append(fields)
    return found
