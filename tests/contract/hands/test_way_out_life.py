"""A sandbox's way out over its life: whose it is, what cuts it, and that it fails closed (E14)."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from chassis.context import DEFAULT_WORKSPACE
from chassis.errors import Reason
from drover.event.v1.session_event_pb2 import SessionError
from services.hands.domain.handover import Generations, HandOver
from tests.doubles.egress_outside import Outside, running_outside
from tests.doubles.hands_stack import KINDS, HandsStack, Sandboxes, chosen, text
from tests.doubles.hands_waiting import eventually, ready_spares

pytestmark = pytest.mark.asyncio(loop_scope="module")
FETCH = "curl -sS --max-time 20 https://example.com/"
STATUS = "curl -sS -o /dev/null -w '%{http_code}' --max-time 20 http://example.com/"


@pytest.fixture(params=KINDS, scope="module")
def kind(request: pytest.FixtureRequest) -> Sandboxes:
    return chosen(request)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def outside() -> AsyncIterator[Outside]:
    async with running_outside(most=8) as running:
        yield running


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def hands(
    kind: Sandboxes, outside: Outside, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[HandsStack]:
    place = tmp_path_factory.mktemp("life")
    async with kind.stack(place, spares=1, outside=outside) as stack:
        yield stack


@pytest.fixture
def session(request: pytest.FixtureRequest, kind: Sandboxes) -> str:
    """A session of the test's own."""
    return f"sesn_{kind.kind}_{abs(hash(request.node.name))}"


async def refusal(hands: HandsStack, session: str) -> dict[str, str]:
    """What a program is told that is not let out."""
    shown = await hands.bash("curl -sS --max-time 20 http://example.com/", session_id=session)
    error: dict[str, str] = json.loads(shown)["error"]
    return error


async def test_spare_gets_the_variables_and_the_authority_of_its_session(
    hands: HandsStack, outside: Outside, session: str
) -> None:
    hands.pool.fill()
    await eventually(lambda: ready_spares(hands.pool))
    outside.granter.variables[session] = {"TOKEN": "it's a placeholder"}
    shown = await hands.bash(f"echo $TOKEN; {FETCH}", session_id=session)
    assert shown.startswith("it's a placeholder\n{")
    assert outside.sessions[-1] == session


async def test_spare_that_serves_nobody_is_let_out_by_nobody(hands: HandsStack) -> None:
    hands.pool.fill()
    await eventually(lambda: ready_spares(hands.pool))
    shelf = next(iter(hands.pool.spares.shelves))
    access = shelf.ready[0][0].access
    assert access is not None
    reader, writer = await asyncio.open_unix_connection(access.way_out.directory / "proxy.sock")
    writer.write(b"GET http://example.com/ HTTP/1.1\r\n\r\n")
    answer = await reader.read()
    assert answer.startswith(b"HTTP/1.1 502 ")
    assert b'"reason": "no_session"' in answer
    writer.close()


async def test_forwarder_outlives_all_that_commands_start(
    hands: HandsStack, outside: Outside, session: str
) -> None:
    stopped = await hands.run("bash", command="sleep 1000", timeout_ms=50, session_id=session)
    assert "timed out" in text(stopped)
    assert outside.sessions[-1:] != [session]
    await hands.bash(FETCH, session_id=session)
    await hands.run("bash", restart=True, session_id=session)
    await hands.bash(FETCH, session_id=session)
    await hands.run("bash", command="kill -9 -1", session_id=session)  # the sandbox may end, too
    await hands.bash(FETCH, session_id=session)
    assert outside.sessions[-3:] == [session] * 3


async def test_hand_that_is_handed_over_is_let_out_as_its_receivers(
    hands: HandsStack, outside: Outside, session: str
) -> None:
    receiver = f"{session}_to"
    outside.granter.variables[session] = {"OLD": "1", "BOTH": "given"}
    outside.granter.variables[receiver] = {"BOTH": "taken"}
    await hands.bash(
        "curl -s --max-time 60 https://example.com/wait >/dev/null 2>&1 &", session_id=session
    )
    await eventually(lambda: outside.waiting)
    await hands.executor.fence(receiver, 1)
    moved = HandOver(session, "", receiver, "")
    await hands.executor.hand_over(moved, Generations(1), DEFAULT_WORKSPACE)
    # The giver's connection is cut, whatever still uses it.
    await eventually(lambda: not outside.waiting)
    shown = await hands.bash(f"echo -$OLD-$BOTH-; {FETCH}", session_id=receiver)
    assert shown.startswith("--taken-\n{")
    assert outside.sessions[-1] == receiver


