"""Tokens and time that a session has used, summed from its log."""

from __future__ import annotations

import copy
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from drover.event.v1.usage_pb2 import CacheCreationUsage, ServerToolUsage, UsageSnapshot

if TYPE_CHECKING:
    from collections.abc import Iterator

    from drover.event.v1.span_event_pb2 import ModelUsage


@dataclass(slots=True)
class UsageTotals:
    """Running sums (EVENTS §12). Times are in seconds, those of `running_since` on in Unix time.

    `latest` is the time of the last event that told one.
    """

    input_tokens: int = 0
    output_tokens: int = 0
    cache_read: int = 0
    cache_5m: int = 0
    cache_1h: int = 0
    searches: int = 0
    active_seconds: float = 0.0
    running_since: float | None = None
    latest: float = 0.0
    # Input, output, cache read and both cache writes, under "rate model".
    counted: dict[str, list[int]] = field(default_factory=dict)

    def add(self, usage: ModelUsage, model_id: str) -> None:
        """Counts one model request, by the model `model_id` unless it says itself."""
        fresh, reply = usage.input_tokens, usage.output_tokens
        read, written_1h = usage.cache_read_input_tokens, usage.cache_creation_1h_input_tokens
        written_5m = usage.cache_creation_input_tokens - written_1h
        tokens = (fresh, reply, read, written_5m, written_1h)
        if not any(tokens):
            return
        key = f"{usage.rate} {usage.model or model_id}"
        before = self.counted.get(key, (0,) * len(tokens))
        self.counted[key] = [one + more for one, more in zip(before, tokens, strict=True)]
        self.input_tokens += fresh
        self.output_tokens += reply
        self.cache_read += read
        self.cache_5m += written_5m
        self.cache_1h += written_1h

    def with_request(self, usage: ModelUsage, model_id: str) -> UsageTotals:
        """The sums with one request more; these stay as they are."""
        sums = copy.copy(self)
        sums.counted = dict(self.counted)
        sums.add(usage, model_id)
        return sums

    def by_rate(self) -> Iterator[tuple[tuple[str, str], list[int]]]:
        """The tokens of each model at each of its rates."""
        for key, tokens in self.counted.items():
            rate, _, model_id = key.partition(" ")
            yield (model_id, rate), tokens

    def run(self, at: float) -> None:
        """The session runs from `at`, if it did not already."""
        if self.running_since is None:
            self.running_since = at

    def rest(self, at: float) -> None:
        """The session runs no longer."""
        self.active_seconds = self.active_at(at)
        self.running_since = None

    def settle(self, active_seconds: float, at: float) -> None:
        """Takes over the time that a snapshot in the log has published."""
        self.active_seconds = active_seconds
        if self.running_since is not None:
            self.running_since = at

    def active_at(self, at: float) -> float:
        """Seconds of running until `at`."""
        if self.running_since is None:
            return self.active_seconds
        return self.active_seconds + max(0.0, at - self.running_since)

    def snapshot(self, at: float) -> UsageSnapshot:
        """The usage as of `at`, without its cost."""
        return UsageSnapshot(
            input_tokens=self.input_tokens,
            output_tokens=self.output_tokens,
            cache_read_input_tokens=self.cache_read,
            cache_creation=CacheCreationUsage(
                ephemeral_5m_input_tokens=self.cache_5m,
                ephemeral_1h_input_tokens=self.cache_1h,
            ),
            server_tool_use=ServerToolUsage(
                web_search_requests=self.searches, web_fetch_requests=0
            ),
            active_seconds=round(self.active_at(at), 3),
        )
