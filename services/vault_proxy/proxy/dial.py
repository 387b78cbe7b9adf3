"""Connections to the outside: a name is resolved, judged and dialled as one act (case E8)."""

from __future__ import annotations

import socket
from typing import Protocol


class DialError(Exception):
    """No connection came about. Its text names no address that the sandbox could learn from.

    `reason` is a word for logs and headers; `message` says what happened and what would help.
    """

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason
        self.message = message


class AddressDeniedError(DialError):
    """The name leads to where nothing may be reached: a private network, Drover itself."""


class UnreachableError(DialError):
    """There is no such name, or nobody answers. `late` tells a time-out."""

    def __init__(self, reason: str, message: str, *, late: bool = False) -> None:
        super().__init__(reason, message)
        self.late = late


class Dialler(Protocol):
    """Connects to hosts that have been allowed. The one way out for every part of this process."""

    async def connect(self, host: str, port: int, *, within: float) -> socket.socket:
        """A connected, non-blocking TCP socket, which the caller owns and closes.

        `host` is a canonical name or an IP address in text. All addresses that it resolves to are
        judged, and one of those is dialled without a second look-up. `within` is seconds for all
        of it. Raises `AddressDeniedError` and `UnreachableError`.
        """
        ...
