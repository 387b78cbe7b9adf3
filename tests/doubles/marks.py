"""A word that is part of every secret of a test, and the forms in which it may turn up."""

from __future__ import annotations

import base64
import os
import secrets
from collections.abc import Iterable
from pathlib import Path
from typing import Self

_CHUNK = 1 << 22


class Mark:
    """Letters and digits alone: plain, in a URL, in JSON and in HTML it is spelt the same.

    So it is found in whatever is left of a secret that has it in the middle. `forms` are the bytes
    that are looked for: plain, hexadecimal, and base64 at each of its three offsets, without the
    characters that depend on what stands around.
    """

    def __init__(self, word: str) -> None:
        assert word.isalnum(), word
        self.word = word
        raw = word.encode()
        self.forms = (raw, raw.hex().encode(), raw.hex().upper().encode(), *_base64(raw))

    @classmethod
    def drawn(cls, beginning: str) -> Self:
        """One that nobody else has."""
        return cls(f"{beginning}{secrets.token_hex(8)}")

    def occurs(self, data: bytes) -> bool:
        """Whether it is in there, in any form."""
        return any(form in data for form in self.forms)

    def excerpts(self, data: bytes, around: int = 160) -> list[bytes]:
        """What stands around it, at the first place of each form."""
        at = [(data.find(form), len(form)) for form in self.forms]
        return [data[max(0, n - around) : n + size + around] for n, size in at if n >= 0]


def _base64(raw: bytes) -> Iterable[bytes]:
    for before in range(3):
        encoded = base64.b64encode(b"\0" * before + raw)
        whole = (before + len(raw)) // 3 * 4
        yield encoded[(0, 2, 3)[before] : whole]


def occurring(marks: Iterable[Mark], data: bytes) -> set[str]:
    """The words of those that are in there."""
    return {mark.word for mark in marks if mark.occurs(data)}


def in_file(marks: Iterable[Mark], path: Path) -> set[str]:
    """The words of those that are in a file, whatever its size; none where it cannot be read."""
    wanted, found, overlap = [*marks], set[str](), b""
    keep = max(len(form) for mark in wanted for form in mark.forms)
    try:
        with path.open("rb", buffering=0) as file:
            while piece := file.read(_CHUNK):
                data = overlap + piece
                found |= occurring(wanted, data)
                overlap = data[-keep:]
    except OSError:
        return found
    return found


def in_memory(marks: Iterable[Mark], pid: int) -> set[str]:
    """The words of those that are in a process's memory, which only root may read."""
    wanted, found = [*marks], set[str]()
    try:
        maps = Path(f"/proc/{pid}/maps").read_text().splitlines()
        with Path(f"/proc/{pid}/mem").open("rb", buffering=0) as memory:
            for line in maps:
                span, rights = line.split()[:2]
                if "w" not in rights:
                    continue
                start, end = (int(one, 16) for one in span.split("-"))
                found |= _region(wanted, memory.fileno(), start, end)
    except OSError:
        return found
    return found


def _region(marks: list[Mark], memory: int, start: int, end: int) -> set[str]:
    found, overlap = set[str](), b""
    for at in range(start, end, _CHUNK):
        try:
            piece = os.pread(memory, min(_CHUNK, end - at), at)
        except OSError:
            break
        data = overlap + piece
        found |= occurring(marks, data)
        overlap = data[-128:]
    return found
