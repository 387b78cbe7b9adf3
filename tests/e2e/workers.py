"""Workers of self-hosted environments: processes of their own, to be watched and killed."""

from __future__ import annotations

import asyncio
import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from anthropic import Anthropic

from cli.stack.order import Order
from cli.stack.plan import MODEL_CLIENT
from tests.e2e.driving import MODEL, TOOLSET
from tests.e2e.forked import Forked, warm
from tests.e2e.stack import BETA, Stack

_IMPORTED_LATE: Final = (*MODEL_CLIENT, "anthropic.lib.tools.agent_toolset")
"""What a worker imports when it has something to do."""


@dataclass
class Desk:
    """A self-hosted environment, the key that its workers have, and their working directory."""

    stack: Stack
    client: Anthropic
    environment_id: str
    key: str
    folder: Path
    processes: list[Forked] = field(default_factory=list)

    def session(self, *tools: Any, **more: Any) -> Any:
        """A session whose tools the workers run."""
        agent = self.client.beta.agents.create(
            name="clerk", model=MODEL, tools=list(tools or (TOOLSET,))
        )
        return self.client.beta.sessions.create(
            agent=agent.id, environment_id=self.environment_id, **more
        )

    def worker(self, *, max_idle: float = 0.2) -> Forked:
        """Starts a worker that polls."""
        return self._start({"ANTHROPIC_ENVIRONMENT_KEY": self.key}, f"--max-idle={max_idle}")

    def claimed(self) -> list[Any]:
        """Claims all work that waits, as a process does that hands it to others."""

        async def claim() -> list[Any]:
            async with self.stack.async_client() as client:
                poller = client.beta.environments.work.poller(
                    environment_id=self.environment_id,
                    environment_key=self.key,
                    block_ms=None,
                    drain=True,
                    auto_stop=False,
                )
                return [item async for item in poller]

        return asyncio.run(claim())

    def handed(self, item: Any) -> Forked:
        """Starts a worker for an item that was claimed, which has nothing but the item's secret."""
        given = {
            "ANTHROPIC_WORK_ID": item.id,
            "ANTHROPIC_SESSION_ID": item.data.id,
            "ANTHROPIC_WORK_SECRET": item.secret,
        }
        return self._start(given, "--item")

    def work(self, *, limit: int = 20) -> list[dict[str, Any]]:
        """The environment's items, newest first, as its workers see them."""
        path = f"/v1/environments/{self.environment_id}/work?limit={limit}"
        headers = {"anthropic-beta": BETA, "authorization": f"Bearer {self.key}"}
        answer: Any = self.client.get(path, cast_to=object, options={"headers": headers})
        items: list[dict[str, Any]] = answer["data"]
        return items

    def beat(self, item: Any, **more: Any) -> Any:
        """Sends a heartbeat for an item, as whoever has the environment's key may."""
        headers = {"authorization": f"Bearer {self.key}"}
        return self.client.beta.environments.work.heartbeat(
            item.id, environment_id=self.environment_id, extra_headers=headers, **more
        )

    def _start(self, given: dict[str, str], *options: str) -> Forked:
        inherited = {name: value for name, value in os.environ.items() if "ANTHROPIC" not in name}
        order = Order(
            "worker",
            "tests.doubles.environment_worker",
            str(self.folder / "workers.log"),
            inherited | given | {"ANTHROPIC_ENVIRONMENT_ID": self.environment_id},
            _IMPORTED_LATE,
        )
        process = warm().fork(order, self.stack.url, str(self.folder / "work"), *options)
        self.processes.append(process)
        return process


@contextmanager
def desk(stack: Stack, folder: Path) -> Iterator[Desk]:
    """A self-hosted environment; what still works for it at the end is killed."""
    (folder / "work").mkdir()
    with stack.client() as client:
        environment = client.beta.environments.create(
            name=f"desk-{uuid.uuid4().hex}", config={"type": "self_hosted"}
        )
        made: Any = client.post(
            f"/v1/environments/{environment.id}/keys",
            cast_to=object,
            body={},
            options={"headers": {"anthropic-beta": BETA}},
        )
        opened = Desk(stack, client, environment.id, made["key"], folder)
        try:
            yield opened
        finally:
            for process in opened.processes:
                process.kill()
                process.wait()
