"""A sandbox is handed over: whoever connects first, its grant is of the session's workspace."""

from __future__ import annotations

import asyncio
from pathlib import Path

from chassis.clock import SystemClock
from chassis.context import CallContext, call_context, current_call
from chassis.secret import Secret
from services.hands.egress.access import Access
from services.hands.egress.grants import Grant, Grants
from services.hands.egress.place import Place


class Giving:
    """Gives grants, and keeps the workspaces that they were asked for in."""

    def __init__(self) -> None:
        self.workspaces: list[str] = []

    async def open(self, session_id: str, hand_id: str) -> Grant:
        self.workspaces.append(current_call().workspace_id)
        return Grant(Secret("grant"), float("inf"), float("inf"))

    async def revoke(self, session_id: str) -> None:
        raise AssertionError


async def test_connection_right_after_the_hand_over_has_the_sessions_workspace(
    tmp_path: Path,
) -> None:
    giving, place = Giving(), Place(tmp_path / "hand_1", b"")
    async with asyncio.TaskGroup() as tasks:
        access = Access("hand_1", place, Grants(giving, tasks, SystemClock()), tasks)
        with place.lay_out(None):
            with call_context(CallContext("wrkspc_other")):
                access.assign("sesn_1", lambda _: None)
            await access.allow()  # a listener's: before anything else of the hand runs
        access.close()
    assert giving.workspaces == ["wrkspc_other"]
