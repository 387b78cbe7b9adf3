"""What people have said in a session, for whoever must know what they want.

Only the people themselves are quoted: nothing that a tool, a file or the model has put into the
conversation is among their words.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable

    from drover.event.v1.content_pb2 import ContentBlock

USER: Final = "user"
OPERATOR: Final = "operator"

MAX_ENTRIES: Final = 30
"""Utterances that are kept: the first one, which tends to set the task, and the newest."""

MAX_CHARACTERS: Final = 4_000
"""Characters that are kept of each, half from its beginning and half from its end."""

LEFT_OUT: Final = " [...] "

Words = list[tuple[str, str]]
"""Speakers and what they said, oldest first."""


def remember(words: Words, speaker: str, text: str) -> None:
    """Adds an utterance, and lets go of one where there are too many."""
    text = shortened(text.strip(), MAX_CHARACTERS)
    if not text:
        return
    words.append((speaker, text))
    if len(words) > MAX_ENTRIES:
        del words[1]


def spoken(contents: Iterable[ContentBlock]) -> str:
    """The text of a message. What is attached to it is somebody else's words."""
    return "\n".join([block.text.text for block in contents if block.HasField("text")])


def shortened(text: str, most: int) -> str:
    """`text` without its middle, where it is longer than `most`."""
    if len(text) <= most:
        return text
    return text[: most // 2] + LEFT_OUT + text[len(text) - most // 2 :]
