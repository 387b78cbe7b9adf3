"""How a cluster fails, whatever of its client's exceptions it was."""

from __future__ import annotations

from services.hands.backends.port import BackendUnavailable


class ClusterAway(BackendUnavailable):
    """The API server does not answer, or stopped in the middle: what was asked may be done."""


class ClusterRefused(BackendUnavailable):
    """The API server answers, and does not do it. `reason` is its word, `retry_after` seconds."""

    def __init__(
        self, text: str, status: int, reason: str = "", retry_after: float | None = None
    ) -> None:
        super().__init__(text)
        self.status = status
        self.reason = reason
        self.retry_after = retry_after