async def test_command_runs_without_a_vault_proxy_and_the_next_use_finds_it(
    hands: HandsStack, outside: Outside, session: str
) -> None:
    outside.granter.failure = Reason.UNAVAILABLE
    try:
        told = await refusal(hands, session)
    finally:
        outside.granter.failure = None
    assert told["reason"] == "vault_proxy_unavailable"
    assert "no grant today" in told["message"]
    async with asyncio.timeout(30):
        while (await hands.bash(STATUS, session_id=session)) != "200":
            pass
    await hands.bash(FETCH, session_id=session)


async def test_session_that_gets_no_grant_is_told_so(
    hands: HandsStack, outside: Outside, session: str
) -> None:
    outside.granter.failure = Reason.ARCHIVED
    try:
        told = await refusal(hands, session)
    finally:
        outside.granter.failure = None
    assert (told["type"], told["reason"]) == ("egress_denied", "session_refused")


async def test_problems_of_a_session_come_with_what_it_runs(
    hands: HandsStack, outside: Outside, session: str
) -> None:
    problem = SessionError(message="the host is not allowed")
    problem.credential_host_unreachable_error.credential_id = "vcrd_1"
    outside.granter.problems = [problem]
    try:
        ran = await hands.run("bash", command="true", session_id=session)
    finally:
        outside.granter.problems = []
    assert list(ran.errors) == [problem]


async def test_connections_have_a_bound_for_each_hand(hands: HandsStack, session: str) -> None:
    program = (
        "import socket\n"
        "held = []\n"
        "for _ in range(9):\n"
        "    held.append(socket.create_connection(('127.0.0.1', 3128)))\n"
        "    if len(held) < 9:\n"
        "        held[-1].sendall(b'GET http://example.com/wait HTTP/1.1\\r\\n\\r\\n')\n"
        "print(held[-1].recv(1000).decode())\n"
    )
    await hands.run("write", file_path="/workspace/many.py", content=program, session_id=session)
    shown = await hands.bash("timeout 60 python3 many.py", session_id=session)
    assert shown.startswith("HTTP/1.1 503 ")
    assert "too_many_connections" in shown
    async with asyncio.timeout(30):  # the next may be heard of before their end is
        while await hands.bash(STATUS, session_id=session) != "200":
            pass


async def test_what_a_vault_gains_and_loses_is_known_to_the_next_command(
    hands: HandsStack, outside: Outside, session: str
) -> None:
    outside.granter.variables[session] = {"OLD": "1"}
    outside.granter.life, life = 0.0001, outside.granter.life  # each use renews it
    try:
        assert await hands.bash("echo -$OLD-$NEW-; set -eu", session_id=session) == "-1--"
        outside.granter.variables[session] = {"NEW": "2"}
        shown = await hands.bash("echo -${OLD-}-$NEW-; set +eu", session_id=session)
    finally:
        outside.granter.life = life
    assert shown == "--2-"


async def test_grant_is_revoked_with_its_session(
    hands: HandsStack, outside: Outside, session: str
) -> None:
    await hands.bash(FETCH, session_id=session)
    await hands.executor.release(session)
    assert session in outside.granter.revoked


async def test_proxy_that_is_killed_in_the_middle_leaves_no_way_out(
    hands: HandsStack, outside: Outside, session: str
) -> None:
    """E14: what was under way ends, what comes is refused, and works again when it is back."""
    running = asyncio.create_task(
        hands.run("bash", command="curl -sS https://example.com/wait", session_id=session)
    )
    await eventually(lambda: outside.waiting)
    await outside.stop()
    cut = await running
    assert cut.is_error
    assert (await refusal(hands, session))["reason"] == "proxy_unreachable"
    result = await hands.run("bash", command=FETCH, session_id=session)
    assert "502" in text(result)
    await outside.start()
    assert await hands.bash(STATUS, session_id=session) == "200"


async def test_nothing_of_it_is_left_when_the_sandbox_has_ended(
    hands: HandsStack, session: str
) -> None:
    await hands.bash("true", session_id=session)
    access = hands.pool.live()[session].access
    assert access is not None
    directory = access.way_out.directory
    assert directory.exists()
    await hands.executor.release(session)
    assert not directory.exists()
