"""The eight routes of the work queue by the official client, strictly, over the real services."""

from __future__ import annotations

import base64
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anthropic
import httpx2
import pytest

from chassis.grpc.channel import open_channel
from drover.event.v1 import event_pb2
from drover.session.v1 import lease_pb2
from drover.session.v1.session_service_pb2_grpc import SessionServiceStub
from gateway.main import build
from gateway.settings import GatewaySettings
from services.registry import main as registry
from services.session import main as session
from tests.doubles.session_events import custom_use, idle, running
from tests.doubles.session_stack import Lease
from tests.doubles.standing import PromptExit
from tests.integration.gateway.conftest import BETA, KEY

HELLO = {"type": "user.message", "content": [{"type": "text", "text": "hello"}]}
LATER = 60_000
"""Milliseconds in which no test's item is taken from a worker that was slow to acknowledge it."""
NOWHERE = "127.0.0.1:1"
"""Where a process would listen that these routes have no need of."""


@dataclass
class Farm:
    """An environment of somebody's own, with its owner's client and a worker's."""

    owner: anthropic.AsyncAnthropic
    worker: anthropic.AsyncAnthropic
    http: httpx2.AsyncClient
    sessions: SessionServiceStub
    environment_id: str
    agent_id: str

    @property
    def queue(self) -> Any:
        """As its owner sees it."""
        return self.owner.beta.environments.work

    @property
    def work(self) -> Any:
        """As its workers see it."""
        return self.worker.beta.environments.work

    @property
    def of(self) -> dict[str, str]:
        return {"environment_id": self.environment_id}

    async def session(self, *events: Any) -> str:
        made = await self.owner.beta.sessions.create(
            agent=self.agent_id, environment_id=self.environment_id, initial_events=events
        )
        return made.id

    async def turn(self, session_id: str, *events: event_pb2.Event) -> None:
        """A brain comes, appends and leaves."""
        lease = await Lease(self.sessions, session_id).open()
        await lease.append(running(), take=lease_pb2.TAKE_INPUT_NEXT)
        assert (await lease.append(*events, release=True)).released
        await lease.close()

    async def claimed(self) -> Any:
        """An item that a worker has acknowledged."""
        item = await self.work.poll(self.environment_id, block_ms=999)
        await self.work.ack(item.id, **self.of)
        return item


@pytest.fixture
async def farm(tmp_path: Path) -> AsyncIterator[Farm]:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "token").write_text("the-installation")
    common: dict[str, Any] = {"data_dir": tmp_path, "reflection": False}
    async with PromptExit() as stack:
        registry_server = await registry.build(registry.RegistrySettings(**common), stack)
        common["registry_address"] = registry_server.address
        session_server = await session.build(session.SessionSettings(**common), stack)
        settings = GatewaySettings(
            **common,
            api_key=KEY,
            session_address=session_server.address,
            hands_address=NOWHERE,
            vault_proxy_address=NOWHERE,
            brain_addresses=(NOWHERE,),
        )
        url = f"http://{(await build(settings, stack)).address}"

        async def client(key: str) -> anthropic.AsyncAnthropic:
            return await stack.enter_async_context(
                anthropic.AsyncAnthropic(
                    base_url=url, api_key=key, max_retries=0, _strict_response_validation=True
                )
            )

        http = await stack.enter_async_context(
            httpx2.AsyncClient(base_url=url, headers={"x-api-key": KEY, **BETA}, timeout=30)
        )
        owner = await client(KEY)
        made = await owner.beta.environments.create(name="farm", config={"type": "self_hosted"})
        agent = await owner.beta.agents.create(name="clerk", model="claude-sonnet-4-5")
        key = (await http.post(f"/v1/environments/{made.id}/keys", json={})).json()["key"]
        channel = open_channel(session_server.address, settings.token())
        stack.push_async_callback(channel.close, None)
        yield Farm(owner, await client(key), http, SessionServiceStub(channel), made.id, agent.id)


