from __future__ import annotations

import asyncio

from chassis.context import DEFAULT_WORKSPACE, CallContext, call_context, current_call


def test_default_workspace_outside_any_call():
    assert current_call() == CallContext(DEFAULT_WORKSPACE, "")


async def test_call_is_that_of_the_task_and_of_the_tasks_it_starts():
    async def ids() -> str:
        await asyncio.sleep(0)
        return current_call().request_id

    async def one(request_id: str) -> tuple[str, str]:
        with call_context(CallContext("wrkspc_1", request_id)):
            return await ids(), await asyncio.create_task(ids())

    assert await asyncio.gather(one("a"), one("b")) == [("a", "a"), ("b", "b")]
    assert current_call().request_id == ""
