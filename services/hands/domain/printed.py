"""What a command prints while it runs, kept for who follows it.

Followers are no readers that the command waits for: the last of its output is kept, and who is too
slow for it is told how much was missed.
"""

from __future__ import annotations

import codecs
import re
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

KEPT: Final = 256 * 1024
"""Bytes that are kept for followers who are behind."""
FOLLOWED: Final = 8 * 1024 * 1024
"""Bytes of one call that followers get at most; the result tells where the rest is."""
# The result shows no control sequences of terminals either (SEMANTICS §1).
_CONTROL: Final = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]")
_BEGUN: Final = re.compile(r"\x1b(\[[0-9;?]*[ -/]*)?\Z")
_LONGEST: Final = 64
"""Characters of such a sequence; what is longer is none."""
_CONTINUING: Final = bytes(range(0x80, 0xC0))


@dataclass(frozen=True, slots=True)
class Chunk:
    """Text that was printed next, after `dropped` bytes that are not shown."""

    text: str
    dropped: int = 0


class Printed:
    """A call's output as it comes. Memory stays flat whatever is printed."""

    def __init__(self, *, kept: int = KEPT, followed: int = FOLLOWED) -> None:
        self.end = 0
        self._room = followed
        self._kept = kept
        self._size = 0
        self._pieces: deque[tuple[int, bytes]] = deque()

    def put(self, data: bytes, dropped: int) -> None:
        """Takes what was printed next, after `dropped` bytes that nobody has any more."""
        self.end += dropped
        piece = data[: self._room]
        if piece:
            self._pieces.append((self.end, piece))
            self._room -= len(piece)
            self._size += len(piece)
        self.end += len(data)
        while self._size > self._kept and len(self._pieces) > 1:
            self._size -= len(self._pieces.popleft()[1])

    def since(self, position: int) -> Iterator[tuple[int, bytes]]:
        """What is kept of the output behind a position: pieces, and where each begins."""
        for start, piece in self._pieces:
            if start + len(piece) > position:
                begin = max(start, position)
                yield begin, piece[begin - start :]


class Follower:
    """Reads what is printed as text: valid, whole characters, without control sequences."""

    def __init__(self, printed: Printed) -> None:
        self._printed = printed
        self._position = 0
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._text = ""
        self._dropped = 0

    def take(self, *, last: bool = False) -> list[Chunk]:
        """What has come since the last time. `last`: nothing more will."""
        chunks: list[Chunk] = []
        for start, piece in self._printed.since(self._position):
            begin = 0
            if start > self._position:
                self._give(chunks, whole=True)
                # A character of which only the end is left is dropped with its beginning.
                begin = len(piece[:3]) - len(piece[:3].lstrip(_CONTINUING))
                unread = len(self._decoder.getstate()[0])
                self._decoder.reset()
                self._dropped += unread + start - self._position + begin
            self._position = start + len(piece)
            self._text += self._decoder.decode(piece[begin:])
        if last:
            self._text += self._decoder.decode(b"", final=True)
        self._give(chunks, whole=last)
        if last and self._printed.end > self._position:
            chunks.append(Chunk("", self._printed.end - self._position))
            self._position = self._printed.end
        return chunks

    def _give(self, chunks: list[Chunk], *, whole: bool) -> None:
        """Adds the text that is there, but for a control sequence that has only begun."""
        begun = None if whole else _BEGUN.search(self._text, max(0, len(self._text) - _LONGEST))
        end = len(self._text) if begun is None else begun.start()
        text, self._text = self._text[:end], self._text[end:]
        shown = _CONTROL.sub("", text).replace("\0", "\ufffd")
        if shown or self._dropped:
            chunks.append(Chunk(shown, self._dropped))
            self._dropped = 0