async def test_poll_gives_an_item_with_its_secret_or_null(farm: Farm) -> None:
    assert await farm.work.poll(farm.environment_id) is None
    assert await farm.work.poll(farm.environment_id, block_ms=1) is None
    answer = await farm.work.with_raw_response.poll(farm.environment_id)
    assert (answer.status_code, await answer.text()) == (200, "null")
    session_id = await farm.session(HELLO)
    item = await farm.work.poll(
        farm.environment_id, block_ms=999, reclaim_older_than_ms=5000, anthropic_worker_id="w1"
    )
    assert (item.type, item.state, item.environment_id) == ("work", "queued", farm.environment_id)
    assert (item.data.type, item.data.id) == ("session", session_id)
    assert (item.metadata, item.acknowledged_at, item.stopped_at) == ({}, None, None)
    assert item.id.startswith("work_")
    token = json.loads(base64.urlsafe_b64decode(item.secret))["sessions_token"]
    assert token.startswith("drover_work_")
    assert await farm.work.poll(farm.environment_id, reclaim_older_than_ms=LATER) is None


async def test_every_field_is_there_be_it_null(farm: Farm) -> None:
    await farm.session(HELLO)
    item = await farm.work.poll(farm.environment_id)
    found = (await farm.http.get(f"/v1/environments/{farm.environment_id}/work/{item.id}")).json()
    assert found.keys() == {
        "id",
        "type",
        "acknowledged_at",
        "created_at",
        "data",
        "environment_id",
        "latest_heartbeat_at",
        "metadata",
        "secret",
        "started_at",
        "state",
        "stop_requested_at",
        "stopped_at",
    }
    assert found["secret"] is None


@pytest.mark.parametrize("block_ms", [0, 1000])
async def test_poll_waits_for_1_to_999_milliseconds(farm: Farm, block_ms: int) -> None:
    with pytest.raises(anthropic.BadRequestError, match="block_ms"):
        await farm.work.poll(farm.environment_id, block_ms=block_ms)


async def test_ack_starts_an_item_once(farm: Farm) -> None:
    await farm.session(HELLO)
    item = await farm.work.poll(farm.environment_id)
    acked = await farm.work.ack(item.id, **farm.of)
    assert (acked.state, acked.secret) == ("starting", None)
    assert acked.acknowledged_at is not None
    with pytest.raises(anthropic.ConflictError) as refusal:
        await farm.work.ack(item.id, **farm.of)
    assert refusal.value.response.headers["x-should-retry"] == "false"


async def test_heartbeats_keep_the_lease_for_whoever_names_the_last_one(farm: Farm) -> None:
    await farm.session(HELLO)
    item = await farm.claimed()
    first = await farm.work.heartbeat(item.id, **farm.of, expected_last_heartbeat="NO_HEARTBEAT")
    assert (first.type, first.state, first.lease_extended) == ("work_heartbeat", "active", True)
    assert first.ttl_seconds == 300
    second = await farm.work.heartbeat(
        item.id, **farm.of, expected_last_heartbeat=first.last_heartbeat, desired_ttl_seconds=90
    )
    assert second.ttl_seconds == 90
    with pytest.raises(
        anthropic.types.beta.environments.BetaHeartbeatPreconditionFailedError
    ) as no:
        await farm.work.heartbeat(item.id, **farm.of, expected_last_heartbeat="NO_HEARTBEAT")
    assert no.value.status_code == 412
    assert no.value.error_code == "heartbeat_precondition_failed"
    current = no.value.details.current_state
    assert (current.last_heartbeat, current.lease_extended) == (second.last_heartbeat, False)
    assert (current.state, current.ttl_seconds) == ("active", 90)
    kept = await farm.queue.retrieve(item.id, **farm.of)
    assert (kept.state, kept.latest_heartbeat_at) == ("active", second.last_heartbeat)
    assert kept.started_at == first.last_heartbeat


