"""System messages along the way, and where in the conversation the model finds them.

The Messages API takes a message of the role `system` behind a user's, with an assistant's or
nothing behind it, and no two in a row. So what comes in waits for the next request and is put at
its end. Where no reply followed and the user goes on, it goes on behind that.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from services.brain.domain.transcript import Transcript


@dataclass(slots=True)
class Instructions:
    """Encoded blocks of system messages: `pending` ones have no place yet.

    `of_turn` are those whose place is, or will be, in the turn that is open, so that they outlive
    it where what was said in it is taken back.
    """

    pending: list[bytes] = field(default_factory=list)
    of_turn: list[bytes] = field(default_factory=list)

    def add(self, blocks: Iterable[bytes]) -> None:
        """Takes a system message."""
        new = [*blocks]
        self.pending += new
        self.of_turn += new

    def place(self, transcript: Transcript) -> None:
        """A request begins: what waits is said behind the user's side of it."""
        if self.pending and transcript.role in ("user", "system"):
            transcript.add("system", *self.pending)
            self.pending = []

    def withdraw(self, transcript: Transcript) -> None:
        """The user goes on: what was said behind their words comes behind these, too."""
        if blocks := transcript.withdraw_system():
            self.pending.insert(0, blocks)

    def begin_turn(self) -> None:
        """A turn begins."""
        self.of_turn = [*self.pending]

    def drop_turn(self) -> None:
        """The turn leaves the conversation; what the operator has said in it holds."""
        self.pending = [*self.of_turn]

    def restate(self, transcript: Transcript, cut: int) -> None:
        """A summary takes the place of the messages before `cut`: their instructions hold on."""
        lost = transcript.system_before(cut)
        self.pending = [*lost, *self.pending]
        # A message holds several blocks. No block is within another: inside its text, quotes are
        # escaped.
        kept = [block for block in self.of_turn if not any(block in whole for whole in lost)]
        self.of_turn = [*lost, *kept]
