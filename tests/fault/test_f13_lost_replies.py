"""F13: what was committed is not done again when its reply was lost and the request is repeated.

Real processes, on either database: connections cut on either side of a gateway, services and
gateways killed right behind a commit, attempts that are overtaken by their own repetitions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import httpx2
import pytest
from anthropic import Anthropic

from tests.doubles.postgres import Cluster
from tests.doubles.tcp_proxy import Way
from tests.fault.repeating import Ground, Sender, ground_on, holds, made_whole

_ANSWER_SECONDS = 60


@pytest.fixture(scope="module", params=["sqlite", "postgresql"])
def lasting(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Ground]:
    url = None
    if request.param == "postgresql":
        postgres: Cluster = request.getfixturevalue("postgres")
        url = postgres.new_database()
    with ground_on(tmp_path_factory.mktemp("f13"), url) as ground:
        yield ground


@pytest.fixture
def ground(lasting: Ground) -> Iterator[Ground]:
    with made_whole(lasting) as whole:
        yield whole


class Effect:
    """Something that a request does, and how often it was done."""

    def __init__(self, ground: Ground, kind: str, name: str) -> None:
        self._ground = ground
        self._kind = kind
        self._name = name
        self._session_id = ground.new_session() if kind == "send" else ""

    def request(self, client: Anthropic) -> Any:
        if self._kind == "send":
            content = [{"type": "text", "text": self._name}]
            return client.beta.sessions.events.send(
                self._session_id, events=[{"type": "user.message", "content": content}]
            )
        return client.beta.sessions.create(
            agent=self._ground.agent_id,
            environment_id=self._ground.environment_id,
            title=self._name,
        )

    def done(self) -> list[str]:
        """The ids of what was made."""
        if self._kind == "send":
            return self._ground.messages(self._session_id)
        return self._ground.titled(self._name)

    def shown(self, answer: Any) -> list[str]:
        """The ids in an answer."""
        return [event.id for event in answer.data] if self._kind == "send" else [answer.id]


@pytest.fixture(params=["send", "create"])
def effect(request: pytest.FixtureRequest, ground: Ground) -> Effect:
    return Effect(ground, request.param, request.node.name)


def settled(effect: Effect, sender: Sender, answer: Any) -> None:
    """Done once, and answered with what was done."""
    assert effect.shown(answer) == effect.done()
    assert len(effect.done()) == 1
    sender.assert_replayed()


def test_a_reply_cut_before_the_client_is_given_again(ground: Ground, effect: Effect) -> None:
    sender = Sender(ground)
    ground.front.stall(Way.DOWN)
    answer = sender.send(effect.request)
    ground.fleet.wait_for(effect.done, "the commit")
    ground.fleet.wait_for(holds(ground.front, Way.DOWN), "the reply")
    ground.front.cut()
    ground.front.flow(Way.DOWN)
    settled(effect, sender, answer.result(_ANSWER_SECONDS))


def test_a_reply_cut_before_the_gateway_is_given_again(ground: Ground, effect: Effect) -> None:
    sender = Sender(ground)
    ground.back.stall(Way.DOWN)
    answer = sender.send(effect.request)
    ground.fleet.wait_for(effect.done, "the commit")
    ground.back.cut()
    ground.back.flow(Way.DOWN)
    settled(effect, sender, answer.result(_ANSWER_SECONDS))
    assert sender.answers[0].status_code == 503


def test_a_service_killed_behind_its_commit_answers_when_it_is_back(
    ground: Ground, effect: Effect
) -> None:
    sender = Sender(ground)
    ground.back.stall(Way.DOWN)
    answer = sender.send(effect.request)
    ground.fleet.wait_for(effect.done, "the commit")
    ground.fleet.kill("session-1")
    ground.back.cut()  # with what it holds, as if the service had got no further
    ground.back.flow(Way.DOWN)
    ground.fleet.start("session-1")
    settled(effect, sender, answer.result(_ANSWER_SECONDS))


def test_another_gateway_gives_the_answer_of_one_that_was_killed(
    ground: Ground, effect: Effect
) -> None:
    sender = Sender(ground)
    ground.front.stall(Way.DOWN)
    answer = sender.send(effect.request)
    ground.fleet.wait_for(effect.done, "the commit")
    ground.fleet.kill("gateway-1")
    host, _, port = ground.fleet.address("gateway-2").rpartition(":")
    ground.front.target = (host, int(port))
    ground.front.cut()
    ground.front.flow(Way.DOWN)
    settled(effect, sender, answer.result(_ANSWER_SECONDS))


def test_an_attempt_that_its_repetition_overtook_has_no_second_effect(
    ground: Ground, effect: Effect
) -> None:
    sender = Sender(ground)
    ground.back.stall(Way.UP)
    answer = sender.send(effect.request)
    ground.fleet.wait_for(holds(ground.back, Way.UP), "the request")
    before = len(answered_by(ground, "gateway-1"))
    host, _, port = ground.fleet.address("gateway-2").rpartition(":")
    ground.front.target = (host, int(port))
    ground.front.cut()
    made = effect.shown(answer.result(_ANSWER_SECONDS))
    assert "idempotent-replayed" not in sender.answers[-1].headers
    assert effect.done() == made
    ground.back.flow(Way.UP)
    ground.fleet.wait_for(
        lambda: len(answered_by(ground, "gateway-1")) > before, "the end of the first attempt"
    )
    # Unless its connection, on which nothing went for long, was given up meanwhile.
    assert answered_by(ground, "gateway-1")[-1]["status"] in {200, 503}
    assert effect.done() == made


def answered_by(ground: Ground, gateway: str) -> list[dict[str, Any]]:
    lines = ground.fleet.log(gateway, event="request")
    return [line for line in lines if line["method"] == "POST"]


@pytest.mark.parametrize("kind", ["agent", "environment"])
def test_definitions_are_made_once(ground: Ground, kind: str, request: Any) -> None:
    name = request.node.name

    def make(client: Anthropic) -> Any:
        if kind == "agent":
            return client.beta.agents.create(model="m", name=name)
        return client.beta.environments.create(name=name)

    def made() -> list[str]:
        with ground.observer as client:
            listed = client.beta.agents if kind == "agent" else client.beta.environments
            return [one.id for one in listed.list() if one.name == name]

    sender = Sender(ground)
    ground.front.stall(Way.DOWN)
    answer = sender.send(make)
    ground.fleet.wait_for(made, "the commit")
    ground.fleet.wait_for(holds(ground.front, Way.DOWN), "the reply")
    ground.front.cut()
    ground.front.flow(Way.DOWN)
    assert [answer.result(_ANSWER_SECONDS).id] == made()
    sender.assert_replayed()


def test_a_named_request_is_done_once_however_long_its_client_takes(
    ground: Ground, effect: Effect, request: pytest.FixtureRequest
) -> None:
    def named(client: Anthropic) -> Any:
        key = {"Idempotency-Key": f"key-of-{request.node.name}"}
        return effect.request(client.with_options(default_headers=key))

    ground.front.stall(Way.DOWN)
    lost = ground.pool.submit(attempt(ground, named))
    ground.fleet.wait_for(effect.done, "the commit")
    ground.front.cut()
    ground.front.flow(Way.DOWN)
    assert isinstance(lost.exception(_ANSWER_SECONDS), Exception)
    ground.fleet.kill("session-1")
    ground.fleet.start("session-1")
    sender = Sender(ground)
    answer = sender.send(named).result(_ANSWER_SECONDS)
    assert effect.shown(answer) == effect.done()
    assert sender.answers[-1].headers["idempotent-replayed"] == "true"


def attempt(ground: Ground, what: Callable[[Anthropic], Any]) -> Callable[[], Any]:
    """One attempt by a client that does not repeat."""

    def run() -> Any:
        with ground.fleet.client("gateway-1", max_retries=0) as client:
            url = f"http://{ground.front.address}"
            return what(client.with_options(base_url=url))

    return run


def test_alike_requests_that_are_no_repetitions_are_each_done(ground: Ground) -> None:
    session_id = ground.new_session()
    url = f"http://{ground.front.address}/v1/sessions/{session_id}/events"
    content = [{"type": "text", "text": "again"}]
    body = {"events": [{"type": "user.message", "content": content}]}
    for headers in ({"x-stainless-retry-count": "0"}, {}):
        for _ in range(2):
            answer = httpx2.post(url, json=body, headers=ground.fleet.headers | headers)
            assert answer.status_code == 200
            assert "idempotent-replayed" not in answer.headers
    assert len(ground.messages(session_id)) == 4
