"""I3: a server that returns 100 MB, never answers, mixes answers up, or never comes to an end."""

from __future__ import annotations

import asyncio
import resource
import time
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace

import pytest

from chassis.errors import DroverError
from services.vault_proxy.mcp.limits import Limits
from tests.doubles.mcp_server import McpServer, running_mcp_server
from tests.doubles.mcp_world import World, mcp_world

QUICK = Limits(idle_seconds=3, call_seconds=8, connect_seconds=8)


@pytest.fixture(scope="module")
def server() -> Iterator[McpServer]:
    with running_mcp_server() as running:
        yield running


@pytest.fixture
async def world(server: McpServer) -> AsyncIterator[World]:
    server.forget()
    async with mcp_world(server.port, server.faults_port, limits=QUICK) as made:
        yield made


@pytest.fixture
async def patient(server: McpServer) -> AsyncIterator[World]:
    server.forget()
    async with mcp_world(server.port, server.faults_port) as made:
        yield made


async def _refused(world: World, url: str, tool: str = "do") -> DroverError:
    with pytest.raises(DroverError) as refused:
        await world.servers.call(world.facts(url), "srv", tool, "{}", "c")
    return refused.value


@pytest.mark.parametrize("path", ["/drop", "/silent", "/trickle", "/broken"])
async def test_a_call_without_an_answer_is_of_unknown_outcome_and_made_once(
    world: World, server: McpServer, path: str
) -> None:
    error = await _refused(world, server.fault(path))
    assert error.error_code == "outcome_unknown"
    assert not error.rule.retryable
    assert server.runs(path) == 1
    assert world.trail.reasons() == [("tools/call", "broken")]


@pytest.mark.parametrize("path", ["/lost-401", "/lost-404", "/lost-405", "/lost-503"])
async def test_a_call_whose_answer_had_begun_is_never_taken_for_unheard(
    patient: World, server: McpServer, path: str
) -> None:
    # Whatever becomes of asking for the rest of the answer: it says nothing about the call.
    facts = patient.facts(server.fault(path))
    await patient.servers.list_tools(facts, "srv")  # a connection that was open before
    with pytest.raises(DroverError) as refused:
        await patient.servers.call(facts, "srv", "do", "{}", "c")
    assert refused.value.error_code == "outcome_unknown"
    assert server.runs(path) == 1


async def test_a_server_that_is_gone_while_it_answers_is_not_called_again(
    patient: World, server: McpServer
) -> None:
    url = server.fault("/lost-404").replace("127.0.0.1", "srv.test")
    facts = patient.facts(url)
    await patient.servers.list_tools(facts, "srv")
    call = asyncio.create_task(patient.servers.call(facts, "srv", "do", "{}", "c"))
    while not server.runs("/lost-404"):  # noqa: ASYNC110  # another process
        await asyncio.sleep(0)
    patient.names["srv.test"] = "10.0.0.1"  # where nothing may be reached
    with pytest.raises(DroverError) as refused:
        await call
    assert refused.value.error_code == "outcome_unknown"
    assert server.runs("/lost-404") == 1


@pytest.mark.parametrize("path", ["/mcp", "/old", "/sse", "/json/mcp"])
async def test_a_server_that_never_answers_costs_its_time_and_no_more(
    world: World, server: McpServer, path: str
) -> None:
    error = await _refused(world, server.url(path), "hang")
    assert error.error_code == "outcome_unknown"
    assert server.runs("hang") == 1
    answer = await world.servers.call(world.facts(server.url(path)), "srv", "echo", "{}", "c")
    assert not answer.is_error


@pytest.mark.parametrize("path", ["/huge", "/flood"])
async def test_too_large_an_answer_is_cut_off_and_said_so(
    patient: World, server: McpServer, path: str
) -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    answer = await patient.servers.call(patient.facts(server.fault(path)), "srv", "do", "{}", "c")
    assert answer.is_error
    assert "larger than 16 MiB" in answer.content[0].text.text
    assert server.runs(path) == 1
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 100 * 1024


