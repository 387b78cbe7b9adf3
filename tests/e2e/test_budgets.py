"""Budgets by the official SDK against real processes: reached, raised, removed, and what is told.

The scripted model says what each request used, so that costs are known to the cent: Opus 5.5 takes
$4 for a million tokens in and $20 for a million out.
"""

from __future__ import annotations

from typing import Any

import pytest
from anthropic import Anthropic, BadRequestError

from tests.doubles.messages_api import Reply, ToolUse, Usage, text, tools
from tests.e2e.driving import history, new_session, run_turn, send, stamped, user_message
from tests.e2e.stack import BETA, Stack

CENT = Usage(input_tokens=0, output_tokens=500)
FREE = Usage(input_tokens=1, output_tokens=1)


def budget(cents: int) -> dict[str, Any]:
    return {"type": "limit", "max_list_cost": {"amount": str(cents), "currency": "USD"}}


def bash(command: str, usage: Usage = CENT) -> Reply:
    return tools(ToolUse("bash", {"command": command}), usage=usage)


def follow(client: Anthropic, session_id: str, act: Any, until: str = "end_turn") -> list[Any]:
    """What the stream gives from `act` on, up to the idle event with that reason."""
    seen = []
    with client.beta.sessions.events.stream(session_id) as stream:
        act()
        for event in stream:
            seen.append(event)
            if event.type == "session.status_idle" and event.stop_reason.type == until:
                break
    return stamped(seen)


def kinds(events: list[Any]) -> list[str]:
    return [event.type for event in events]


def code_of(error: BadRequestError) -> str | None:
    body: Any = error.body
    return (body["error"].get("details") or {}).get("error_code")


def test_session_pauses_at_its_budget_and_goes_on_by_itself_when_it_is_raised(stack: Stack) -> None:
    stack.model.script(bash("echo one"), bash("echo two"), text("done", usage=FREE))
    with stack.client(_strict_response_validation=True) as client:
        session = new_session(client, budget=budget(2))
        assert session.budget.max_list_cost.amount == "2"
        seen = stamped(run_turn(client, session.id, "work"))
        assert kinds(seen)[-4:] == [
            "agent.tool_result",
            "session.thread_status_idle",
            "session.usage",
            "session.status_idle",
        ]
        thread, usage, idle = seen[-3:]
        assert thread.stop_reason.type == idle.stop_reason.type == "budget_reached"
        assert usage.budget.max_list_cost.amount == "2"
        assert usage.usage.list_cost.amount == "2"
        paused = client.beta.sessions.retrieve(session.id)
        assert (paused.status, paused.usage.list_cost) == ("idle", usage.usage.list_cost)
        assert len(stack.model.requests) == 2

        def raise_it() -> None:
            changed = client.beta.sessions.update(session.id, budget=budget(3))
            assert changed.budget.max_list_cost.amount == "3"

        resumed = follow(client, session.id, raise_it)
        assert kinds(resumed)[:3] == [
            "session.updated",
            "session.status_running",
            "session.thread_status_running",
        ]
        assert resumed[0].budget.max_list_cost.amount == "3"
        # Where it was: with the last result, and nothing that was said again.
        sent = stack.model.requests[-1].body["messages"]
        assert "two" in str(sent[-1]["content"])
        assert [message["role"] for message in sent].count("user") == 3


def test_removing_the_budget_lets_the_work_go_on_and_is_final(stack: Stack) -> None:
    stack.model.script(bash("echo one"), text("done", usage=CENT))
    with stack.client(_strict_response_validation=True) as client:
        session = new_session(client, budget=budget(1))
        run_turn(client, session.id, "work")
        resumed = follow(
            client, session.id, lambda: client.beta.sessions.update(session.id, budget=None)
        )
        assert resumed[0].type == "session.updated"
        assert resumed[0].budget is None
        assert "budget" in resumed[0].model_fields_set
        assert resumed[-2].budget is None
        assert client.beta.sessions.retrieve(session.id).budget is None
        with pytest.raises(BadRequestError) as refused:
            client.beta.sessions.update(session.id, budget=budget(100))
        assert code_of(refused.value) == "budget_create_only"


def test_turn_that_ends_at_the_cap_says_so_and_more_budget_takes_the_next_message(
    stack: Stack,
) -> None:
    stack.model.script(text("dear", usage=CENT), text("more", usage=FREE))
    with stack.client(_strict_response_validation=True) as client:
        session = new_session(client, budget=budget(1))
        seen = stamped(run_turn(client, session.id, "say"))
        assert seen[-3].stop_reason.type == "end_turn"
        assert seen[-1].stop_reason.type == "budget_reached"
        with pytest.raises(BadRequestError) as refused:
            send(client, session.id, "again")
        for kind in ("tool_confirmation", "tool_result", "custom_tool_result", "interrupt"):
            assert f"user.{kind}" in str(refused.value)
        before = history(client, session.id)
        interrupt: Any = {"type": "user.interrupt"}
        answered = client.beta.sessions.events.send(session.id, events=[interrupt]).data
        assert answered
        assert answered[0].id
        with pytest.raises(BadRequestError):
            client.beta.sessions.events.send(session.id, events=[interrupt, user_message("no")])
        assert history(client, session.id) == before

        def raise_and_say() -> None:
            client.beta.sessions.update(session.id, budget=budget(10))
            send(client, session.id, "again")

        with client.beta.sessions.events.stream(session.id) as stream:
            raise_and_say()
            for event in stream:
                if event.type == "agent.message":
                    break
        assert event.content[0].text == "more"


