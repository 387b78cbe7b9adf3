"""The conversation as bytes: what the Messages API takes as `messages`, grown block by block."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Self

Role = Literal["user", "assistant"]

CACHE_CONTROL = b',"cache_control":{"type":"ephemeral"}}'


@dataclass(frozen=True, slots=True)
class Mark:
    """A place in a transcript to come back to."""

    closed: int
    last_user: int
    role: Role | None
    open: tuple[bytes, ...]


class Transcript:
    """Messages of alternating roles; blocks of one role in a row share a message.

    Finished messages lie joined in one buffer, so that a request costs a copy of it and not a walk
    over the conversation.
    """

    __slots__ = ("_closed", "_last_user", "_open", "_role")

    def __init__(self) -> None:
        self._closed = bytearray()
        self._last_user = 0
        self._role: Role | None = None
        self._open: list[bytes] = []

    def add(self, role: Role, *blocks: bytes) -> None:
        """Adds encoded blocks to the conversation's end."""
        if not blocks:
            return
        if role != self._role:
            self._close()
            self._role = role
        self._open.extend(blocks)

    def mark(self) -> Mark:
        """The place where the conversation ends now."""
        return Mark(len(self._closed), self._last_user, self._role, tuple(self._open))

    def rewind(self, mark: Mark) -> None:
        """Forgets what was added since `mark` was taken."""
        del self._closed[mark.closed :]
        self._last_user, self._role, self._open = mark.last_user, mark.role, list(mark.open)

    def replace(self, old: bytes, new: bytes) -> None:
        """Puts `new` where the block `old` stands in the last message, if it stands there."""
        if old in self._open:
            self._open[self._open.index(old)] = new

    def dump(self) -> tuple[bytearray, int, Role | None, list[bytes]]:
        """All of it, for a checkpoint. Not a copy."""
        return self._closed, self._last_user, self._role, self._open

    @classmethod
    def load(cls, dumped: tuple[bytearray, int, Role | None, list[bytes]]) -> Self:
        """The transcript that `dump` told of. Takes its parts over."""
        self = cls()
        self._closed, self._last_user, self._role, self._open = dumped
        return self

    def __len__(self) -> int:
        return len(self._closed) + sum(map(len, self._open))

    def render(self, head: bytes, tail: bytes, *, breakpoints: int = 0) -> bytes:
        """The messages as the inside of a JSON array, between `head` and `tail`; copied once.

        Up to two cache breakpoints are set: at the end of the last message, and at the end of the
        user message before it, where the request before this one had its own. Together they find
        the cache again however many blocks were added between.
        """
        if self._role is None:
            return head + tail
        last = list(self._open)
        if breakpoints >= 1 and self._role == "user":
            # An assistant's last block may be one that takes no breakpoint.
            last[-1] = last[-1][:-1] + CACHE_CONTROL
        message = _message(self._role, last)
        if not self._closed:
            return b"".join((head, message, tail))
        if breakpoints > 1 and self._last_user:
            with memoryview(self._closed) as closed:
                before, after = closed[: self._last_user - 1], closed[self._last_user :]
                with before, after:
                    return b"".join((head, before, CACHE_CONTROL, after, b",", message, tail))
        return b"".join((head, self._closed, b",", message, tail))

    def _close(self) -> None:
        if self._role is None:
            return
        if self._closed:
            self._closed += b","
        self._closed += _message(self._role, self._open)
        if self._role == "user":
            self._last_user = len(self._closed) - len(_END)
        self._open = []


_END = b"]}"


def _message(role: Role, blocks: list[bytes]) -> bytes:
    return b'{"role":"%b","content":[%b]}' % (role.encode(), b",".join(blocks))
