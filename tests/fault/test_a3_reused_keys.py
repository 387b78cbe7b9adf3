"""A3: an idempotency key that is used for another request is a conflict, and nothing is done."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import anthropic
import httpx2
import pytest
from anthropic import Anthropic

from tests.fault import given
from tests.fault.repeating import Ground, Sender, ground_on, made_whole
from tests.fault.workers import a_key, polled, self_hosted

KEYS = "/v1/environments/{environment_id}/keys"
API_KEYS = "/v1/api_keys"
ITEM = "/v1/environments/{environment_id}/work/{work_id}"
# What needs the vault proxy, which these stacks go without: test_a3_vaults_and_resources.py has it.
ELSEWHERE = ("/v1/vaults", "/v1/sessions/{session_id}/resources")
SAMPLES: dict[str, Callable[[Ground], tuple[str, Any] | tuple[str, Any, str]]] = {
    "POST /v1/agents": lambda _: ("/v1/agents", {"model": "m", "name": "n"}),
    "POST /v1/agents/{agent_id}": lambda ground: (
        f"/v1/agents/{agent(ground)}",
        {"version": 1, "name": "another"},
    ),
    "POST /v1/agents/{agent_id}/archive": lambda ground: (
        f"/v1/agents/{agent(ground)}/archive",
        None,
    ),
    "POST /v1/environments": lambda _: ("/v1/environments", {"name": "sample"}),
    "POST /v1/environments/{environment_id}": lambda ground: (
        f"/v1/environments/{environment(ground, 'changed')}",
        {"description": "another"},
    ),
    "DELETE /v1/environments/{environment_id}": lambda ground: (
        f"/v1/environments/{environment(ground, 'deleted')}",
        None,
    ),
    "POST /v1/environments/{environment_id}/archive": lambda ground: (
        f"/v1/environments/{environment(ground, 'archived')}/archive",
        None,
    ),
    "POST /v1/sessions": lambda ground: (
        "/v1/sessions",
        {"agent": ground.agent_id, "environment_id": ground.environment_id},
    ),
    "POST /v1/sessions/{session_id}": lambda ground: (
        f"/v1/sessions/{ground.new_session()}",
        {"title": "another"},
    ),
    "DELETE /v1/sessions/{session_id}": lambda ground: (
        f"/v1/sessions/{ground.new_session()}",
        None,
    ),
    "POST /v1/sessions/{session_id}/archive": lambda ground: (
        f"/v1/sessions/{ground.new_session()}/archive",
        None,
    ),
    "POST /v1/sessions/{session_id}/fork": lambda ground: (
        f"/v1/sessions/{ground.new_session()}/fork",
        {},
    ),
    "POST /v1/sessions/{session_id}/events": lambda ground: (
        f"/v1/sessions/{ground.new_session()}/events",
        {"events": [message("hello")]},
    ),
    f"DELETE {KEYS}/{{key_id}}": a_key,
    f"DELETE {API_KEYS}/{{api_key_id}}": lambda ground: (f"{API_KEYS}/{api_key(ground)}", None),
    f"POST {ITEM}": lambda ground: (polled(ground)[0], {"metadata": {"k": "v"}}),
    f"POST {ITEM}/ack": lambda ground: of_item(*polled(ground), "ack"),
    f"POST {ITEM}/heartbeat": lambda ground: of_item(
        *polled(ground, acknowledged=True), "heartbeat?expected_last_heartbeat=NO_HEARTBEAT"
    ),
    f"POST {ITEM}/stop": lambda ground: of_item(*polled(ground, acknowledged=True), "stop"),
    **given.SAMPLES,
}
"""A request that works once, for every route that takes a key, with whose it is if not an API
key's. Making a key is apart: its answer is not the same again."""


def agent(ground: Ground) -> str:
    with ground.observer as client:
        return client.beta.agents.create(model="m", name="sample").id


def environment(ground: Ground, name: str) -> str:
    with ground.observer as client:
        return client.beta.environments.create(name=name).id


def api_key(ground: Ground) -> str:
    answer = send(ground, "POST", API_KEYS, {"scopes": ["read"]}, uuid.uuid4().hex)
    made: str = answer.json()["id"]
    return made


def of_item(item: str, key: str, what: str) -> tuple[str, None, str]:
    return f"{item}/{what}", None, key


def message(text: str) -> Any:
    return {"type": "user.message", "content": [{"type": "text", "text": text}]}


def keyed(name: str) -> dict[str, str]:
    return {"Idempotency-Key": name}


@pytest.fixture(scope="module", params=["sqlite", "postgresql"])
def lasting(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Ground]:
    url = None
    if request.param == "postgresql":
        url = request.getfixturevalue("postgres").new_database()
    with ground_on(tmp_path_factory.mktemp("a3"), url) as ground:
        yield ground


@pytest.fixture
def ground(lasting: Ground) -> Iterator[Ground]:
    with made_whole(lasting) as whole:
        yield whole


