"""Which input wakes a brain, which makes it stay, and what it takes first (ARCHITECTURE §4)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from drover.session.v1 import lease_pb2
from services.session.domain.event import InputClass
from services.session.domain.session import Stop

if TYPE_CHECKING:
    from services.session.domain.ports import InboxEntry, Transaction
    from services.session.domain.session import Waiting

CONTROL: Final = (InputClass.INTERRUPT, InputClass.CONFIRMATION)

TAKE_BYTES: Final = 16 * 1024 * 1024
TAKE_EVENTS: Final = 1024
"""What is taken at a time, at the most, of all that waits. A single event may have more bytes."""
_FIRST_LOOK: Final = 16

# After these stops a message alone changes nothing: calls, or the budget, are waited for.
_MESSAGES_WAIT: Final = frozenset({Stop.REQUIRES_ACTION, Stop.BUDGET_REACHED})


def needs_brain(stop: Stop, waiting: Waiting) -> bool:
    """Whether what waits can make progress in a session that stopped like this."""
    if waiting.interrupts or waiting.confirmations:
        return True
    return bool(waiting.messages) and stop not in _MESSAGES_WAIT


def summary(waiting: Waiting, *, log_grown: bool = False) -> lease_pb2.InputWaiting:
    """What waits, as a brain is told."""
    return lease_pb2.InputWaiting(
        interrupt=waiting.interrupts > 0,
        confirmation=waiting.confirmations > 0,
        message=waiting.messages > 0,
        log_grown=log_grown,
    )


def choose(
    tx: Transaction, session_id: str, waiting: Waiting, take: lease_pb2.TakeInput.ValueType
) -> list[InboxEntry]:
    """What a brain that asks for `take` gets, in the order in which it enters the log.

    Interrupts come first, whatever waits before them; then the rest in order. All is no more than
    one acknowledgement carries: who then sees that more waits asks again.
    """
    if take == lease_pb2.TAKE_INPUT_UNSPECIFIED or not waiting.total:
        return []
    if take == lease_pb2.TAKE_INPUT_ALL:
        return _first_of_all(tx, session_id, waiting)
    if take == lease_pb2.TAKE_INPUT_CONFIRMATIONS:
        kinds = (InputClass.CONFIRMATION,)
        return tx.waiting(session_id, kinds, waiting.confirmations)
    control = waiting.interrupts + waiting.confirmations
    chosen = _interrupts_first(tx.waiting(session_id, CONTROL, control)) if control else []
    if take == lease_pb2.TAKE_INPUT_NEXT and waiting.messages and not waiting.interrupts:
        chosen += _next_message(tx.waiting(session_id, (InputClass.MESSAGE,), 2))
    return chosen


def everything(tx: Transaction, session_id: str, waiting: Waiting) -> list[InboxEntry]:
    """All that waits, for a session that ends, in the order in which it enters the log."""
    return _interrupts_first(tx.waiting(session_id, tuple(InputClass), waiting.total))


def _first_of_all(tx: Transaction, session_id: str, waiting: Waiting) -> list[InboxEntry]:
    """As much of everything as is taken at a time, and one event at least."""
    interrupts = waiting.interrupts
    chosen = tx.waiting(session_id, (InputClass.INTERRUPT,), interrupts) if interrupts else []
    others, limit = (InputClass.CONFIRMATION, InputClass.MESSAGE), _FIRST_LOOK
    while True:
        entries, size = tx.waiting(session_id, others, limit), 0
        for place, entry in enumerate(entries):
            size += entry.event.ByteSize()
            if size > TAKE_BYTES and (place or chosen):
                return chosen + entries[:place]
        if len(entries) < limit or limit >= TAKE_EVENTS:
            return chosen + entries
        limit = min(4 * limit, TAKE_EVENTS)


def _next_message(oldest: list[InboxEntry]) -> list[InboxEntry]:
    """The oldest message, with the system message behind it that goes with it."""
    accompanied = len(oldest) > 1 and oldest[1].event.HasField("system_message")
    return oldest if accompanied else oldest[:1]


def _interrupts_first(entries: list[InboxEntry]) -> list[InboxEntry]:
    return sorted(entries, key=lambda entry: entry.kind is not InputClass.INTERRUPT)
