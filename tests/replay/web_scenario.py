"""A golden log of a session that searches and reads: `scenarios` for a stack with a web site."""

from __future__ import annotations

import threading
from typing import Any, Final

from anthropic import Anthropic

from tests.doubles.messages_api import ToolUse, text, tools
from tests.e2e import driving
from tests.e2e.driving import new_session, run_turn, send
from tests.e2e.web_stack import WebStack

NO_USER_INPUT: Final = {
    "name": "web_fetch",
    "url_sources": {"user_input": "none"},
    "permission_policy": {"type": "always_ask"},
}
LOOK_UP: Final = {
    "type": "custom",
    "name": "look_up",
    "description": "Looks a page up.",
    "input_schema": {"type": "object"},
}


def web_tools(web: WebStack, client: Anthropic) -> str:
    """Searched, read, refused in every way, asked about, changed, interrupted."""
    site, model = web.site, web.stack.model
    toolset: Any = driving.TOOLSET
    page, named = f"{site.url}/page", f"{site.url}/named"
    site.found.append({"url": page, "title": "Page", "content": "about it"})
    site.pages["/page"] = ("text/html", "<h1>Page</h1><p><a href=/next>Next</a></p>")
    site.pages["/named"] = ("text/plain", "hello")
    session = new_session(client, tools=[toolset, LOOK_UP])
    model.script(
        tools(
            ToolUse("web_search", {"query": "pages"}),
            ToolUse("web_fetch", {"url": page}),  # not shown yet
            ToolUse("web_fetch", {"url": "no url"}),
        ),
        tools(
            ToolUse("web_fetch", {"url": page}),
            ToolUse("web_fetch", {"url": f"{site.url}/missing"}),
            ToolUse("look_up", {}),
        ),
        text("done"),
    )
    [call] = run_turn(client, session.id, f"Find pages, not {site.url}/missing.")[
        -1
    ].stop_reason.event_ids
    found: Any = {
        "type": "user.custom_tool_result",
        "custom_tool_use_id": call,
        "content": [{"type": "text", "text": f"see {named}"}],
    }
    client.beta.sessions.events.send(session.id, events=[found])
    web.stack.until_idle(client, session.id)

    asked: Any = {"tools": [{**toolset, "configs": [NO_USER_INPUT]}, LOOK_UP]}
    client.beta.sessions.update(session.id, agent=asked)
    model.script(
        tools(
            ToolUse("web_fetch", {"url": named}),
            ToolUse("web_fetch", {"url": f"{site.url}/missing"}),  # the user alone has shown it
            ToolUse("web_fetch", {"url": f"{site.url}/next"}),
        ),
        text("as you wish"),
    )
    calls = run_turn(client, session.id, "Go on.")[-1].stop_reason.event_ids
    verdicts: Any = [
        {"type": "user.tool_confirmation", "tool_use_id": one, "result": result}
        for one, result in zip(calls, ("allow", "allow", "deny"), strict=True)
    ]
    client.beta.sessions.events.send(session.id, events=verdicts)
    web.stack.until_idle(client, session.id, answers=2)

    free: Any = {"tools": [toolset, LOOK_UP]}
    client.beta.sessions.update(session.id, agent=free)
    site.gate = threading.Event()
    site.asked.clear()
    model.script(tools(ToolUse("web_fetch", {"url": named})))
    try:
        send(client, session.id, "and wait")
        web.stack.wait_for(lambda: site.asked, "the request")
        interrupt: Any = {"type": "user.interrupt"}
        client.beta.sessions.events.send(session.id, events=[interrupt])
        web.stack.until_idle(client, session.id, answers=2)
    finally:
        site.gate.set()
    return str(session.id)
