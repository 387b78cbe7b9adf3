"""Turns through the platform, and what they take."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import AsyncIterator

from bench.client import Connection, user_message
from bench.stack import Stack
from bench.statistics import Distribution

IDLE = "session.status_idle"
MESSAGE = "agent.message"


async def prepare(connection: Connection) -> dict[str, str]:
    """Creates what sessions refer to; answers the body of a session create."""
    agent = await connection.call(
        "POST",
        "/v1/agents",
        {
            "name": "bench",
            "model": "claude-opus-5-5",
            "system": "You are a bench.",
            "tools": [{"type": "agent_toolset_20260401"}],
        },
    )
    # Names are unique, and a database may have served a stack before.
    name = f"bench {secrets.token_hex(4)}"
    environment = await connection.call("POST", "/v1/environments", {"name": name})
    return {"agent": agent["id"], "environment_id": environment["id"]}


async def new_session(connection: Connection, body: dict[str, str]) -> str:
    """Creates a session; answers its id."""
    session: str = (await connection.call("POST", "/v1/sessions", body))["id"]
    return session


async def until(events: AsyncIterator[str], wanted: str) -> None:
    """Reads the stream up to the first event of this type."""
    async for kind in events:
        if kind == wanted:
            return
    raise RuntimeError(f"the stream ended before {wanted}")


async def turn(
    connection: Connection, session: str, events: AsyncIterator[str], text: str
) -> tuple[float, float]:
    """One turn; milliseconds from the POST to the first agent event and to idle.

    A message that is refused ends it: no event would.
    """
    start = time.perf_counter()
    async with asyncio.TaskGroup() as group:
        group.create_task(
            connection.call("POST", f"/v1/sessions/{session}/events", user_message(text))
        )
        await until(events, MESSAGE)
        first = time.perf_counter()
        await until(events, IDLE)
        end = time.perf_counter()
    return (first - start) * 1000, (end - start) * 1000


async def session_creates(stack: Stack, body: dict[str, str], count: int) -> Distribution:
    """Milliseconds of session creates, one after the other."""
    connection = stack.connect()
    samples = []
    for _ in range(count):
        start = time.perf_counter()
        await new_session(connection, body)
        samples.append((time.perf_counter() - start) * 1000)
    await connection.close()
    return Distribution(tuple(samples))


async def first_events(
    stack: Stack, body: dict[str, str], count: int
) -> tuple[Distribution, Distribution]:
    """Message → first agent event: on a new session (cold), on one that has worked (warm)."""
    connection = stack.connect()
    cold, warm = [], []
    for _ in range(count):
        session = await new_session(connection, body)
        async with connection.stream(session) as events:
            cold.append((await turn(connection, session, events, "hello"))[0])
            warm.append((await turn(connection, session, events, "hello"))[0])
    await connection.close()
    return Distribution(tuple(cold)), Distribution(tuple(warm))
