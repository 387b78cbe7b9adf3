"""Frames: four bytes of length, most significant first, and that many bytes of JSON."""

from __future__ import annotations

import posix

from services.hands.runner.codec import decode, encode

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_PREFIX = 4
_READY = b'{"type":"ready"}'
READY = len(_READY).to_bytes(_PREFIX, "big") + _READY
"""The first frame of every agent, however it was started."""
_READ = 256 * 1024


class Connection:
    """The agent's end of its stream: `fd` to read from, `out_fd` to write to.

    It blocks; the host always reads.
    """

    def __init__(self, fd: int, out_fd: int) -> None:
        self.fd = fd
        self._out_fd = out_fd
        self._buffer = bytearray()

    def send(self, message: dict[str, Any]) -> None:
        """Sends one frame. Raises `OSError` when the host is gone."""
        body = encode(message).encode("ascii")
        view = memoryview(len(body).to_bytes(_PREFIX, "big") + body)
        while view:
            view = view[posix.write(self._out_fd, view) :]

    def receive(self) -> list[dict[str, Any]]:
        """Reads once; the frames that are complete. Raises `EOFError` at the end."""
        data = posix.read(self.fd, _READ)
        if not data:
            raise EOFError
        self._buffer += data
        messages = []
        while len(self._buffer) >= _PREFIX:
            end = _PREFIX + int.from_bytes(self._buffer[:_PREFIX], "big")
            if len(self._buffer) < end:
                break
            messages.append(decode(self._buffer[_PREFIX:end]))
            del self._buffer[:end]
        return messages
