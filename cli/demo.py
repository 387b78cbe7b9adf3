"""`drover demo`: a stack of its own, one session on real input, everything shown; then it ends."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from rich.rule import Rule
from rich.text import Text

from cli.databases import embedded
from cli.launched import LaunchedStack
from cli.task import SYSTEM, Task
from cli.terminal import Terminal, plain
from cli.transcript import Transcript, usage_line

if TYPE_CHECKING:
    from anthropic import Anthropic

    from cli.task import Ending

EXAMPLE = Path(__file__).resolve().parent.parent / "examples" / "orders.csv"
# Bytes shown of a file that the agent left.
_MAX_SHOWN = 64 * 1024
REPORT = "/mnt/session/outputs/report.md"

_QUESTION = """\
Here are half a year of orders of a small tea and coffee shop. Write them to orders.csv in your \
workspace and find out, with commands and not by eye: which city, category and month bring the \
most revenue, and which product looks good by revenue but not once returned orders are taken off. \
Leave a short report with the figures in {report} and read it back to check it.

What came back, by product: `{returns}`

```csv
{table}```
"""
_RETURNS = (
    'awk -F, \'$10 == "yes" { lost[$5] += $9; orders[$5]++ } '
    "END { for (p in lost) print lost[p], orders[p], p }' orders.csv | sort -rn"
)


def question() -> str:
    """The demo's task, with its data in it."""
    return _QUESTION.format(
        report=REPORT, returns=_RETURNS, table=EXAMPLE.read_text(encoding="utf-8")
    )


def run_demo(text: str | None, *, model: str) -> int:
    """Runs the demo, or the task `text`, and returns an exit code. Data of a failure is kept."""
    console = Terminal()
    data = Path(tempfile.mkdtemp(prefix="drover-demo-"))
    kept = True
    try:
        console.say(f"starting a stack over {data}", "dim")
        # Its own data alone: brains of a demonstration must not wake another stack's sessions.
        with LaunchedStack(data, environment=embedded(os.environ)) as stack:
            console.say(f"ready    {stack.target.url}", "dim")
            ending = _converse(
                stack.target.client(), question() if text is None else text, model, console
            )
            _print_files(data, console)
        kept = ending.exit_code != 0
        return ending.exit_code
    finally:
        if kept:
            console.say(f"what happened is kept in {data}", "yellow")
        else:
            shutil.rmtree(data, ignore_errors=True)


def _converse(client: Anthropic, text: str, model: str, console: Terminal) -> Ending:
    agent = client.beta.agents.create(
        name="clerk",
        model=model,
        system=SYSTEM,
        tools=[{"type": "agent_toolset_20260401"}],
    )
    environment = client.beta.environments.create(name="desk")
    session = client.beta.sessions.create(
        agent=agent.id, environment_id=environment.id, title="demo"
    )
    for what, identity in (
        ("agent", agent.id),
        ("environment", environment.id),
        ("session", session.id),
    ):
        console.say(f"{what:<12} {identity}", "dim")
    ending = Task(client, session.id, show=Transcript(console, every=True).show).run(text)
    usage = client.beta.sessions.retrieve(session.id).usage
    if usage is not None:
        console.print(Rule("usage"))
        console.say(usage_line(usage).removeprefix("usage: "))
    return ending


def _print_files(data: Path, console: Terminal) -> None:
    """Prints what the agent left for its user."""
    for outputs in sorted(data.glob("hands/**/outputs")):
        for file in sorted(path for path in outputs.rglob("*") if _is_plain_file(path)):
            console.print(Rule(Text(plain(str(file.relative_to(outputs))))))
            with file.open("rb") as opened:
                text = opened.read(_MAX_SHOWN).decode(errors="replace")
            console.say(text)


def _is_plain_file(path: Path) -> bool:
    return not path.is_symlink() and path.is_file()
