"""What of a session's feed has been shown, so that nothing is shown again or left out."""

from __future__ import annotations

from collections import OrderedDict
from copy import copy
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from gateway.sse import Frame

_MAX_ECHOES = 1_000


class View:
    """Every stamped event up to a position, in the log's order, and what has no stamp.

    `position` is the id of the last stamped event: "" is the log's beginning, None is not known.
    `echoed` are the events that were shown unstamped alone so far, `previewed` those of which a
    glimpse was shown and which are still to come.
    """

    __slots__ = ("_seq", "echoed", "position", "previewed")

    def __init__(self, position: str | None = None) -> None:
        self.position = position
        self.echoed: OrderedDict[str, None] = OrderedDict()
        self.previewed: set[str] = set()
        self._seq = 0

    def note(self, frame: Frame) -> bool:
        """Takes down a frame, and says whether it is new: what was shown must not be again."""
        if frame.seq:
            if frame.seq <= self._seq:
                return False
            self._seq, self.position = frame.seq, frame.id
            self.echoed.pop(frame.id, None)
            if frame.ends_previews:
                self.previewed.clear()
            else:
                self.previewed.discard(frame.id)
        elif frame.id:
            if frame.id in self.echoed:
                return False
            self.echoed[frame.id] = None
            if len(self.echoed) > _MAX_ECHOES:
                self.echoed.popitem(last=False)
        elif frame.previews:
            self.previewed.add(frame.previews)
        return True

    def copy(self) -> Self:
        """The same, to go on by itself. Nothing more will come of what is being previewed."""
        other = copy(self)
        other.echoed, other.previewed = self.echoed.copy(), set()
        return other
