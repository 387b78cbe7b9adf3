"""F21: events posted while the session runs, by 100 at once: all taken, none lost, in order."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from typing import Any

import httpx2
from anthropic import Anthropic

from tests.doubles.messages_api import Gate, ToolUse, text, tools
from tests.e2e.driving import TOOLSET, history, new_session, send, user_message
from tests.e2e.stack import Stack
from tests.fault.histories.checker import check
from tests.fault.histories.history import Entry, History, Outcome, Write

POSTERS = 100
RESULTS = 30
INTERRUPT = {"type": "user.interrupt"}
ASK = {
    "type": "custom",
    "name": "ask",
    "description": "Asks somebody.",
    "input_schema": {"type": "object", "properties": {"n": {"type": "integer"}}},
}
LANES = {
    "user.message": "queued",
    "user.custom_tool_result": "results",
    "user.interrupt": "interrupts",
}


def result(call_id: str) -> dict[str, Any]:
    answer = [{"type": "text", "text": f"answer to {call_id}"}]
    return {"type": "user.custom_tool_result", "custom_tool_use_id": call_id, "content": answer}


async def post_all(stack: Stack, session: str, plans: list[list[list[dict[str, Any]]]]) -> History:
    """Has every plan's requests sent one after the other, and the plans all at once."""
    posted = History()
    limits = httpx2.Limits(max_connections=None)

    async def poster(client: httpx2.AsyncClient, name: str, plan: list[Any]) -> None:
        for events in plan:
            began = time.monotonic()
            answer = await client.post(f"/v1/sessions/{session}/events", json={"events": events})
            assert answer.status_code == 200, answer.text
            keys = tuple(event["id"] for event in answer.json()["data"])
            assert len(keys) == len(events)
            lane = LANES[events[0]["type"]]
            ended = time.monotonic()
            posted.writes.append(
                Write(name, session, lane, keys, Outcome.ACKNOWLEDGED, began, ended)
            )

    async with (
        httpx2.AsyncClient(
            base_url=stack.url, headers=stack.headers, limits=limits, timeout=60, trust_env=False
        ) as client,
        asyncio.TaskGroup() as tasks,
    ):
        for number, plan in enumerate(plans):
            tasks.create_task(poster(client, f"poster {number}", plan))
    return posted


def judged(client: Anthropic, session: str, posted: History) -> Counter[str]:
    """Checks what was posted against the log at rest; answers how much of each type there is."""
    log = history(client, session)
    assert all(event.processed_at for event in log)
    posted.logs[session] = tuple(
        Entry(place, event.id, event.id, int(event.processed_at.timestamp() * 1e6))
        for place, event in enumerate(log, start=1)
    )
    assert [str(violation) for violation in check(posted)] == []
    return Counter(event.type for event in log)


def at_rest(stack: Stack, client: Anthropic, session: str) -> None:
    """Waits until the session is idle and nothing waits in its inbox."""

    def resting() -> bool:
        last = list(client.beta.sessions.events.list(session, order="desc", limit=1))
        idle = client.beta.sessions.retrieve(session).status == "idle"
        return idle and last[0].type == "session.status_idle"

    stack.wait_for(resting, "rest", 60)


def test_messages_and_results_posted_while_a_tool_runs_are_all_taken_in_order(
    either_stack: Stack,
) -> None:
    stack = either_stack
    stack.model.script(
        tools(
            ToolUse("bash", {"command": "until [ -e /workspace/go ]; do sleep 0.05; done"}),
            *(ToolUse("ask", {"n": n}) for n in range(RESULTS)),
        )
    )
    stack.model.default(lambda _: text("taken"))
    with stack.client() as client:
        session = new_session(client, tools=[TOOLSET, ASK]).id
        send(client, session, "begin")
        asked: list[str] = []

        def all_asked() -> bool:
            found = client.beta.sessions.events.list(session, types=["agent.custom_tool_use"])
            asked[:] = [event.id for event in found]
            return len(asked) == RESULTS and stack.workspace(session).exists()

        stack.wait_for(all_asked, "the calls")
        plans = [[[result(call)]] for call in asked]
        for number in range(RESULTS, POSTERS):
            one, two, three = (user_message(f"{number} {part}") for part in "abc")
            plans.append([[one, two], [three]] if number % 10 == 0 else [[one]])
        posted = asyncio.run(post_all(stack, session, plans))
        assert client.beta.sessions.retrieve(session).status == "running"
        (stack.workspace(session) / "go").touch()
        at_rest(stack, client, session)
        counts = judged(client, session, posted)
    assert counts["user.custom_tool_result"] == RESULTS
    posters = range(RESULTS, POSTERS)
    assert counts["user.message"] == 1 + sum(3 if n % 10 == 0 else 1 for n in posters)


def test_messages_and_interrupts_posted_while_the_model_thinks_are_all_taken_in_order(
    either_stack: Stack,
) -> None:
    stack, gate = either_stack, Gate()
    stack.model.script(text("never said").stall(gate))
    stack.model.default(lambda _: text("taken"))
    with stack.client() as client:
        session = new_session(client, tools=()).id
        send(client, session, "begin")
        gate.wait_reached()
        plans = [
            [[INTERRUPT]] * 3 if number % 5 == 0 else [[user_message(f"{number}")]]
            for number in range(POSTERS)
        ]
        posted = asyncio.run(post_all(stack, session, plans))
        gate.release()
        at_rest(stack, client, session)
        counts = judged(client, session, posted)
    assert counts["user.interrupt"] == 3 * POSTERS / 5
    assert counts["user.message"] == 1 + POSTERS * 4 / 5