async def test_an_answer_of_crumbs_keeps_nobody_else_waiting(
    patient: World, server: McpServer
) -> None:
    longest, over = 0.0, asyncio.Event()

    async def watch() -> None:
        nonlocal longest
        while not over.is_set():
            before = time.process_time()  # what others of the machine take is not its doing
            await asyncio.sleep(0)
            longest = max(longest, time.process_time() - before)

    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    facts = patient.facts(server.fault("/crumbs"))
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(watch())
        answer = await patient.servers.call(facts, "srv", "do", "{}", "c")
        over.set()
    assert answer.is_error
    assert "more than 100,000 objects and lists" in answer.content[0].text.text
    assert longest < 1
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 100 * 1024


async def test_chatter_without_end_is_cut_off(patient: World, server: McpServer) -> None:
    answer = await patient.servers.call(
        patient.facts(server.fault("/chatter")), "srv", "do", "{}", "c"
    )
    assert answer.is_error
    assert "more than 5,000 events" in answer.content[0].text.text


async def test_pages_are_no_way_around_the_size_of_a_list(server: McpServer) -> None:
    server.offer(page=3, descriptions={"add": "x" * 400_000, "fail": "x" * 400_000})
    small = replace(QUICK, answer_bytes=500_000, idle_seconds=5)
    try:
        async with mcp_world(server.port, limits=small) as world:
            with pytest.raises(DroverError, match="larger than"):
                await world.servers.list_tools(world.facts(server.url()), "srv")
    finally:
        server.offer(page=0, descriptions={})


async def test_an_answer_in_bounds_may_be_long(patient: World, server: McpServer) -> None:
    wish = '{"bytes": 3000000}'
    answer = await patient.servers.call(patient.facts(server.url()), "srv", "big", wish, "c")
    assert len(answer.content[0].text.text) == 3_000_000


async def test_more_blocks_than_are_shown_are_counted(patient: World, server: McpServer) -> None:
    wish = '{"blocks": 300}'
    answer = await patient.servers.call(patient.facts(server.url()), "srv", "many", wish, "c")
    assert len(answer.content) == 201
    assert answer.content[-1].text.text == "[100 more blocks are left out]"


async def test_an_answer_to_another_call_answers_none(world: World, server: McpServer) -> None:
    error = await _refused(world, server.fault("/other-id"))
    assert error.error_code == "outcome_unknown"


@pytest.mark.parametrize("path", ["/packed", "/garbage"])
async def test_an_answer_that_cannot_be_read_was_an_answer(
    patient: World, server: McpServer, path: str
) -> None:
    answer = await patient.servers.call(patient.facts(server.fault(path)), "srv", "do", "{}", "c")
    assert answer.is_error
    assert answer.content[0].text.text.startswith("The tool was run, but its answer is lost")


async def test_a_version_that_nobody_knows_is_no_connection(
    world: World, server: McpServer
) -> None:
    error = await _refused(world, server.fault("/version"))
    assert error.error_code == "mcp_connection_failed"
    assert "version" in error.message


async def test_a_server_that_says_nothing_at_all_is_no_connection(server: McpServer) -> None:
    async with mcp_world(server.faults_port, limits=replace(QUICK, idle_seconds=0.2)) as world:
        error = await _refused(world, server.fault("/mute"))
    assert error.error_code == "mcp_connection_failed"


async def test_a_server_that_wants_the_call_again_and_again_is_left(
    patient: World, server: McpServer
) -> None:
    facts = patient.facts(server.url())
    answer = await patient.servers.call(facts, "srv", "loop", '{"rounds": 3}', "c")
    assert answer.content[0].text.text == "done"
    assert server.runs("loop") == 4
    answer = await patient.servers.call(facts, "srv", "loop", "{}", "c")
    assert answer.is_error
    assert "more than 8 times" in answer.content[0].text.text
    assert server.runs("loop") == 4 + 9


