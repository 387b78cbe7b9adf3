"""A process that hands a hand on and is killed at one moment of it: `handing_over DIR MOMENT`."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from chassis.context import DEFAULT_WORKSPACE
from services.hands.domain.handover import Generations, HandOver
from services.hands.store.handovers import SqlHandOvers
from services.hands.workspace import Workspaces
from tests.doubles.hands_stack import hands_stack

GIVEN = HandOver("sesn_giver", "build", "sesn_receiver", "tools")


def _die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def _before(owner: type, name: str) -> Callable[[], None]:
    def patch() -> None:
        async def dies(*_given: Any) -> None:
            _die()

        setattr(owner, name, dies)

    return patch


def _after(owner: type, name: str) -> Callable[[], None]:
    def patch() -> None:
        done = getattr(owner, name)

        async def dies(*given: Any) -> None:
            await done(*given)
            _die()

        setattr(owner, name, dies)

    return patch


def _in_the_rename() -> None:
    def dies(_descriptor: object) -> None:
        _die()

    os.fsync = dies  # type: ignore[assignment]


MOMENTS = {
    "before the record": _before(SqlHandOvers, "begin"),
    "after the record": _after(SqlHandOvers, "begin"),
    "after the rename": _in_the_rename,
    "after the files": _after(Workspaces, "move"),
    "after the end": _after(SqlHandOvers, "settle"),
}


async def main(directory: Path, moment: str) -> None:
    """Never returns, if it does what it should."""
    async with hands_stack(directory) as hands:
        await hands.run("bash", session_id=GIVEN.to_session_id, command="true")
        command = json.dumps({"command": "echo work >f"})
        given = (GIVEN.session_id, "c1", 1, "bash", command)
        await hands.executor.execute(*given, name=GIVEN.hand)
        MOMENTS[moment]()
        await hands.executor.hand_over(GIVEN, Generations(1), DEFAULT_WORKSPACE)


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), sys.argv[2]))
