"""`drover run`: a task against a running stack, streamed."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from rich.prompt import Confirm

from cli.task import Task, default_agent, default_environment
from cli.terminal import Terminal
from cli.transcript import Transcript, usage_line

if TYPE_CHECKING:
    from anthropic import Anthropic

    from cli.task import Ending

_TITLE_LENGTH = 60


def run_task(
    client: Anthropic,
    text: str,
    *,
    agent: str | None,
    environment: str | None,
    model: str,
    every: bool,
) -> Ending:
    """Runs `text` in a new session and shows it; without an agent the default one does it."""
    console = Terminal()
    session = client.beta.sessions.create(
        agent=default_agent(client, model).id if agent is None else agent,
        environment_id=default_environment(client).id if environment is None else environment,
        title=_title(text),
    )
    console.say(f"session  {session.id}", "dim")
    transcript = Transcript(console, every=every)
    allow = _ask if sys.stdin.isatty() and sys.stdout.isatty() else None
    ending = Task(client, session.id, show=transcript.show, allow=allow).run(text)
    usage = client.beta.sessions.retrieve(session.id).usage
    if usage is not None:
        console.say(usage_line(usage), "dim")
    return ending


def _ask(tool: str) -> bool:
    return Confirm.ask(f"allow {tool}?")


def _title(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _TITLE_LENGTH else f"{line[: _TITLE_LENGTH - 1]}…"
