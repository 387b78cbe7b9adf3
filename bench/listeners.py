"""Many listeners of a PostgreSQL channel: a process of its own, as the readers of streams are.

`python -m bench.listeners URL CHANNEL COUNT` says `[]` once all listen, then for each notice, when
all have heard it, how many milliseconds after it was told each of them did.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from typing import Any

import asyncpg
import uvloop


async def _listen(url: str, channel: str, count: int) -> None:
    heard: list[float] = []

    def hear(_connection: Any, _pid: int, _channel: str, told: str) -> None:
        heard.append((time.monotonic() - float(told)) * 1000)
        if len(heard) == count:
            print(json.dumps(heard), flush=True)
            heard.clear()

    connections = [await asyncpg.connect(url) for _ in range(count)]
    for connection in connections:
        await connection.add_listener(channel, hear)
    print("[]", flush=True)
    # Until the parent closes its end.
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)


if __name__ == "__main__":
    uvloop.run(_listen(sys.argv[1], sys.argv[2], int(sys.argv[3])))
