"""A file of a skill, wherever it comes from."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import IO


@dataclass(frozen=True, slots=True)
class Entry:
    """One file: the path that it was uploaded by, the parts of that, and its size as it is said.

    `executable` is `None` where nothing says so. `open` gives its bytes, of one file at a time.
    """

    path: str
    parts: tuple[str, ...]
    size: int
    executable: bool | None
    open: Callable[[], AbstractContextManager[IO[bytes]]]