async def test_a_server_that_asks_back_gets_no_answer(patient: World, server: McpServer) -> None:
    answer = await patient.servers.call(patient.facts(server.url()), "srv", "ask", "{}", "c")
    assert answer.is_error
    assert "cannot be given here" in answer.content[0].text.text
    assert server.runs("ask") == 1


async def test_a_list_without_end_is_no_list(server: McpServer) -> None:
    server.offer(endless=True)
    try:
        async with mcp_world(server.port, limits=replace(QUICK, pages=5, idle_seconds=5)) as world:
            with pytest.raises(DroverError, match="more than 5 pages") as refused:
                await world.servers.list_tools(world.facts(server.url()), "srv")
    finally:
        server.offer(endless=False)
    assert refused.value.error_code == "mcp_connection_failed"


async def test_more_tools_than_anyone_can_use_are_no_list(
    patient: World, server: McpServer
) -> None:
    server.offer(more=1_200)
    try:
        with pytest.raises(DroverError, match="more than 1,000 tools"):
            await patient.servers.list_tools(patient.facts(server.url()), "srv")
    finally:
        server.offer(more=0)


async def test_a_description_without_end_is_cut(patient: World, server: McpServer) -> None:
    server.offer(descriptions={"echo": "x" * 100_000})
    try:
        listed = await patient.servers.list_tools(patient.facts(server.url()), "srv")
    finally:
        server.offer(descriptions={})
    assert len(listed.tools[0].description) == 16_384
    assert listed.tools[0].description.endswith("is cut here)")


async def test_a_forgotten_protocol_session_is_opened_anew(
    patient: World, server: McpServer
) -> None:
    facts = patient.facts(server.fault("/gone"))
    await patient.servers.list_tools(facts, "srv")
    answer = await patient.servers.call(facts, "srv", "do", "{}", "c")
    assert answer.content[0].text.text == "done"
    greetings = [one for one in server.report()["faults"] if one["method"] == "initialize"]
    assert len(greetings) == 2


async def test_a_busy_servers_wish_to_be_left_alone_is_passed_on(
    world: World, server: McpServer
) -> None:
    error = await _refused(world, server.fault("/busy"))
    assert (error.error_code, error.retry_after) == ("mcp_connection_failed", 7)


async def test_one_call_that_fails_leaves_the_others_of_its_connection_alone(
    patient: World, server: McpServer
) -> None:
    facts = patient.facts(server.url("/old"))
    await patient.servers.list_tools(facts, "srv")
    slow = asyncio.create_task(patient.servers.call(facts, "srv", "slow", '{"seconds": 0.4}', "c"))
    big = await patient.servers.call(facts, "srv", "big", '{"bytes": 20000000}', "c")
    assert big.is_error
    assert (await slow).content[0].text.text == "done"


async def test_a_call_that_is_given_up_ends_at_the_server_too(
    patient: World, server: McpServer
) -> None:
    facts = patient.facts(server.url())
    await patient.servers.list_tools(facts, "srv")
    call = asyncio.create_task(patient.servers.call(facts, "srv", "hang", "{}", "c"))
    async with asyncio.timeout(30):
        while not await asyncio.to_thread(server.runs, "hang"):
            pass
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    assert patient.trail.reasons()[-1] == ("tools/call", "interrupted")


async def test_connections_past_the_most_are_refused_and_unused_ones_give_way(
    server: McpServer,
) -> None:
    few = Limits(connections=1)
    async with mcp_world(server.port, server.faults_port, limits=few) as world:
        for session in ("sesn_1", "sesn_2"):
            facts = world.facts(server.url(), session=session)
            await world.servers.call(facts, "srv", "echo", "{}", "c")
        busy = asyncio.create_task(
            world.servers.call(facts, "srv", "slow", '{"seconds": 600}', "c")
        )
        await asyncio.sleep(0)
        other = world.facts(server.url(), session="sesn_3")
        with pytest.raises(DroverError, match="in use"):
            await world.servers.call(other, "srv", "echo", "{}", "c")
        assert not busy.done()
        busy.cancel()
        with pytest.raises(asyncio.CancelledError):
            await busy
