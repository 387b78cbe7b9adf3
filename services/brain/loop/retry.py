"""How often, and after what time, a failed model request is made again."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from drover.event.v1.session_event_pb2 import PlainError, SessionError
from services.brain.model.port import ModelErrorKind

if TYPE_CHECKING:
    from services.brain.model.port import ModelError

_SPREAD: Final = 0.1
"""The part of the time that a server asks for by which one may come later."""


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """Exponential backoff with full jitter; the server's own word on when goes before it.

    Times are in seconds. `attempts` counts the first request, too.
    """

    attempts: int = 8
    base: float = 0.5
    longest: float = 30.0
    longest_asked: float = 300.0
    chance: random.Random = field(default_factory=random.SystemRandom)

    def exhausted(self, failures: int) -> bool:
        """Whether `failures` in a row are enough."""
        return failures >= self.attempts

    def delay(self, failures: int, retry_after: float | None) -> float:
        """Seconds to wait after so many failures in a row."""
        ceiling = min(self.longest, self.base * 2 ** min(failures - 1, 16)) if failures else 0.0
        if retry_after is None:
            return self.chance.uniform(0, ceiling)
        asked = min(retry_after, self.longest_asked)
        # Everyone who was told the same time must not come back at the same moment.
        return asked + self.chance.uniform(0, max(ceiling / 4, asked * _SPREAD))


_CHECK_REQUEST = "Check the agent's model id, its tools' schemas and what the model supports."
_BAD_REQUEST = 400
_NOT_FOUND = 404
_TOO_LARGE = 413


def session_error(error: ModelError) -> SessionError:
    """What the client is told of a failed model request (EVENTS §7)."""
    match error.kind:
        case ModelErrorKind.OVERLOADED:
            return SessionError(message=error.message, model_overloaded_error=PlainError())
        case ModelErrorKind.RATE_LIMITED:
            return SessionError(message=error.message, model_rate_limited_error=PlainError())
        case ModelErrorKind.BILLING:
            return SessionError(message=error.message, billing_error=PlainError())
        case _:
            return SessionError(message=_advised(error), model_request_failed_error=PlainError())


def blames_content(error: ModelError) -> bool:
    """Whether the request may have been refused for a picture or a document in it.

    Not one that was too long in tokens: that is for the context to solve.
    """
    return error.status == _TOO_LARGE or (error.status == _BAD_REQUEST and not error.overflow)


def _advised(error: ModelError) -> str:
    advice = _advice(error)
    return f"{error.message.rstrip('.')}. {advice}" if advice else error.message


def _advice(error: ModelError) -> str:
    if error.kind is ModelErrorKind.AUTHENTICATION:
        return f"Check the brain's {error.advice or 'credential for the model'}."
    if error.status in (_BAD_REQUEST, _NOT_FOUND, _TOO_LARGE):
        return _CHECK_REQUEST
    return ""