def create(ground: Ground, title: str, key: str) -> Callable[[Anthropic], Any]:
    return lambda client: client.beta.sessions.create(
        agent=ground.agent_id,
        environment_id=ground.environment_id,
        title=title,
        extra_headers=keyed(key),
    )


def test_another_body_under_the_key_is_a_conflict_that_the_client_does_not_repeat(
    ground: Ground,
) -> None:
    first = Sender(ground).send(create(ground, "one", "reused")).result(30)
    sender = Sender(ground)
    refused = sender.send(create(ground, "another", "reused")).exception(30)
    assert isinstance(refused, anthropic.ConflictError)
    assert refused.status_code == 409
    assert refused.type == "conflict_error"
    assert refused.response.headers["x-should-retry"] == "false"
    assert "Idempotency-Key" in refused.message
    assert len(sender.attempts) == 1
    assert ground.titled("another") == []
    again = Sender(ground).send(create(ground, "one", "reused")).result(30)
    assert again == first
    assert ground.titled("one") == [first.id]


def test_another_path_under_the_key_is_a_conflict(ground: Ground) -> None:
    one, other = ground.new_session(), ground.new_session()
    body = {"events": [message("hello")]}
    answers = [
        send(ground, "POST", f"/v1/sessions/{id_}/events", body, "k") for id_ in (one, other)
    ]
    assert [answer.status_code for answer in answers] == [200, 409]
    assert answers[1].headers["x-should-retry"] == "false"
    assert (len(ground.messages(one)), len(ground.messages(other))) == (1, 0)


def test_of_different_requests_at_once_under_one_key_one_is_done(ground: Ground) -> None:
    session_id = ground.new_session()
    path = f"/v1/sessions/{session_id}/events"

    def one(number: int) -> httpx2.Response:
        body = {"events": [message(f"text {number % 2}")]}
        return send(ground, "POST", path, body, "raced", gateway=f"gateway-{1 + number // 2 % 2}")

    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(one, range(8)))
    done = [answer for answer in answers if answer.status_code == 200]
    assert sorted(answer.status_code for answer in answers) == [200] * 4 + [409] * 4
    assert len({answer.content for answer in done}) == 1
    assert sum("idempotent-replayed" not in answer.headers for answer in done) == 1
    assert len(ground.messages(session_id)) == 1


@pytest.mark.parametrize("route", SAMPLES)
def test_every_route_that_takes_a_key_gives_its_answer_again(ground: Ground, route: str) -> None:
    path, body, *rest = SAMPLES[route](ground)
    whose = rest[0] if rest else ""
    verb, name = route.partition(" ")[0], route.replace(" ", "_")
    first = send(ground, verb, path, body, name, whose=whose)
    again = send(ground, verb, path, body, name, whose=whose, gateway="gateway-2")
    assert first.status_code == 200, first.text
    assert "idempotent-replayed" not in first.headers
    assert again.headers["idempotent-replayed"] == "true"
    assert (again.status_code, again.content) == (first.status_code, first.content)
    path += "&beta=true" if "?" in path else "?beta=true"
    assert send(ground, verb, path, body, name, whose=whose).status_code == 409


@pytest.mark.parametrize("kind", ["env", "api"])
def test_a_key_that_is_made_once_is_shown_once(ground: Ground, kind: str) -> None:
    path, body, name = API_KEYS, {"scopes": ["read"]}, f"made-{kind}"
    if kind == "env":
        path, body = KEYS.format(environment_id=self_hosted(ground)), {}
    first, again = (send(ground, "POST", path, body, name, gateway=f"gateway-{n}") for n in (1, 2))
    assert again.headers["idempotent-replayed"] == "true"
    made = first.json()
    assert made.pop("key").startswith(f"drover_{kind}_")
    assert again.json() == made
    assert send(ground, "POST", f"{path}?beta=true", body, name).status_code == 409
    listed = send(ground, "GET", path, None, "none").json()["data"]
    assert made in listed


def test_no_route_that_shows_the_header_is_missing_here(ground: Ground) -> None:
    paths = httpx2.get(f"{ground.fleet.url()}/openapi.json").json()["paths"]
    shown = {
        f"{verb.upper()} {path}"
        for path, verbs in paths.items()
        for verb, operation in verbs.items()
        if any(one["name"] == "Idempotency-Key" for one in operation["parameters"])
    }
    elsewhere = {route for route in shown if any(part in route for part in ELSEWHERE)}
    assert shown - elsewhere == {*SAMPLES, f"POST {KEYS}", f"POST {API_KEYS}"}


def send(
    ground: Ground,
    verb: str,
    path: str,
    body: Any,
    key: str,
    *,
    whose: str = "",
    gateway: str = "gateway-1",
) -> httpx2.Response:
    headers = ground.fleet.headers | keyed(key) | ({"x-api-key": whose} if whose else {})
    url = f"{ground.fleet.url(gateway)}{path}"
    return httpx2.request(verb, url, json=body, headers=headers, timeout=30)
