"""Points steered by files: what the fault suite does to real processes."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
from pathlib import Path

from services.brain.loop.sync_points import FileSyncPoints, Point

KILLED = """
import asyncio, sys
from pathlib import Path
from services.brain.loop.sync_points import FileSyncPoints, Point
asyncio.run(FileSyncPoints(Path(sys.argv[1])).reach(Point.BEFORE_IDLE))
"""


async def test_pause_holds_the_brain_until_its_file_is_gone(tmp_path: Path) -> None:
    points = FileSyncPoints(tmp_path, poll_seconds=0.001)
    await points.reach(Point.BEFORE_TAKE)
    (tmp_path / "before_take.pause").touch()
    held = asyncio.create_task(points.reach(Point.BEFORE_TAKE))
    async with asyncio.timeout(30):
        while not (tmp_path / "before_take.reached").exists():  # noqa: ASYNC110
            await asyncio.sleep(0)
        assert not held.done()
        (tmp_path / "before_take.pause").unlink()
        await held


def test_kill_ends_the_process_once(tmp_path: Path) -> None:
    (tmp_path / "before_idle.kill").touch()
    for status in (-signal.SIGKILL, 0):
        done = subprocess.run(
            [sys.executable, "-c", KILLED, str(tmp_path)], check=False, timeout=60
        )
        assert done.returncode == status
