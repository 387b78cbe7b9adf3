"""Each request reads from the cache whatever the one before it had; only what is new is new."""

from __future__ import annotations

import asyncio
import itertools
import json
from typing import Any

from tests.doubles.prompt_cache import Counted, PromptCache
from tests.doubles.scripted_model import Reply, ScriptedModel, response, text, thinking, tool
from tests.integration.brain.agents import overloaded
from tests.integration.brain.conftest import Rig


def counted(model: ScriptedModel) -> list[Counted]:
    """What the cache has made of the requests, in their order."""
    cache = PromptCache()
    return [cache.send(body) for body in model.bodies]


def assert_only_new_is_new(model: ScriptedModel) -> None:
    requests = counted(model)
    assert len(requests) > 1
    for before, after in itertools.pairwise(requests):
        assert after.cache_read == before.total
        assert after.input_tokens == 0


async def test_turns_tool_loops_and_many_parallel_calls_read_all_that_came_before(rig: Rig) -> None:
    session = rig.session()
    brain = await rig.brain()
    for turn in range(4):
        calls = [tool("bash", {"command": f"{n}"}, f"toolu_{turn}_{n}") for n in range(12 * turn)]
        rig.model.say(thinking("hm"), text("Let me see."), tool("bash", {}, f"toolu_{turn}"))
        rig.model.say(text("More."), *calls)
        if calls:
            rig.model.say(text("Done."))
        session.message(f"question {turn}")
        await rig.wake(session, brain)
    assert_only_new_is_new(rig.model)
    assert counted(rig.model)[-1].shared_blocks > 100


async def test_brain_that_takes_over_reads_what_the_one_before_has_cached(rig: Rig) -> None:
    session = rig.session()
    for turn in range(4):
        rig.model.say(thinking("hm"), tool("bash", {"command": "ls"}, f"toolu_{turn}"))
        rig.model.say(text("Done."))
        session.message(f"question {turn}")
        await rig.wake(session, await rig.brain())
    assert_only_new_is_new(rig.model)


async def test_retries_read_everything(rig: Rig) -> None:
    session = rig.session()
    rig.model.say(tool("bash", {"command": "ls"}))
    rig.model.fail(overloaded())
    rig.model.fail(overloaded())
    rig.model.say(text("Done."))
    session.message("Go")
    await rig.wake(session)
    first, *again = counted(rig.model)
    assert again[0].cache_read == first.total
    assert [request.cache_creation for request in again[1:]] == [0, 0]


async def test_interrupted_turns_leave_the_cache_as_it_was(rig: Rig) -> None:
    session = rig.session()
    brain = await rig.brain()
    rig.model.say(text("Hello."))
    session.message("Hi")
    await rig.wake(session, brain)
    for number in range(3):
        reply = rig.model.add(Reply(response(text("Once upon a time", pieces=4)), hold=3))
        session.message(f"Tell {number}")
        async with asyncio.TaskGroup() as tasks:
            woken = tasks.create_task(rig.wake(session, brain))
            await reply.reached.wait()
            session.interrupt()
            await woken
    rig.hands.hold("slow")
    rig.model.say(tool("bash", {"command": "slow"}), tool("bash", {"command": "ls"}, "toolu_2"))
    session.message("Work")
    async with asyncio.TaskGroup() as tasks:
        woken = tasks.create_task(rig.wake(session, brain))
        await session.until(lambda: "agent_tool_result" in session.kinds)
        session.interrupt()
        await woken
    session.message("And now?")
    await rig.wake(session, brain)
    assert_only_new_is_new(rig.model)


async def test_tool_inputs_are_replayed_byte_for_byte(rig: Rig) -> None:
    odd = (
        '{"z":1,"a":12345678901234567890,  "text":"\\u00e9\\/\\n\\ud83d\\ude00 é","f":1.0,"e":1E5}'
    )
    session = rig.session()
    brain = await rig.brain()
    rig.model.say(tool("bash", odd))
    rig.model.say(text("Done."))
    session.message("Go")
    await rig.wake(session, brain)
    session.message("More")
    await rig.wake(session)
    for body in rig.model.bodies[1:]:
        assert f'"name":"bash","input":{odd}}}'.encode() in body
    assert_only_new_is_new(rig.model)


async def test_plain_session_sends_three_breakpoints_and_no_more(rig: Rig) -> None:
    session = rig.session()
    for turn in range(3):
        session.message(f"question {turn}")
        await rig.wake(session)
    last: dict[str, Any] = rig.model.requests[-1]
    assert json.dumps(last).count("cache_control") == 3
