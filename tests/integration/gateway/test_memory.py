"""Memory over HTTP: whose beta header it takes, who is said to act, and what a worker may touch."""

from __future__ import annotations

from typing import Any

import anthropic
import pytest
from starlette.datastructures import Headers

from chassis.errors import DroverError, Reason
from drover.memory.v1.memory_pb2 import MEMORY_VIEW_FULL, Actor
from drover.session.v1 import session_pb2
from gateway.auth import ApiKeys
from tests.doubles import platform_workers as workers
from tests.doubles.platform import TOKEN
from tests.integration.gateway.conftest import BETA, KEY, Gateway

MEMORY = {"anthropic-beta": "agent-memory-2026-07-22"}
STORES = "/v1/memory_stores"
MEMORIES = f"{STORES}/memstore_1/memories"
OWN: Any = ApiKeys([KEY], TOKEN).caller(Headers({"x-api-key": KEY}))
API_KEY_ID: str = OWN.key_id
WORKER = {"x-api-key": workers.WORK_TOKEN, **MEMORY}


async def test_the_official_client_reaches_every_route_of_memory(gateway: Gateway) -> None:
    asked = gateway.platform.plain
    async with anthropic.AsyncAnthropic(
        base_url=gateway.url, api_key=KEY, _strict_response_validation=True
    ) as client:
        stores, memories = client.beta.memory_stores, client.beta.memory_stores.memories
        assert (await stores.create(name="Notes", metadata={"k": "v"})).id == "memstore_1"
        await stores.update("memstore_1", description=None, metadata={"k": None})
        assert set(asked.last.update_mask.paths) == {"description", "metadata"}
        await stores.retrieve("memstore_1")
        assert [one.id async for one in stores.list(include_archived=True)] == []
        await stores.archive("memstore_1")
        await memories.create("memstore_1", path="/a.md", content="a", view="full")
        assert asked.last.view == MEMORY_VIEW_FULL
        precondition: Any = {"type": "content_sha256", "content_sha256": "0" * 64}
        await memories.update(
            "mem_1", memory_store_id="memstore_1", path="/b.md", precondition=precondition
        )
        assert asked.last.precondition.content_sha256.content_sha256 == "0" * 64
        await memories.retrieve("mem_1", memory_store_id="memstore_1")
        listed = memories.list("memstore_1", path_prefix="/a/", depth=1, view="basic")
        assert [one async for one in listed] == []
        await memories.delete(
            "mem_1", memory_store_id="memstore_1", expected_content_sha256="0" * 64
        )
        versions = stores.memory_versions
        await versions.retrieve("memver_1", memory_store_id="memstore_1")
        assert [one async for one in versions.list("memstore_1", operation="deleted")] == []
        await versions.redact("memver_1", memory_store_id="memstore_1")
        assert asked.last.actor.api_actor.api_key_id == API_KEY_ID
        await stores.delete("memstore_1")


async def test_either_beta_header_will_do_and_both_together_not(gateway: Gateway) -> None:
    both = {"anthropic-beta": f"{MEMORY['anthropic-beta']},{BETA['anthropic-beta']}"}
    for path in (STORES, MEMORIES, f"{STORES}/memstore_1/memory_versions"):
        for headers, status in ((MEMORY, 200), (BETA, 200), (both, 400)):
            assert (await gateway.http.get(path, headers=headers)).status_code == status
        none = await gateway.http.get(path, headers={"anthropic-beta": ""})
        assert none.status_code == 404
        assert "agent-memory-2026-07-22" in none.json()["error"]["message"]
    for headers in (BETA, {"anthropic-beta": ""}):
        files = await gateway.http.get("/v1/files?scope_id=sesn_1", headers=headers)
        assert files.status_code == 200
        assert gateway.platform.files.last.scope_id == "sesn_1"


async def test_whoever_acts_is_told_to_the_service_and_cannot_say_otherwise(
    gateway: Gateway,
) -> None:
    asked = gateway.platform.plain
    gateway.platform.sessions.lent["sesn_1"] = lent()
    memory = {"path": "/a.md", "content": "a"}
    for headers, actor in (
        (MEMORY, Actor(api_actor={"api_key_id": API_KEY_ID})),
        (WORKER, Actor(session_actor={"session_id": "sesn_1"})),
    ):
        for verb, path, body in (
            ("POST", MEMORIES, memory),
            ("POST", f"{MEMORIES}/mem_1", {"content": "b"}),
            ("DELETE", f"{MEMORIES}/mem_1", None),
        ):
            answer = await gateway.http.request(verb, path, json=body, headers=headers)
            assert answer.status_code == 200
            assert asked.last.actor == actor
    forged = memory | {"actor": {"type": "session_actor", "session_id": "sesn_2"}}
    answer = await gateway.http.post(MEMORIES, json=forged, headers=MEMORY)
    assert (answer.status_code, answer.json()["error"]["message"]) == (400, "actor: unknown field")


