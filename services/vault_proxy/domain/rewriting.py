"""Replaces texts in bytes as they pass, across the borders of chunks."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Mapping
from typing import Final

_WORDS: Final = bytes(
    byte for byte in range(0x21, 0x7F) if chr(byte).isalnum() or chr(byte) in "-_+/=%.~\\&;#"
)
"""Bytes that the tail of a chunk is held back by, whatever is looked for."""


class Table:
    """What is replaced by what. Made once, used for many streams.

    `secret`: what is looked for must not be guessed. Where a stream holds back only what a text
    begins with, whoever sees that a chunk's end comes late knows how the text begins, and by and by
    all of it. So every word at the end of a chunk is held back then, whether a text begins like it
    or not; of the texts that tells no more than which other characters they have, and the longest's
    length.
    """

    def __init__(self, replacements: Mapping[bytes, bytes], *, secret: bool = False) -> None:
        self.replacements = {old: new for old, new in replacements.items() if old}
        self._longest = max(map(len, self.replacements), default=0)
        self._words = bytes({*_WORDS, *b"".join(self.replacements)}) if secret else b""
        by_first: dict[int, list[bytes]] = defaultdict(list)
        for old in self.replacements:
            by_first[old[0]].append(old)
        self._by_first = dict(by_first)
        # Of two that begin alike the longer is meant.
        ordered = sorted(self.replacements, key=len, reverse=True)
        self._any = re.compile(b"|".join(map(re.escape, ordered)) or b"(?!)")
        first = b"".join(re.escape(bytes((value,))) for value in by_first)
        self._first = re.compile(b"[" + first + b"]" if first else b"(?!)")

    def __bool__(self) -> bool:
        return bool(self.replacements)

    def replaced(self, data: bytes) -> bytes:
        """`data`, which is whole, with all replaced."""
        if not self.occurs(data):
            return data
        return self._any.sub(lambda found: self.replacements[found[0]], data)

    def occurs(self, data: bytes) -> bool:
        """Whether there is anything to replace. Much quicker than a pattern of them all."""
        return any(old in data for old in self.replacements)

    def found(self, data: bytes, start: int) -> tuple[int, int] | None:
        """Where the next begins and ends."""
        match = self._any.search(data, start)
        return match.span() if match else None

    def unfinished(self, data: bytes, start: int) -> int:
        """From where on `data` could be the beginning of one, not before `start`; or its length."""
        if not self.replacements:
            return len(data)
        at = max(start, len(data) - self._longest + 1)
        if self._words:
            return at + len(data[at:].rstrip(self._words))
        for match in self._first.finditer(data, at):
            rest = data[match.start() :]
            for old in self._by_first[rest[0]]:
                if len(old) > len(rest) and old.startswith(rest):
                    return match.start()
        return len(data)


class Rewriter:
    """One stream. See `domain.ports.Stream`. `told` is called with each text that is replaced."""

    def __init__(self, table: Table, told: Callable[[bytes], None] | None = None) -> None:
        self._table = table
        self._told = told
        self._held = b""
        self.finished = False
        """Whether `finish` was called."""

    @property
    def holding(self) -> bool:
        """Whether anything is held back."""
        return bool(self._held)

    def feed(self, chunk: bytes) -> bytes:
        """What may go on now."""
        data = self._held + chunk if self._held else chunk
        if not self._table.occurs(data):
            keep = self._table.unfinished(data, 0)
            self._held = data[keep:]
            return data[:keep]
        return self._rewritten(data, last=False)

    def turn(self, table: Table) -> None:
        """Goes on with another table, for what is held back, too."""
        self._table = table

    def finish(self) -> bytes:
        """What was held back, as it stands: nothing more comes, or nothing has for a while."""
        self.finished = True
        data, self._held = self._held, b""
        return self._rewritten(data, last=True)

    def _rewritten(self, data: bytes, *, last: bool) -> bytes:
        done: list[bytes] = []
        at = 0
        keep = len(data) if last else self._table.unfinished(data, 0)
        while (found := self._table.found(data, at)) is not None:
            start, end = found
            if start >= keep:
                break
            done.append(data[at:start])
            old = data[start:end]
            if self._told is not None:
                self._told(old)
            done.append(self._table.replacements[old])
            at = end
            if end > keep:
                keep = self._table.unfinished(data, end)
        done.append(data[at:keep])
        self._held = data[keep:]
        return b"".join(done)