async def test_the_items_own_token_keeps_and_stops_it(farm: Farm) -> None:
    session_id = await farm.session(HELLO)
    item = await farm.claimed()
    token = json.loads(base64.urlsafe_b64decode(item.secret))["sessions_token"]
    own = farm.worker.copy(api_key=token)
    beat = await own.beta.environments.work.heartbeat(item.id, **farm.of)
    assert beat.lease_extended
    assert (await own.beta.sessions.retrieve(session_id)).id == session_id
    stopping = await own.beta.environments.work.stop(item.id, **farm.of)
    assert (stopping.state, stopping.stopped_at) == ("stopping", None)
    assert stopping.stop_requested_at is not None
    beat = await own.beta.environments.work.heartbeat(
        item.id, **farm.of, expected_last_heartbeat=beat.last_heartbeat
    )
    assert (beat.state, beat.lease_extended) == ("stopping", False)
    stopped = await own.beta.environments.work.stop(item.id, **farm.of, force=True)
    assert stopped.state == "stopped"
    assert stopped.stopped_at is not None
    with pytest.raises(anthropic.ConflictError):
        await own.beta.environments.work.stop(item.id, **farm.of, force=True)


async def test_item_that_is_stopped_with_an_open_call_is_polled_again(farm: Farm) -> None:
    session_id = await farm.session(HELLO)
    item = await farm.claimed()
    token = json.loads(base64.urlsafe_b64decode(item.secret))["sessions_token"]
    await farm.turn(session_id, custom_use("sevt_1"), idle("sevt_1"))
    assert (await farm.queue.stop(item.id, **farm.of, force=True)).state == "queued"
    with pytest.raises(anthropic.AuthenticationError):
        await farm.worker.copy(api_key=token).beta.environments.work.heartbeat(item.id, **farm.of)
    again = await farm.work.poll(farm.environment_id)
    assert (again.id, again.acknowledged_at) == (item.id, None)
    assert again.secret != item.secret


async def test_metadata_is_patched_and_refused_by_its_own_class(farm: Farm) -> None:
    await farm.session(HELLO)
    item = await farm.work.poll(farm.environment_id)
    changed = await farm.queue.update(item.id, **farm.of, metadata={"a": "1", "b": "2"})
    assert changed.metadata == {"a": "1", "b": "2"}
    changed = await farm.queue.update(item.id, **farm.of, metadata={"a": None, "c": "3"})
    assert changed.metadata == {"b": "2", "c": "3"}
    for wrong in ({"k" * 65: "v"}, {"k": "v" * 513}, {f"k{n}": "v" for n in range(17)}):
        with pytest.raises(anthropic.types.beta.BetaInvalidMetadataError) as refusal:
            await farm.queue.update(item.id, **farm.of, metadata=wrong)
        assert refusal.value.status_code == 400
    assert (await farm.queue.retrieve(item.id, **farm.of)).metadata == {"b": "2", "c": "3"}


async def test_stats_count_what_waits_and_who_polls(farm: Farm) -> None:
    empty = await farm.queue.stats(farm.environment_id)
    assert (empty.type, empty.depth, empty.pending) == ("work_queue_stats", 0, 0)
    assert (empty.oldest_queued_at, empty.workers_polling) == (None, 0)
    for _ in range(3):
        await farm.session(HELLO)
    first = await farm.work.poll(farm.environment_id, anthropic_worker_id="w1")
    await farm.work.poll(farm.environment_id, anthropic_worker_id="w2", reclaim_older_than_ms=LATER)
    full = await farm.queue.stats(farm.environment_id)
    assert (full.depth, full.pending, full.workers_polling) == (1, 2, 2)
    assert full.oldest_queued_at == first.created_at
    with pytest.raises(anthropic.types.beta.BetaEnvironmentNotFoundError):
        await farm.queue.stats("env_none")


async def test_list_goes_through_all_pages(farm: Farm) -> None:
    made = [await farm.session(HELLO) for _ in range(5)]
    pages = farm.work.list(farm.environment_id, limit=2)
    assert [one.data.id async for one in pages] == made[::-1]
    first = await farm.work.list(farm.environment_id, limit=2)
    assert (len(first.data), first.has_next_page()) == (2, True)


async def test_unknown_item_is_not_found(farm: Farm) -> None:
    for call in (
        farm.queue.retrieve("work_none", **farm.of),
        farm.queue.update("work_none", **farm.of, metadata={}),
        farm.queue.stop("work_none", **farm.of),
        farm.work.ack("work_none", **farm.of),
        farm.work.heartbeat("work_none", **farm.of),
    ):
        with pytest.raises(anthropic.NotFoundError):
            await call
