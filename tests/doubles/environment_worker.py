"""The official worker in a process of its own: `python -m tests.doubles.environment_worker`.

It is the SDK's `EnvironmentWorker` unmodified, with its own tools, which really run. What it is
told it finds in the variables that the official command line gives to such a process:
`ANTHROPIC_ENVIRONMENT_KEY`, or `ANTHROPIC_WORK_SECRET` for an item that another has claimed.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import os

from anthropic import AsyncAnthropic
from anthropic.lib.environments import EnvironmentWorker


async def work(arguments: argparse.Namespace) -> None:
    """Serves one session after the other until it is killed, or the one item that it was given."""
    # Whatever key it had of its own is not sent: a worker has the environment's, or the item's.
    async with AsyncAnthropic(base_url=arguments.url, api_key="unused") as client:
        worker = EnvironmentWorker(
            client,
            environment_id=os.environ["ANTHROPIC_ENVIRONMENT_ID"],
            environment_key=os.environ.get("ANTHROPIC_ENVIRONMENT_KEY"),
            workdir=arguments.workdir,
            max_idle=arguments.max_idle,
        )
        await (worker.handle_item() if arguments.item else worker.run())


def main() -> None:
    """Works as the arguments say."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("url")
    parser.add_argument("workdir")
    parser.add_argument("--max-idle", type=float, default=0.2, help="seconds after a turn's end")
    parser.add_argument("--item", action="store_true", help="serve the item that was claimed")
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    asyncio.run(work(parser.parse_args()))


if __name__ == "__main__":
    main()
