"""F4 for the web tools: they only read, so whoever dies in a call, it is run once more."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from tests.doubles.messages_api import ToolUse, text, tools
from tests.e2e.driving import new_session, send
from tests.e2e.web_stack import WebStack


@pytest.mark.parametrize("service", ["hands", "vault_proxy", "brain"])
def test_a_page_whose_reader_is_killed_is_read_once_more(web: WebStack, service: str) -> None:
    stack, site = web
    site.pages["/slow"] = ("text/plain", "hello")
    site.gate = threading.Event()
    stack.model.script(tools(ToolUse("web_fetch", {"url": f"{site.url}/slow"})), text("done"))
    with stack.client(max_retries=12) as client:
        session = new_session(client)
        send(client, session.id, f"Read {site.url}/slow")
        stack.wait_for(lambda: site.asked, "the request")
        stack.kill(stack.holder(session.id) if service == "brain" else service)
        site.gate.set()
        stack.wait_ready()
        [result] = results(stack.until_idle(client, session.id, deadline=60))
        assert not result.is_error
        assert "hello" in result.content[0].text
    # A brain that dies leaves the call to the next, which waits for its answer.
    assert len(site.asked) == (1 if service == "brain" else 2)


def results(log: list[Any]) -> list[Any]:
    return [event for event in log if event.type == "agent.tool_result"]


def test_an_interrupt_ends_a_page_that_does_not_come(web: WebStack) -> None:
    stack, site = web
    site.pages["/slow"] = ("text/plain", "hello")
    site.gate = threading.Event()
    stack.model.script(tools(ToolUse("web_fetch", {"url": f"{site.url}/slow"})), text("done"))
    try:
        with stack.client(max_retries=12) as client:
            session = new_session(client)
            send(client, session.id, f"Read {site.url}/slow")
            stack.wait_for(lambda: site.asked, "the request")
            client.beta.sessions.events.send(session.id, events=[{"type": "user.interrupt"}])
            log = stack.until_idle(client, session.id, answers=0)
    finally:
        site.gate.set()
    [result] = results(log)
    assert result.is_error
    assert "interrupted" in result.content[0].text
