"""Results that a log takes, whatever a tool has answered."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import structlog

from chassis import rules
from chassis.errors import DroverError
from services.brain.domain import calls, events

if TYPE_CHECKING:
    from drover.event.v1.event_pb2 import Event
    from services.brain.domain.events import EventFactory

UNFIT: Final = "The tool ran, but its result cannot be shown:"

_log = structlog.get_logger("brain.results")


def fit(result: Event, factory: EventFactory) -> Event:
    """`result` as it is, or an error in its place where the contract's rules refuse it.

    A log that refuses a result would refuse it to every brain that comes after, too.
    """
    try:
        rules.check(result)
    except DroverError as error:
        call_id, mcp = calls.answered_by(result), result.HasField("agent_mcp_tool_result")
        _log.warning("result_unfit", call_id=call_id, message=error.message)
        said = [events.text(f"{UNFIT} {error.message}")]
        return factory.result(call_id, said, is_error=True, mcp=mcp)
    return result
