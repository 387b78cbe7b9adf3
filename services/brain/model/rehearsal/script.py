"""How the rehearsal model acts: scripts that are replayed from the conversation at every request.

A script is a generator: it yields the calls it wants to make, is sent their results, and returns
its final text. Replaying it over the steps that the messages record leads to where the turn
stands, so that no state is kept between requests.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from services.brain.model.rehearsal.conversation import Result

if TYPE_CHECKING:
    from collections.abc import Mapping

    from services.brain.model.rehearsal.conversation import Conversation

NAME = "Rehearsal model (scripted)"

NOTICE = (
    "I am Drover's scripted rehearsal model: I follow fixed rules, offline, and understand "
    "nothing. To use a real model, set ANTHROPIC_API_KEY and restart Drover."
)


@dataclass(frozen=True, slots=True)
class Call:
    """A tool call to make."""

    name: str
    input: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Step:
    """Calls to make in parallel, and what is said before them."""

    say: str
    calls: tuple[Call, ...]


@dataclass(frozen=True, slots=True)
class Answer:
    """One answer of the model: a text, then calls; without calls the turn ends."""

    text: str
    calls: tuple[Call, ...] = ()


T = TypeVar("T")

Acting = Generator[Step, tuple[Result, ...], T]
"""Part of a script: it makes calls on its way to a T."""

Script = Acting[str]
"""A whole script, whose text ends the turn."""


def play(script: Script, conversation: Conversation) -> Answer:
    """The answer that comes next in `script`, given the steps that were already taken."""
    try:
        wanted = next(script)
        for taken in conversation.steps:
            if [call.name for call in taken] != [call.name for call in wanted.calls]:
                return _final(
                    "The tool calls since your message are not ones I would have made, so I "
                    "cannot go on from them."
                )
            wanted = script.send(tuple(call.result for call in taken))
    except StopIteration as end:
        return _final(str(end.value))
    missing = sorted({call.name for call in wanted.calls} - conversation.tools)
    if missing:
        names = ", ".join(f"`{name}`" for name in missing)
        return _final(f"I would go on with {names}, but that is not among the tools on offer.")
    return Answer(f"{NAME}: {wanted.say}", wanted.calls)


def _final(text: str) -> Answer:
    return Answer(f"{text}\n\n{NOTICE}")
