"""What is told of a test that hangs."""

from __future__ import annotations

import asyncio
import queue

import grpc.aio
import pytest

from tests.doubles.standing import PromptExit, Watch


async def _deep_down(event: asyncio.Event) -> None:
    await event.wait()


async def test_a_hang_is_told_with_every_thread_and_what_each_task_waits_for() -> None:
    told: queue.Queue[str] = queue.Queue()
    event = asyncio.Event()
    task = asyncio.create_task(_deep_down(event), name="the one that hangs")
    await asyncio.sleep(0)  # it has begun to wait
    with Watch().over(0.01, told.put):
        said = await asyncio.to_thread(told.get, timeout=30)
    event.set()
    await task
    assert "thread MainThread" in said
    assert "task the one that hangs" in said
    assert "_deep_down: await event.wait()" in said


async def test_tasks_of_compiled_code_are_told_of_too() -> None:
    server = grpc.aio.server()
    server.add_insecure_port("127.0.0.1:0")
    await server.start()
    told: queue.Queue[str] = queue.Queue()
    with Watch().over(0.01, told.put):
        said = await asyncio.to_thread(told.get, timeout=30)
    await server.stop(0)
    assert "_server_main_loop" in said


def test_nothing_is_told_of_what_ends_in_time() -> None:
    told: queue.Queue[str] = queue.Queue()
    watch = Watch()
    with watch.over(60, told.put):
        pass
    with watch.over(0.01, told.put):
        assert told.get(timeout=30)  # it still watches
    assert told.empty()


async def test_what_does_not_close_in_time_is_said_with_what_it_waits_for() -> None:
    with pytest.raises(AssertionError, match=r"_deep_down: await event\.wait"):
        async with PromptExit(0.01) as stack:
            stack.push_async_callback(_deep_down, asyncio.Event())
    async with PromptExit() as stack:
        stack.push_async_callback(asyncio.sleep, 0)