async def test_a_conflict_names_what_is_in_the_way_and_is_not_repeated(gateway: Gateway) -> None:
    in_the_way = {"conflicting_memory_id": "mem_2", "conflicting_path": "/a"}
    for code, told in (
        ("memory_path_conflict_error", in_the_way),
        ("memory_precondition_failed_error", {}),
    ):
        gateway.platform.plain.failure = DroverError(
            Reason.CONFLICT, "in the way", error_code=code, **told
        )
        body = {"path": "/a/b.md", "content": ""}
        answer = await gateway.http.post(MEMORIES, json=body, headers=MEMORY)
        assert (answer.status_code, answer.headers["x-should-retry"]) == (409, "false")
        assert answer.json()["error"] == {"type": code, "message": "in the way"} | told


def lent() -> Any:
    """A session's stores: one to write, one to read; and a skill."""
    made = session_pb2.Session()
    made.resources.add().memory_store.memory_store_id = "memstore_1"
    read_only = made.resources.add().memory_store
    read_only.memory_store_id, read_only.access = "memstore_2", "read_only"
    made.resources.add().file.file_id = "file_1"
    skill = made.agent.skills.add().custom
    skill.skill_id, skill.version = "skill_1", "skver_1"
    return made


@pytest.mark.parametrize("key", [workers.WORK_TOKEN, workers.OTHER_WORK_TOKEN])
async def test_a_worker_touches_what_its_session_was_lent_and_nothing_else(
    gateway: Gateway, key: str
) -> None:
    gateway.platform.sessions.lent["sesn_1"] = lent()
    own = key == workers.WORK_TOKEN
    new = {"path": "/a.md", "content": "a"}
    for verb, path, status in (
        ("GET", f"{STORES}/memstore_1", 200),
        ("POST", f"{STORES}/memstore_1/memories", 200),
        ("GET", f"{STORES}/memstore_2/memories", 200),
        ("POST", f"{STORES}/memstore_2/memories", 403),
        ("DELETE", f"{STORES}/memstore_2/memories/mem_1", 403),
        ("GET", f"{STORES}/memstore_3", 404),
        ("POST", f"{STORES}/memstore_3/memories", 404),
        ("GET", "/v1/skills/skill_1/versions/skver_1", 200),
        ("GET", "/v1/skills/skill_1/versions/latest/content", 200),
        ("GET", "/v1/skills/skill_1/versions/skver_2", 404),
        ("GET", "/v1/skills/skill_2/versions/latest", 404),
    ):
        headers = {"x-api-key": key, **MEMORY}
        body = new if verb == "POST" else None
        answer = await gateway.http.request(verb, path, json=body, headers=headers)
        assert answer.status_code == (status if own else 404), path
    asked = [type(one).__name__ for one in gateway.platform.sessions.requests]
    assert asked.count("GetSessionRequest") == 1


async def test_what_was_not_lent_answers_in_the_words_of_the_service(gateway: Gateway) -> None:
    gateway.platform.sessions.lent["sesn_1"] = lent()
    for path, message in (
        (f"{STORES}/memstore_3", "no memory store 'memstore_3'"),
        ("/v1/skills/skill_2/versions/latest", "no skill 'skill_2'"),
        ("/v1/skills/skill_1/versions/skver_2", "skill 'skill_1' has no version 'skver_2'"),
    ):
        answer = await gateway.http.get(path, headers=WORKER)
        assert answer.json()["error"]["message"] == message


async def test_a_stopped_items_token_opens_nothing_that_was_lent(gateway: Gateway) -> None:
    gateway.platform.sessions.lent["sesn_1"] = lent()
    assert (await gateway.http.get(MEMORIES, headers=WORKER)).status_code == 200
    gateway.platform.works.stop(workers.WORK_TOKEN)
    assert (await gateway.http.get(MEMORIES, headers=WORKER)).status_code == 401
