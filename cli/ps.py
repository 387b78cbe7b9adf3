"""`drover ps`: what runs, service by service and session by session."""

from __future__ import annotations

import json
import os
import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from rich.console import Group
from rich.live import Live
from rich.markup import escape
from rich.table import Table

from cli.target import NoTargetError
from cli.terminal import Terminal, escaped, plain_json

if TYPE_CHECKING:
    from anthropic import Anthropic
    from rich.console import RenderableType

BETA: Final = {"anthropic-beta": "managed-agents-2026-04-01"}
_EVERY_SECONDS: Final = 2.0
_MOST: Final = 100
_LINE: Final = 500
_SERVING: Final = "SERVING"
_UNITS: Final = ((86_400, "d"), (3_600, "h"), (60, "m"))


def show_running(client: Anthropic, *, as_json: bool, watch: bool) -> None:
    """Prints what runs; with `watch` again and again, until Ctrl-C."""
    out = Terminal()
    if as_json:
        while True:
            out.file.write(plain_json(json.dumps(look(client))) + "\n")
            out.file.flush()
            if not watch:
                return
            time.sleep(_EVERY_SECONDS)
    if not out.is_terminal and "COLUMNS" not in os.environ:
        out.width = _LINE  # whoever looks for something in a line finds all of it there
    if not watch:
        out.print(drawn(look(client), datetime.now(UTC)))
        return
    with Live(console=out, screen=out.is_terminal, auto_refresh=False) as live:
        while True:
            live.update(drawn(look(client), datetime.now(UTC)), refresh=True)
            time.sleep(_EVERY_SECONDS)


def look(client: Anthropic) -> dict[str, Any]:
    """What the gateway says now. Raises what the official client does."""
    status = _object(client.get("/status", cast_to=object))
    options: Any = {"headers": BETA, "params": {"limit": str(_MOST)}}
    sessions = _object(client.get("/v1/operations/sessions", cast_to=object, options=options))
    return {
        "gateway": {name: status.get(name) for name in ("version", "started_at")},
        "key": status.get("key"),
        "processes": status.get("processes"),
        "sessions": sessions.get("data"),
        "has_more_sessions": sessions.get("has_more"),
    }


def drawn(told: dict[str, Any], now: datetime) -> RenderableType:
    """What was looked at, for people."""
    return Group(_processes(told, now), "", _sessions(told, now))


def age(since: object, now: datetime) -> str:
    """How long ago a time of the API was, in its two largest units: `3h12m`."""
    if not isinstance(since, str):
        return "–"
    seconds = max(0, int((now - datetime.fromisoformat(since)).total_seconds()))
    for position, (size, unit) in enumerate(_UNITS):
        if seconds >= size:
            smaller, name = _UNITS[position + 1] if position + 1 < len(_UNITS) else (1, "s")
            return f"{seconds // size}{unit}{seconds % size // smaller:02}{name}"
    return f"{seconds}s"


def _processes(told: dict[str, Any], now: datetime) -> Table:
    table = _table("PROCESS", "STATE", "VERSION", "UP", "ADDRESS", "HOST")
    gateway = told["gateway"]
    _row(table, "gateway", _SERVING, gateway["version"], age(gateway["started_at"], now))
    for one in told["processes"] or ():
        name, up = one["name"], age(one["started_at"], now)
        style = None if one["state"] == _SERVING else "bold red"
        rest = one["version"], up, one["address"], one["host"]
        _row(table, name, one["state"], *rest, style=style)
    if told["processes"] is None:
        table.caption = "other processes are shown to keys with the scope admin"
    return table


def _sessions(told: dict[str, Any], now: datetime) -> RenderableType:
    if not told["sessions"]:
        return f"no session of {told['key']['workspace_id']} works now"
    table = _table("SESSION", "AGENT", "STATUS", "AGE", "SINCE LAST EVENT", "BRAIN", "WAITS FOR")
    for one in told["sessions"]:
        _row(
            table,
            one["id"],
            one["agent_name"],
            one["status"],
            age(one["created_at"], now),
            age(one["last_event_at"], now),
            one["brain"],
            one["waits_for"],
        )
    if told["has_more_sessions"]:
        table.caption = f"the {_MOST} that have waited longest; there are more"
    return table


def _table(*columns: str) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), caption_justify="left")
    first, *others = columns
    table.add_column(first, no_wrap=True)  # an id is there to be copied
    for column in others:
        table.add_column(column, overflow="fold")
    return table


def _row(table: Table, *cells: str | None, style: str | None = None) -> None:
    table.add_row(*(escape(escaped(cell or "–")) for cell in cells), style=style)


def _object(answer: object) -> dict[str, Any]:
    if not isinstance(answer, dict):
        msg = "the answer is not that of a gateway of Drover's"
        raise NoTargetError(msg)
    return answer
