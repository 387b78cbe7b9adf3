"""What every command prints with: text of others is shown as it is, and commands no terminal."""

from __future__ import annotations

import os
import re

from rich.console import Console

# Characters with which text could take over a terminal; tab and line feed are not among them.
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
_RAW_IN_JSON = re.compile(r"[\x7f-\x9f]")


class Terminal(Console):
    """Standard output, or standard error, that takes text which nobody here has written."""

    def __init__(self, *, stderr: bool = False) -> None:
        super().__init__(stderr=stderr, emoji=False)

    def say(self, text: str, style: str | None = None) -> None:
        """Prints a text and a line feed."""
        verbatim(self, text, style)


class SteadyTerminal(Terminal):
    """A terminal that may go away, or whose disk may be full, without an end to who prints."""

    def print(self, *objects: object, **options: object) -> None:
        """Prints, from the first failure on to nowhere."""
        try:
            super().print(*objects, **options)  # type: ignore[arg-type]  # passed on as they are
        except OSError:
            self.on_broken_pipe()

    def on_broken_pipe(self) -> None:
        """Prints to nowhere from now on, what is in buffers included."""
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, self.file.fileno())
        os.close(nowhere)


def verbatim(console: Console, text: str, style: str | None = None, end: str = "\n") -> None:
    """Prints a text as it is: no markup, no emoji codes, no wrapping, no control characters."""
    console.print(
        plain(text),
        style=style,
        end=end,
        markup=False,
        emoji=False,
        highlight=False,
        soft_wrap=True,
    )


def plain(text: str) -> str:
    """Text without the control characters that could move a cursor or retitle a terminal."""
    return _CONTROL.sub("", text)


def escaped(text: str) -> str:
    """Text of one line, in which whatever cannot be seen is spelled out."""
    return "".join(
        one if one.isprintable() else one.encode("unicode_escape").decode() for one in text
    )


def plain_json(text: str) -> str:
    """JSON that says the same without the control characters which JSON itself lets stand."""
    return _RAW_IN_JSON.sub(lambda match: f"\\u{ord(match[0]):04x}", text)
