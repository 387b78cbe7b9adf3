"""The official client, unmodified and strict, against the gateway."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import anthropic
import pytest

from chassis.errors import DroverError, Reason
from drover.session.v1 import session_service_pb2 as sessions
from tests.doubles.platform import message
from tests.integration.gateway.conftest import KEY, Gateway


@pytest.fixture
async def client(gateway: Gateway) -> AsyncIterator[anthropic.AsyncAnthropic]:
    async with anthropic.AsyncAnthropic(
        base_url=gateway.url, api_key=KEY, _strict_response_validation=True
    ) as made:
        yield made


@pytest.fixture
def beta(client: anthropic.AsyncAnthropic) -> Any:
    return client.beta


async def test_agents(gateway: Gateway, beta: Any) -> None:
    asked = gateway.platform.agents
    made = await beta.agents.create(
        model="m",
        name="clerk",
        tools=[
            {"type": "agent_toolset_20260401"},
            {
                "type": "custom",
                "name": "f",
                "description": "d",
                "input_schema": {"type": "object", "properties": {"b": {}, "a": {}}},
            },
        ],
        metadata={"k": "v"},
    )
    assert (made.name, made.metadata, made.model.id) == ("clerk", {"k": "v"}, "m")
    assert list(made.tools[1].input_schema.properties) == ["b", "a"]
    assert (await beta.agents.retrieve("agent_7", version=3)).id == "agent_7"
    assert asked.last.version == 3
    await beta.agents.update("agent_7", version=1, system=None, metadata={"k": None})
    assert set(asked.last.update_mask.paths) == {"version", "system", "metadata"}
    assert [one.id async for one in beta.agents.list(limit=5, include_archived=True)] == ["agent_1"]
    assert [one.id async for one in beta.agents.versions.list("agent_7")] == ["agent_1"]
    assert (await beta.agents.archive("agent_7")).archived_at is not None


async def test_environments(gateway: Gateway, beta: Any) -> None:
    made = await beta.environments.create(
        name="e", config={"type": "cloud", "networking": {"type": "unrestricted"}}
    )
    assert made.config.packages.pip == []
    assert (await beta.environments.retrieve("env_7")).id == "env_7"
    await beta.environments.update("env_7", description=None)
    assert list(gateway.platform.environments.last.update_mask.paths) == ["description"]
    assert [one.id async for one in beta.environments.list()] == ["env_1"]
    assert (await beta.environments.archive("env_7")).type == "environment"
    deleted = await beta.environments.delete("env_7")
    assert (deleted.id, deleted.type) == ("env_7", "environment_deleted")


async def test_sessions_events_and_threads(gateway: Gateway, beta: Any) -> None:
    asked = gateway.platform.sessions
    made = await beta.sessions.create(agent="agent_1", environment_id="env_1", title="t")
    assert asked.last.agent.agent.id == "agent_1"
    assert made.status == "idle"
    assert (await beta.sessions.retrieve("sesn_7")).id == "sesn_7"
    await beta.sessions.update("sesn_7", metadata={"a": "b"})
    assert [one.id async for one in beta.sessions.list(statuses=["idle", "running"])] == ["sesn_1"]
    assert list(asked.last.statuses) == [1, 2]

    sent = await beta.sessions.events.send(
        "sesn_1", events=[{"type": "user.message", "content": [{"type": "text", "text": "hi"}]}]
    )
    assert sent.data[0].id == "sevt_new0"
    assert sent.data[0].processed_at is None
    asked.log = [message("sevt_1", "one", seq=1), message("sevt_2", "two", seq=2)]
    listed = [
        event.id async for event in beta.sessions.events.list("sesn_1", types=["user.message"])
    ]
    assert listed == ["sevt_1", "sevt_2"]
    assert list(asked.last.types) == ["user.message"]

    assert [one.id async for one in beta.sessions.threads.list("sesn_1")] == ["sthr_1"]
    assert (await beta.sessions.threads.retrieve("sthr_1", session_id="sesn_1")).id == "sthr_1"
    assert [
        event.id async for event in beta.sessions.threads.events.list("sthr_1", session_id="sesn_1")
    ] == ["sevt_1", "sevt_2"]
    assert (await beta.sessions.archive("sesn_1")).status == "terminated"
    assert (await beta.sessions.delete("sesn_1")).type == "session_deleted"


async def test_a_stream_gives_typed_events(gateway: Gateway, beta: Any) -> None:
    feed = gateway.platform.sessions
    stream = await beta.sessions.events.stream("sesn_1", event_deltas=["agent.message"])
    assert list(feed.last.event_deltas) == ["agent.message"]
    await feed.publish(message("sevt_1", "x"), message("sevt_1", "x", seq=1))
    await feed.end()

    events = [event async for event in stream]

    assert [event.id for event in events] == ["sevt_1", "sevt_1"]
    assert [event.processed_at is None for event in events] == [True, False]


async def test_a_thread_has_a_stream_of_its_own(gateway: Gateway, beta: Any) -> None:
    feed = gateway.platform.sessions
    stream = await beta.sessions.threads.events.stream("sthr_1", session_id="sesn_1")
    assert isinstance(feed.last, sessions.StreamThreadEventsRequest)
    assert (feed.last.session_id, feed.last.thread_id) == ("sesn_1", "sthr_1")
    await feed.publish(message("sevt_1", "x", seq=1))
    await feed.end()
    assert [event.id async for event in stream] == ["sevt_1"]


async def test_the_synchronous_client_drives_it_too(gateway: Gateway) -> None:
    feed = gateway.platform.sessions

    def drive() -> list[str]:
        with anthropic.Anthropic(
            base_url=gateway.url, api_key=KEY, _strict_response_validation=True
        ) as client:
            client.beta.agents.create(model="m", name="clerk")
            client.beta.sessions.events.send(
                "sesn_1", events=[{"type": "user.interrupt"}], betas=["skills-2025-10-02"]
            )
            with client.beta.sessions.events.stream("sesn_1") as stream:
                return [event.type for event in stream]

    async with asyncio.TaskGroup() as group:
        driving = group.create_task(asyncio.to_thread(drive))
        await feed.until(lambda: feed.opened == 1)
        await feed.publish(message("sevt_1", "x", seq=1))
        await feed.end()
    assert driving.result() == ["user.message"]


@pytest.mark.parametrize(
    ("failure", "raised"),
    [
        (DroverError(Reason.INVALID_ARGUMENT, "x: y"), anthropic.BadRequestError),
        (DroverError(Reason.NOT_FOUND, "no"), anthropic.NotFoundError),
        (DroverError(Reason.VERSION_MISMATCH, "no"), anthropic.ConflictError),
        (DroverError(Reason.INTERNAL, "internal error"), anthropic.InternalServerError),
    ],
)
async def test_what_would_fail_again_is_asked_once(
    gateway: Gateway, beta: Any, failure: DroverError, raised: type[anthropic.APIStatusError]
) -> None:
    gateway.platform.agents.failure = failure
    with pytest.raises(raised) as error:
        await beta.agents.retrieve("agent_1")
    assert len(gateway.platform.agents.requests) == 1
    assert error.value.request_id == error.value.body["request_id"]
    assert error.value.request_id.startswith("req_01")


async def test_what_may_succeed_is_tried_again(gateway: Gateway, beta: Any) -> None:
    gateway.platform.agents.failure = DroverError(Reason.UNAVAILABLE, "not now", retry_after=0.01)
    assert (await beta.agents.retrieve("agent_1")).id == "agent_1"
    assert len(gateway.platform.agents.requests) == 2


async def test_a_body_over_32_mb_is_refused_to_the_client_that_sends_it(beta: Any) -> None:
    with pytest.raises(anthropic.APIStatusError) as error:
        await beta.agents.create(model="m", name="n", system="x" * (33 * 1024 * 1024))
    assert error.value.status_code == 413
    assert error.value.body["error"]["type"] == "request_too_large"


async def test_rules_of_the_contract_name_the_path(beta: Any) -> None:
    with pytest.raises(anthropic.BadRequestError, match=r"events\.0\.content"):
        await beta.sessions.events.send("s", events=[{"type": "user.message", "content": []}])
