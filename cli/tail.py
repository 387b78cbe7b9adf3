"""`drover tail`: a session's events, so far and onwards."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import Console

from cli.follow import Follower
from cli.transcript import Transcript

if TYPE_CHECKING:
    from anthropic import Anthropic


def tail_session(client: Anthropic, session_id: str, *, follow: bool, as_json: bool) -> None:
    """Prints the events of a session, with `follow` until the session ends."""
    console = Console()
    transcript = Transcript(console, every=True)
    follower = Follower(client, session_id)
    for event in follower.follow() if follow else follower.history():
        if as_json:
            console.out(event.to_json(indent=None), highlight=False)
        else:
            transcript.show(event)
