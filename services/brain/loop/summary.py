"""What the model answers when it is asked for a summary, as events of the log."""

from __future__ import annotations

from typing import TYPE_CHECKING

from services.brain.domain.context import OVERFLOW
from services.brain.model.port import ModelError, ModelErrorKind

if TYPE_CHECKING:
    from collections.abc import Sequence

    from drover.event.v1.event_pb2 import Event
    from services.brain.domain.events import EventFactory


def of(response: Sequence[Event], factory: EventFactory, *, last_try: bool) -> list[Event]:
    """The summary in a whole response, and the request's end; calls in it are not made.

    A model that refuses, or says nothing twice, leaves an empty one: the conversation must be able
    to go on. Raises `ModelError` where it is to be asked again, or has overflowed.
    """
    *said, end = response
    reason = end.span_model_request_end.stop_reason
    if reason == OVERFLOW:
        raise ModelError(
            ModelErrorKind.REQUEST_FAILED, "the summary had no room", retryable=True, overflow=True
        )
    text = "".join(block.text.text for event in said for block in event.agent_message.content)
    if not text.strip() and reason != "refusal" and not last_try:
        raise ModelError(ModelErrorKind.REQUEST_FAILED, "the model gave no summary", retryable=True)
    return [factory.compacted("" if reason == "refusal" else text.strip()), end]
