"""`drover tail`: a session's events, so far and onwards."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cli.follow import Follower
from cli.terminal import Terminal, plain_json
from cli.transcript import Transcript

if TYPE_CHECKING:
    from anthropic import Anthropic


def tail_session(client: Anthropic, session_id: str, *, follow: bool, as_json: bool) -> None:
    """Prints the events of a session, with `follow` until the session ends."""
    console = Terminal()
    transcript = Transcript(console, every=True)
    follower = Follower(client, session_id)
    for event in follower.follow() if follow else follower.history():
        if as_json:
            console.out(plain_json(event.to_json(indent=None)), highlight=False)
        else:
            transcript.show(event)
