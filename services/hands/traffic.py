"""What operators see of what goes into hands and out of them: `drover_hands_…` for Prometheus."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeVar

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from chassis.errors import DroverError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence
    from typing import Literal

    from drover.memory.v1.memory_pb2 import Memory
    from drover.memory.v1.memory_service_pb2 import StoreChanges
    from services.hands.memory.pushing import Memories

    # It is there; it cannot be had; it may be had later.
    Bringing = Literal["brought", "missing", "away"]
    # It is the session's file; it never is, as it is now; it is tried again.
    Publishing = Literal["published", "refused", "failed"]

    T = TypeVar("T")

_PREFIX: Final = "drover_hands_"
_SECONDS: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300)


class Traffic:
    """Counts what is brought into hands, what is published of them, and memory both ways."""

    def __init__(self, registry: CollectorRegistry | None = None) -> None:
        registry = registry or CollectorRegistry()

        def counter(name: str, what: str, *labels: str) -> Counter:
            return Counter(_PREFIX + name, what, labels, registry=registry)

        self._registry = registry
        self._brought = counter(
            "brought", "Files and skills that were to be brought into hands.", "part", "outcome"
        )
        self._bring_seconds = Histogram(
            _PREFIX + "bring_seconds",
            "Seconds that those took which were brought.",
            ["part"],
            buckets=_SECONDS,
            registry=registry,
        )
        self._outputs = counter(
            "outputs", "Files that sessions left, and what came of it.", "outcome"
        )
        self._output_bytes = counter("outputs_bytes", "Bytes of those that were published.")
        self._memory = counter(
            "memory_calls",
            "What the memory stores were asked, and what came of it.",
            "call",
            "outcome",
        )
        self.memory_lost = counter(
            "memory_lost", "Hands whose workspace went before their memories were stored."
        ).inc

    def brought(self, part: str, outcome: Bringing, seconds: float) -> None:
        """Notes one thing that was to be brought."""
        self._brought.labels(part, outcome).inc()
        if outcome == "brought":
            self._bring_seconds.labels(part).observe(seconds)

    def published(self, outcome: Publishing, size: int = 0) -> None:
        """Notes one file that was to be published."""
        self._outputs.labels(outcome).inc()
        self._output_bytes.inc(size)

    def waiting(self, what: Literal["outputs", "memory"], now: Callable[[], int]) -> None:
        """Shows how many hands have something that could not be sent yet."""
        told = f"Hands whose {what} could not be stored when they were to be, and are tried again."
        Gauge(f"{_PREFIX}{what}_waiting", told, registry=self._registry).set_function(now)

    async def asked(self, call: str, answer: Awaitable[T]) -> T:
        """What the memory stores answer; that is noted. Raises what it raises."""
        try:
            found = await answer
        except DroverError as error:
            self._memory.labels(call, "away" if error.rule.retryable else "refused").inc()
            raise
        self._memory.labels(call, "done").inc()
        return found


class CountedMemories:
    """Memory stores of which it is counted what they are asked."""

    def __init__(self, memories: Memories, traffic: Traffic) -> None:
        self._memories = memories
        self._traffic = traffic

    async def follow(self, stores: Sequence[tuple[str, int]]) -> Sequence[StoreChanges]:
        """What has changed in stores, each since a revision."""
        return await self._traffic.asked("follow", self._memories.follow(stores))

    async def create(self, store_id: str, path: str, text: str, session_id: str) -> Memory:
        """Stores a new one."""
        answer = self._memories.create(store_id, path, text, session_id)
        return await self._traffic.asked("create", answer)

    async def update(
        self,
        store_id: str,
        memory_id: str,
        expected: str,
        session_id: str,
        *,
        path: str | None = None,
        text: str | None = None,
    ) -> Memory:
        """Changes one whose content has the digest that is expected."""
        answer = self._memories.update(
            store_id, memory_id, expected, session_id, path=path, text=text
        )
        return await self._traffic.asked("update", answer)

    async def delete(self, store_id: str, memory_id: str, expected: str, session_id: str) -> None:
        """Deletes one whose content has the digest that is expected."""
        answer = self._memories.delete(store_id, memory_id, expected, session_id)
        await self._traffic.asked("delete", answer)