def test_calls_that_wait_for_people_outrank_the_budget(stack: Stack) -> None:
    ask: Any = {
        "type": "custom",
        "name": "ask",
        "description": "Asks.",
        "input_schema": {"type": "object"},
    }
    stack.model.script(tools(ToolUse("ask", {}), usage=CENT), text("never", usage=FREE))
    with stack.client(_strict_response_validation=True) as client:
        session = new_session(client, tools=[ask], budget=budget(1))
        seen = stamped(run_turn(client, session.id, "work"))
        assert seen[-1].stop_reason.type == "requires_action"
        call = next(event for event in seen if event.type == "agent.custom_tool_use")
        answer: Any = {
            "type": "user.custom_tool_result",
            "custom_tool_use_id": call.id,
            "content": [{"type": "text", "text": "42"}],
        }
        paused = follow(
            client,
            session.id,
            lambda: client.beta.sessions.events.send(session.id, events=[answer]),
            until="budget_reached",
        )
        assert "span.model_request_start" not in kinds(paused)
        assert len(stack.model.requests) == 1


def test_what_is_told_is_the_sum_of_the_requests_at_list_prices(stack: Stack) -> None:
    used = [
        Usage(input_tokens=1000, output_tokens=2000, cache_creation_input_tokens=4000),
        Usage(input_tokens=50, output_tokens=3000, cache_read_input_tokens=100_000),
        Usage(input_tokens=7, output_tokens=1000),
    ]
    stack.model.script(bash("true", used[0]), bash("true", used[1]), text("end", usage=used[2]))
    with stack.client(_strict_response_validation=True) as client:
        session = new_session(client)
        seen = stamped(run_turn(client, session.id, "work"))
        ends = [event.model_usage for event in seen if event.type == "span.model_request_end"]
        micro_dollars = sum(
            end.input_tokens * 4
            + end.output_tokens * 20
            + end.cache_read_input_tokens / 5
            + end.cache_creation_input_tokens * 5
            for end in ends
        )
        assert micro_dollars == 164_228
        told = seen[-2]
        assert (told.budget, told.usage.list_cost.amount) == (None, "16")
        shown = client.beta.sessions.retrieve(session.id)
        assert shown.usage.model_dump() == told.usage.model_dump()
        assert shown.usage.input_tokens == 1057
        assert shown.usage.cache_creation.ephemeral_5m_input_tokens == 4000
        assert shown.usage.server_tool_use.web_search_requests == 0
        assert shown.stats.active_seconds == shown.usage.active_seconds > 0
        assert shown.stats.duration_seconds >= shown.stats.active_seconds
        (listed,) = [one for one in client.beta.sessions.list(limit=20) if one.id == session.id]
        assert listed.usage == shown.usage
        (thread,) = client.beta.sessions.threads.list(session.id)
        assert thread.usage.list_cost.amount == "16"
        assert thread.usage.active_seconds == thread.stats.active_seconds


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        (budget(0), "budget.max_list_cost.amount: "),
        ({**budget(1), "type": "soft"}, "budget.type: "),
        ({"type": "limit"}, "budget.max_list_cost: "),
        ({"type": "limit", "max_list_cost": {"amount": "25.00", "currency": "USD"}}, "amount: "),
        ({"type": "limit", "max_list_cost": {"amount": "1", "currency": "EUR"}}, "currency: "),
        ({"type": "limit", "max_list_cost": {"amount": 1, "currency": "USD"}}, "amount: "),
    ],
)
def test_budget_that_is_none_is_refused_by_path(stack: Stack, wrong: Any, says: str) -> None:
    with stack.client() as client, pytest.raises(BadRequestError) as refused:
        new_session(client, budget=wrong)
    assert says in str(refused.value)


def test_model_without_a_list_price_takes_no_budget_and_works_without_one(stack: Stack) -> None:
    stack.model.script(text("served"))
    with stack.client(_strict_response_validation=True) as client:
        agent = client.beta.agents.create(name="stranger", model="qwen3:30b")
        environment = new_session(client).environment_id
        options: Any = {"agent": agent.id, "environment_id": environment}
        with pytest.raises(BadRequestError) as refused:
            client.beta.sessions.create(**options, budget=budget(100))
        assert code_of(refused.value) == "model_not_budgetable"
        session = client.beta.sessions.create(**options)
        run_turn(client, session.id, "hello")
        shown = client.beta.sessions.retrieve(session.id).usage
        assert (shown.list_cost, shown.output_tokens) == (None, 5)


def test_budget_is_not_lowered_to_what_is_consumed(stack: Stack) -> None:
    stack.model.script(text("dear", usage=CENT))
    with stack.client(_strict_response_validation=True) as client:
        session = new_session(client, budget=budget(50))
        run_turn(client, session.id, "say")
        with pytest.raises(BadRequestError) as refused:
            client.beta.sessions.update(session.id, budget=budget(1))
        assert code_of(refused.value) == "budget_not_raised"
        assert client.beta.sessions.update(session.id, budget=budget(2)).status == "idle"
        fork: Any = client.post(
            f"/v1/sessions/{session.id}/fork",
            cast_to=object,
            options={"headers": {"anthropic-beta": BETA}},
        )
        assert (fork["budget"], fork["usage"]["list_cost"]) == (budget(2), None)
