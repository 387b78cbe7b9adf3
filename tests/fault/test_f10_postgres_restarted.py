"""F10: PostgreSQL restarted every few seconds under many sessions: all finish, nothing is lost."""

from __future__ import annotations

import asyncio
import itertools
import random
import sys
import time

import anthropic
import httpx2
import pytest

from tests.doubles.messages_api import text
from tests.doubles.postgres import Cluster
from tests.doubles.soak import limit, share
from tests.e2e.driving import history, new_session, run_turn, texts
from tests.e2e.stack import Stack
from tests.fault.crowd import Crowd, crowd
from tests.fault.histories.checker import check
from tests.fault.histories.history import Outcome

SEED = 20261201
SESSIONS = 500
SECONDS = 32.0
MESSAGES = 3  # of each session
BETWEEN = (0.5, 3.0)
LEAST_RESTARTS = int(share(12, least=3))
OWNERS = ("registry", "session", "hands")
"""Services with a database."""
BACK_WITHIN = 10.0 if share(1) >= 1 else 40.0


async def lived(clients: Crowd, template: dict[str, str], name: str, until: float) -> None:
    """One session's life: made once that is possible, then sent messages until the time is over."""
    chance = random.Random(f"{SEED}{name}")  # noqa: S311 - a storm must come again as it was
    await asyncio.sleep(chance.uniform(0, 0.5 * (until - time.monotonic())))
    answer = None
    while answer is None or answer.status_code != 200:
        answer = await clients.request("POST", "/v1/sessions", template)
        await asyncio.sleep(0.1)
    session = answer.json()["id"]
    for number in range(MESSAGES):
        while not await clients.post(session, f"{name}-{number}"):
            number = f"{number}+"  # noqa: PLW2901 - said anew: whether it was heard is not known
            await asyncio.sleep(0.2)
        await asyncio.sleep(chance.uniform(0, max(0, (until - time.monotonic()) / MESSAGES)))


async def restarted(cluster: Cluster, until: float) -> int:
    """Restarts the server again and again, in order and as if it had crashed; how often."""
    chance = random.Random(SEED)  # noqa: S311 - as above
    for count, mode in enumerate(itertools.cycle(("fast", "immediate"))):
        await asyncio.sleep(chance.uniform(*BETWEEN))
        if time.monotonic() > until and count >= LEAST_RESTARTS:
            return count
        await asyncio.to_thread(cluster.restart, mode)
    raise AssertionError


@pytest.mark.timeout(limit(150))
def test_all_sessions_finish_and_nothing_acknowledged_is_lost(
    postgres_stack: Stack, breakable: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    stack, sessions = postgres_stack, int(share(SESSIONS))
    stack.model.default(lambda _: text("ok").delayed(0.2))
    with stack.client() as client:
        made = new_session(client, tools=())
    template = {"agent": made.agent.id, "environment_id": made.environment_id}

    async def run() -> tuple[Crowd, dict[str, list[str]], int]:
        until = time.monotonic() + share(SECONDS)
        async with crowd(stack.url, stack.headers) as clients:
            async with asyncio.TaskGroup() as tasks:
                restarts = tasks.create_task(restarted(breakable, until))
                for number in range(sessions):
                    tasks.create_task(lived(clients, template, f"s{number}", until))
            return (
                clients,
                await clients.logs_at_rest(stack.address("session"), stack.peers),
                restarts.result(),
            )

    clients, logs, restarts = asyncio.run(run())
    history = clients.history
    acknowledged = history.count(Outcome.ACKNOWLEDGED)
    with capsys.disabled():
        sys.stdout.write(
            f"\n{restarts} restarts under {sessions} sessions: {acknowledged} messages "
            f"acknowledged, {history.count(Outcome.UNKNOWN)} of unknown fate\n"
        )
    assert [str(violation) for violation in check(history)] == []
    assert clients.unfit == []
    assert acknowledged == sessions * MESSAGES
    assert len(logs) == sessions
    for session, kinds in logs.items():
        assert kinds.count("agent_message") == kinds.count("user_message"), session
        assert "session_error" not in kinds


def test_services_killed_while_the_server_is_down_come_back_with_it(
    postgres_stack: Stack, breakable: Cluster
) -> None:
    stack = postgres_stack
    stack.model.default(lambda _: text("ok"))
    with stack.client(max_retries=0) as client:
        session = new_session(client, tools=())
        run_turn(client, session.id, "before")
        before = history(client, session.id)
        breakable.stop()
        try:
            for service in OWNERS:
                stack.kill(service)  # whose successors find no database
            assert httpx2.get(f"{stack.url}/healthz", timeout=30).status_code == 200
            stack.wait_for(lambda: not_ready(stack), "readiness to end")
            with pytest.raises(anthropic.InternalServerError) as caught:
                client.beta.sessions.retrieve(session.id)
            assert caught.value.status_code in {503, 504}
            assert int(caught.value.response.headers["retry-after"]) >= 1
        finally:
            breakable.start()
        stack.wait_ready(BACK_WITHIN)
        run_turn(client, session.id, "after")
        log = history(client, session.id)
    assert [event.id for event in log[: len(before)]] == [event.id for event in before]
    assert texts(log, "agent.message") == ["ok", "ok"]


def not_ready(stack: Stack) -> bool:
    return httpx2.get(f"{stack.url}/readyz", timeout=30).status_code == 503
