"""What happened, in order: enough to compare two runs by, and to read one."""

from __future__ import annotations

from collections import Counter
from hashlib import blake2b
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.simulation.loop import SimLoop


class Trace:
    """Lines of a run: when, who, what."""

    def __init__(self, loop: SimLoop) -> None:
        self._loop = loop
        self._lines: list[tuple[Any, ...]] = []

    def note(self, who: object, what: str, *about: object) -> None:
        self._lines.append((self._loop.time(), str(who), what, *about))

    def digest(self) -> str:
        """The same for two runs that went alike in every detail."""
        return blake2b(repr(self._lines).encode(), digest_size=8).hexdigest()

    def counts(self) -> Counter[str]:
        """How often what was noted; of logs, which events."""
        return Counter(about[-1] if what == "log" else what for _, _, what, *about in self._lines)

    def lines(self) -> Lines:
        """What may be kept and read when the run and all that was in it are gone."""
        return Lines(self._lines)


class Lines:
    """A trace to be read."""

    def __init__(self, lines: list[tuple[Any, ...]]) -> None:
        self._lines = lines

    def __iter__(self) -> Iterator[str]:
        for at, who, what, *about in self._lines:
            yield f"{at:10.4f}  {who:<11} {what:<12} {' '.join(map(str, about))}"
