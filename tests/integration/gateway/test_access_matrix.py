"""Every route of the API under every kind of key: who may, who may not, and with which words.

The routes are those that the gateway describes, so that a new one is API keys' only until it is
written down here.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import pytest
import structlog

from drover.session.v1 import session_pb2
from tests.doubles import platform_workers as workers
from tests.integration.gateway.conftest import KEY, Gateway

if TYPE_CHECKING:
    from collections.abc import Mapping

API, ENVIRONMENT, WORK = "API key", "environment key", "work token"
SESSIONS: Final = frozenset(
    {"GetSession", "GetEvents", "EmitEvents", "StreamEvents", "StreamEventsAlias"}
)
LENT: Final = frozenset(
    {
        "GetMemoryStore",
        "CreateMemory",
        "GetMemory",
        "UpdateMemory",
        "ListMemories",
        "DeleteMemory",
        "GetSkillVersion",
        "DownloadSkillVersion",
    }
)
ITEM: Final = frozenset({"HeartbeatWork", "StopWork"})
TAKEN: Final[Mapping[str, frozenset[str]]] = {
    **dict.fromkeys(SESSIONS, frozenset({API, ENVIRONMENT, WORK})),
    **dict.fromkeys(LENT, frozenset({API, WORK})),
    **dict.fromkeys(("ListWork", "PollWork", "AckWork"), frozenset({ENVIRONMENT})),
    "HeartbeatWork": frozenset({ENVIRONMENT, WORK}),
    "StopWork": frozenset({API, ENVIRONMENT, WORK}),
}
TYPES: Final = {401: "authentication_error", 403: "permission_error", 404: "not_found_error"}
IDS: Final = {
    "agent_id": "agent_1",
    "api_key_id": "apikey_1",
    "credential_id": "vcrd_1",
    "environment_id": "env_1",
    "file_id": "file_1",
    "key_id": "envkey_1",
    "memory_id": "mem_1",
    "memory_store_id": "memstore_1",
    "memory_version_id": "memver_1",
    "resource_id": "sesrsc_1",
    "session_id": "sesn_1",
    "skill_id": "skill_1",
    "thread_id": "sthr_1",
    "vault_id": "vlt_1",
    "version": "skver_1",
    "work_id": "work_1",
}
TEXT = {"type": "text", "text": "done"}
RESULT = {"type": "user.tool_result", "tool_use_id": "sevt_1", "content": [TEXT]}
BEARER = {"type": "static_bearer", "mcp_server_url": "https://mcp.example.com", "token": "t"}
BODIES: Final[Mapping[str, Any]] = {
    "CreateAgent": {"name": "clerk", "model": "m"},
    "CreateApiKey": {"scopes": ["read"]},
    "UpdateAgent": {"version": 1},
    "CreateEnvironment": {"name": "farm"},
    "CreateSession": {"agent": "agent_1", "environment_id": "env_1"},
    "EmitEvents": {"events": [RESULT]},
    "UpdateWork": {"metadata": {"k": "v"}},
    "AddSessionResource": {"type": "github_repository", "url": "https://github.com/o/r"},
    "UpdateSessionResource": {"authorization_token": "ghp"},
    "CreateVault": {"display_name": "Ada"},
    "CreateCredential": {"auth": BEARER},
    "CreateMemoryStore": {"name": "Notes"},
    "CreateMemory": {"path": "/a.md", "content": "a"},
}
FORMS: Final[Mapping[str, Any]] = {
    "UploadFile": {"file": ("a.txt", b"a")},
    "CreateSkill": {"files[]": ("sums/SKILL.md", b"a")},
    "CreateSkillVersion": {"files[]": ("sums/SKILL.md", b"a")},
}


@dataclass(frozen=True)
class Holder:
    """Who calls: a kind of key, and what its holder gets where that kind is let in.

    `admitted` on routes about an environment or item, `of_sessions` on those about a session or
    what that was lent, and `elsewhere` where the kind is not taken.
    """

    key: str
    kind: str
    admitted: int = 200
    of_sessions: int = 200
    elsewhere: int = 403
    stopped: bool = field(default=False)

    def expected(self, operation: str) -> int:
        if self.kind not in TAKEN.get(operation, frozenset({API})):
            return self.elsewhere
        return self.of_sessions if operation in SESSIONS | LENT else self.admitted


def lent() -> Any:
    """What a session has a store and a skill by."""
    made = session_pb2.Session()
    made.resources.add().memory_store.memory_store_id = "memstore_1"
    skill = made.agent.skills.add().custom
    skill.skill_id, skill.version = "skill_1", "skver_1"
    return made


HOLDERS: Final[Mapping[str, Holder]] = {
    "nobody": Holder("", API, 401, 401, 401),
    "an API key": Holder(KEY, API),
    "an unknown API key": Holder("nope", API, 401, 401, 401),
    "the environment's key": Holder(workers.ENVIRONMENT_KEY, ENVIRONMENT),
    "a revoked key": Holder("drover_env_revoked", ENVIRONMENT, 401, 401, 401),
    "another environment's key": Holder(workers.OTHER_ENVIRONMENT_KEY, ENVIRONMENT, 404, 404),
    "the item's token": Holder(workers.WORK_TOKEN, WORK),
    "an item's last token": Holder("drover_work_last", WORK, 401, 401, 401),
    "another item's token": Holder(workers.OTHER_WORK_TOKEN, WORK, 404, 404),
    "a stopped item's token": Holder(workers.WORK_TOKEN, WORK, 200, 401, stopped=True),
}


@pytest.fixture
def gateway_settings() -> dict[str, Any]:
    return {"failed_keys_per_minute": 10_000}


async def call(gateway: Gateway, verb: str, template: str, operation: str, key: str) -> Any:
    """The status and the error of a request that is right in all else."""
    path = template.format(**IDS)
    headers = {"x-api-key": "", **({"authorization": f"Bearer {key}"} if key else {})}
    form = FORMS.get(operation)
    body = BODIES.get(operation, {}) if verb == "POST" and form is None else None
    sent: Any = {"headers": headers, "json": body, "files": form}
    async with gateway.http.stream(verb.upper(), path, **sent) as response:
        if response.status_code == 200:
            return 200, {}
        await response.aread()
        return response.status_code, response.json()["error"]


async def test_every_route_takes_the_keys_that_it_should_and_no_others(gateway: Gateway) -> None:
    description = (await gateway.http.get("/openapi.json")).json()
    routes = [
        (verb.upper(), template, operation["operationId"])
        for template, verbs in description["paths"].items()
        for verb, operation in verbs.items()
    ]
    assert {name for _, _, name in routes} >= TAKEN.keys() | BODIES.keys() | FORMS.keys()
    gateway.platform.sessions.lent["sesn_1"] = lent()
    wrong = []
    for who, holder in HOLDERS.items():
        if holder.stopped:
            gateway.platform.works.stop(holder.key)
        calls = [call(gateway, *route, holder.key) for route in routes]
        for (_, _, name), (status, error) in zip(routes, await asyncio.gather(*calls), strict=True):
            expected = holder.expected(name)
            if status != expected or (error and error["type"] != TYPES[expected]):
                wrong.append((who, name, expected, status, error))
            if holder.key:
                assert holder.key not in str(error)
    assert wrong == []


@pytest.mark.parametrize("key", [workers.ENVIRONMENT_KEY, workers.WORK_TOKEN])
async def test_workers_send_results_and_nothing_else(gateway: Gateway, key: str) -> None:
    result = {"type": "user.custom_tool_result", "custom_tool_use_id": "sevt_1", "content": [TEXT]}
    for event in (
        {"type": "user.message", "content": [TEXT]},
        {"type": "user.interrupt"},
        {"type": "user.tool_confirmation", "tool_use_id": "sevt_1", "result": "allow"},
        {"type": "system.message", "content": [TEXT]},
    ):
        answer = await gateway.http.post(
            "/v1/sessions/sesn_1/events",
            json={"events": [result, event]},
            headers={"x-api-key": key},
        )
        error = answer.json()["error"]
        assert (answer.status_code, error["type"]) == (403, "permission_error")
        assert error["message"].startswith("events.1.type: ")
        assert "user.tool_result and user.custom_tool_result" in error["message"]
    asked = gateway.platform.sessions.requests
    assert not any(hasattr(request, "events") for request in asked)


@pytest.mark.parametrize(
    ("key", "others", "nobodys"),
    [
        (workers.ENVIRONMENT_KEY, "environments/env_2/work", "environments/env_9/work"),
        (workers.OTHER_WORK_TOKEN, "sessions/sesn_1/events", "sessions/sesn_9/events"),
        (
            workers.OTHER_WORK_TOKEN,
            "environments/env_1/work/work_1/heartbeat",
            "environments/env_1/work/work_9/heartbeat",
        ),
    ],
)
async def test_what_is_not_the_workers_answers_as_what_is_not_there(
    gateway: Gateway, key: str, others: str, nobodys: str
) -> None:
    async def told(path: str) -> str:
        verb = "POST" if path.endswith("heartbeat") else "GET"
        answer = await gateway.http.request(verb, f"/v1/{path}", headers={"x-api-key": key})
        assert answer.status_code == 404
        text = answer.text.replace(answer.headers["request-id"], "REQUEST")
        for part in path.split("/")[1::2]:
            text = text.replace(part, "ID")
        return text

    assert await told(others) == await told(nobodys)


async def test_another_environments_session_answers_in_the_words_of_the_service(
    gateway: Gateway,
) -> None:
    headers = {"x-api-key": workers.OTHER_ENVIRONMENT_KEY}
    answer = await gateway.http.get("/v1/sessions/sesn_1", headers=headers)
    assert answer.json()["error"]["message"] == "session sesn_1 not found"


async def test_a_key_opens_its_own_workspace_only(gateway: Gateway) -> None:
    path = "/v1/environments/env_1/work/poll"
    for named, status in (("wrkspc_default", 200), ("wrkspc_x", 403)):
        headers = {"x-api-key": workers.ENVIRONMENT_KEY, "anthropic-workspace-id": named}
        assert (await gateway.http.get(path, headers=headers)).status_code == status


async def test_a_sessions_environment_is_asked_for_once_and_a_key_every_time(
    gateway: Gateway,
) -> None:
    headers = {"x-api-key": workers.ENVIRONMENT_KEY}
    for _ in range(3):
        await gateway.http.get("/v1/sessions/sesn_1/events", headers=headers)
    asked = [type(one).__name__ for one in gateway.platform.sessions.requests]
    assert asked.count("GetSessionRequest") == 1
    assert len(gateway.platform.environment_keys.requests) == 3


@pytest.mark.parametrize("key", [workers.ENVIRONMENT_KEY, workers.WORK_TOKEN])
async def test_a_workers_repeated_request_is_told_as_one(gateway: Gateway, key: str) -> None:
    headers = {"x-api-key": key, "Idempotency-Key": "once"}
    for _ in range(2):
        await gateway.http.post(
            "/v1/sessions/sesn_1/events", json={"events": [RESULT]}, headers=headers
        )
    api = {"Idempotency-Key": "once"}
    await gateway.http.post("/v1/sessions/sesn_1/events", json={"events": [RESULT]}, headers=api)
    sessions = gateway.platform.sessions
    keys = [k.id for r, k in zip(sessions.requests, sessions.keys, strict=True) if k is not None]
    assert len(keys) == 3
    assert keys[0] == keys[1] != keys[2]


async def test_the_log_names_a_worker_by_an_id_and_nobodys_key(gateway: Gateway) -> None:
    with structlog.testing.capture_logs() as lines:
        for key in (workers.ENVIRONMENT_KEY, workers.WORK_TOKEN, KEY, "drover_env_unknown"):
            await gateway.http.get("/v1/sessions/sesn_1", headers={"x-api-key": key})
    requests = [line for line in lines if line["event"] == "request"]
    assert [line.get("worker") for line in requests] == ["envkey_1", "work_1", None, None]
    for secret in (workers.ENVIRONMENT_KEY, workers.WORK_TOKEN, KEY, "drover_env_unknown"):
        assert secret not in repr(lines)


async def test_while_nobody_can_say_whose_a_key_is_it_opens_nothing(gateway: Gateway) -> None:
    await gateway.platform.stop("registry")
    headers = {"x-api-key": workers.ENVIRONMENT_KEY}
    answer = await gateway.http.get("/v1/environments/env_1/work/poll", headers=headers)
    assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")
