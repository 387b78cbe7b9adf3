"""Whoever dies while a hand is handed on: one of the two sessions has it, never both or none."""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from pathlib import Path

import pytest

from chassis.errors import DroverError, Reason
from services.hands.domain.handover import HANDED_OVER
from tests.doubles.hands_stack import HandsStack, hands_stack, printed
from tests.fault.handing_over import GIVEN, MOMENTS


async def files(hands: HandsStack, session_id: str, name: str) -> str | None:
    """What a session finds in its hand; None if the hand is another's."""
    given = (session_id, f"look {name}", 1, "bash", json.dumps({"command": "cat f; true"}))
    try:
        return printed(await hands.executor.execute(*given, name=name))
    except DroverError as error:
        if (error.reason, error.metadata["error_code"]) != (Reason.ARCHIVED, HANDED_OVER):
            raise
        return None


@pytest.mark.parametrize("moment", MOMENTS)
async def test_process_killed_on_the_way_leaves_the_hand_with_exactly_one(
    tmp_path: Path, moment: str
) -> None:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tests.fault.handing_over", str(tmp_path), moment),
        stdout=asyncio.subprocess.DEVNULL,
    )
    async with asyncio.timeout(60):
        assert await process.wait() == -signal.SIGKILL
    async with hands_stack(tmp_path) as hands:
        giver = await files(hands, GIVEN.session_id, GIVEN.hand)
        receiver = await files(hands, GIVEN.to_session_id, GIVEN.to_hand)
    if moment == "before the record":
        assert giver == "work"
        assert receiver is not None
        assert "No such file" in receiver
    else:
        assert (giver, receiver) == (None, "work")
