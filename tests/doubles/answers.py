"""Kept answers in memory, decided on as the stores decide."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from storage.answers import Kept, decide, is_first

if TYPE_CHECKING:
    from collections.abc import Callable

    from chassis.clock import Clock
    from drover.api.v1.request_key_pb2 import RequestKey
    from storage.once import Once

T = TypeVar("T")

MICROS = 1_000_000


class MemoryAnswers:
    """What `storage.once.Answers` does, over a dictionary."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._kept: dict[bytes, Kept] = {}

    def write(self, fn: Callable[[], T], once: Once[T] | None, about: str = "") -> T:
        if once is None:
            return fn()
        key, now = once.key, int(self._clock.now().timestamp() * MICROS)
        kept = self._kept.get(key.id)
        answer = decide(kept, key, now)
        if answer is None:
            result = fn()
            self._keep(key, now, once.pack(result), about)
            return result
        if kept is not None and is_first(key):
            self._keep(key, now, answer, kept.about)
        once.replayed = True
        return once.unpack(answer)

    def withdraw(self, about: str) -> None:
        for key_id, kept in self._kept.items():
            if kept.about == about:
                self._kept[key_id] = kept._replace(answer=None)

    def _keep(self, key: RequestKey, now: int, answer: bytes, about: str) -> None:
        self._kept[key.id] = Kept.of(key, now, answer, about)
