"""What became of appends whose connection broke: read from the log, not guessed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from drover.session.v1.lease_pb2 import Appended

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from drover.event.v1.event_pb2 import Event
    from drover.session.v1.lease_pb2 import AppendEvents, InputWaiting

# What enters the log by being taken from the inbox. A system message also does without that: an
# append that is then held for committed has taken too little, and what waits is asked for again.
_TAKEN: Final = frozenset(
    {"user_message", "user_interrupt", "user_tool_confirmation", "system_message"}
)


def reconcile(
    appends: Iterable[AppendEvents], missed: Sequence[Event], waiting: InputWaiting
) -> tuple[list[Appended], Sequence[Event]]:
    """Acknowledges those of `appends`, in order, that `missed` shows to be committed.

    `missed` is the log behind the last acknowledgement. Answers the acknowledgements and what of
    `missed` they do not cover.
    """
    position = {event.id: index for index, event in enumerate(missed)}
    acknowledged: list[Appended] = []
    done = 0
    for append in appends:
        # A result of ours that came second to a client's is in no log.
        places = [position[event.id] for event in append.events if event.id in position]
        if places:
            begin, end = places[0], places[-1] + 1
        elif append.events or (taken := _end_of_taken(missed, done)) is None:
            break
        else:
            begin = end = taken
        acknowledged.append(
            Appended(
                request_id=append.request_id,
                taken=missed[done:begin],
                head_seq=missed[end - 1].seq,
                input=waiting,
            )
        )
        done = end
    return acknowledged, missed[done:]


def _end_of_taken(missed: Sequence[Event], done: int) -> int | None:
    """Where the first run of taken events behind `done` ends; None if nothing was taken.

    An append that only takes leaves no other trace.
    """
    end = None
    for index in range(done, len(missed)):
        if missed[index].WhichOneof("payload") in _TAKEN:
            end = index + 1
        elif end is not None:
            break
    return end
